"""Examine data sets before training: damaged, missing, doubled, misread or leaking samples, with path and reason."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densevit.data.doctor import Patient
    from densevit.registry import Part


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", nargs="?", help="a config (its training and validation data), a data set's name, or a folder")
    add("overrides", nargs="*", metavar="key=value", help="of the config, data.train.root=DIR say")
    add("--data", metavar="NAME", help="a data set instead of a config: nyu, kitti, folder, ...")
    add("--root", type=Path, help="the data set's folder; default: its own below $DENSEVIT_DATASETS")
    add("--split", action="append", default=[], help="repeatable; default: all of train, val and test")
    add("--option", action="append", default=[], metavar="key=value", help="of the data set; repeatable")
    add("--classes", type=int, metavar="N", help="how many classes the labels may have")
    add("--hash", type=Path, metavar="FILE", help="compare with the sha256 sums in it; made if not there")
    add("--ignore", action="append", default=[], metavar="KIND", help="leave out; kinds as in the JSON")
    add("--output", type=Path, metavar="DIR", help="write report.txt, report.json and report.html there")
    add("--threads", type=int, metavar="N", help="default: one a core")
    add("--no-cache", action="store_true", help="look at everything anew, and keep nothing")
    add("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit.data import doctor
    from densevit.errors import ConfigError
    from densevit.registry import did_you_mean

    for kind in args.ignore:
        if kind not in doctor.KINDS:
            raise ConfigError(f"--ignore: no kind '{kind}'.{did_you_mean(kind, doctor.KINDS)}")
    load_plugins(args.plugin)
    examination = doctor.examine(
        patients(args), threads=args.threads, sums=args.hash, ignore=args.ignore, progress=_progress
    )
    print(doctor.text(examination))
    if args.output is not None:
        write(args.output, examination)
    return 0 if examination.healthy else 2


def patients(args: argparse.Namespace) -> "Iterator[Patient]":
    """The splits to examine: those of a config, or of a data set.

    Raises:
        ConfigError: neither or both are named, or an option is wrong.
    """
    from densevit.errors import ConfigError

    name, target = args.data, args.target
    if (name is None) == (target is None):
        raise ConfigError("give a config, a data set's name, a folder, or --data NAME.")
    if target is not None and Path(target).suffix in (".yaml", ".yml"):
        return _of_config(args)
    if target is not None and Path(target).is_dir():
        return _of_data(args, "folder", Path(target))
    return _of_data(args, name or target, args.root)


def _of_config(args: argparse.Namespace) -> "Iterator[Patient]":
    from densevit import config

    run, _ = config.read(args.target, args.overrides)
    load_plugins(run.plugins, Path(args.target).parent)
    yield _patient(args, "train", run.data.train)
    if run.data.val is not None:
        yield _patient(args, "val", run.data.val)


def _of_data(args: argparse.Namespace, name: str, root: Path | None) -> "Iterator[Patient]":
    from densevit.data.dataset import DATASETS
    from densevit.document import Document
    from densevit.registry import choices, default

    document = Document({"type": name})
    for item in [*args.option, *args.overrides]:
        document.override(item)
    if root is not None:
        document.tree["root"] = str(root.absolute())
    part = DATASETS.parts.get(name)
    known = choices(part, "split") if part is not None else ()
    usual = default(part, "split") if part is not None else None
    named = args.split or ([document.tree["split"]] if "split" in document.tree else [])
    splits = named or [split for split in ("train", "val", "test") if split in known and usual != "all"] or [None]
    for split in splits:
        spec = document.tree if split is None else {**document.tree, "split": split}
        yield _patient(args, split or usual or "all", spec, optional=not named and split not in (None, usual))


def _patient(args: argparse.Namespace, split: str, spec: "Part", *, optional: bool = False) -> "Patient":
    """A split by its checked options."""
    from densevit.data.dataset import DATASETS
    from densevit.data.doctor import Patient
    from densevit.data.doctor.memory import place

    choice = DATASETS.check(spec, f"data.{split}")
    memory = None if args.no_cache else place(choice.spec())
    return Patient(split, choice.build, memory, args.classes, optional)


def load_plugins(paths: Sequence[Path], folder: Path = Path()) -> None:
    """As `build` does, which is not asked without need: it brings all models."""
    if paths:
        from densevit import build

        build.load_plugins(paths, folder)


def write(folder: Path, examination: Any) -> None:
    """Writes the report in its three forms, and says where."""
    from densevit.data import doctor
    from densevit.errors import StorageError
    from densevit.evaluation.style import STYLE
    from densevit.files import write_text

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made ({error.strerror}).") from error
    write_text(folder / "report.txt", doctor.text(examination) + "\n")
    doctor.write_json(folder / "report.json", examination)
    doctor.write_html(folder / "report.html", examination, style=STYLE)
    print(f"written: {folder / 'report.txt'}, report.json, report.html")


def _progress(seen: Iterable[Any], total: int, split: str) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(seen, total=total, desc=split, delay=2, disable=None, unit="samples")
