"""What `--resume` and `--overwrite` take for done: random walks compare an export's files with those of a clean run."""

import os
import random
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from films import frame, write_film
from PIL import Image
from test_pipeline import contents, plan, predictor

from densevit.data.datasets.base import open_dataset
from densevit.data.io.video import TimeSpan
from densevit.errors import ConfigError, DataError, PartialError, Preempted
from densevit.inference.predict.inputs import find_items
from densevit.inference.predict.pipeline import ImageExporter
from densevit.inference.predict.pseudo_labels import WRITERS, LabelPlan, write_pseudo_labels
from densevit.inference.predict.summary import Ledger
from densevit.inference.predictor import Predictor
from densevit.inference.video import export as export_module
from densevit.inference.video.clips import ClipPlan, find_clips
from densevit.inference.video.export import ClipExporter
from densevit.inference.video.formats import CLIP_FORMATS
from densevit.inference.writers import DEPTH_FORMATS

NAMES = ("0.jpg.png", "0_jpg.png", "2.png", "sub/3.png", "sub/4.png", "bad.png")
LISTS = ((0, 1, 2, 3, 4, 5), (1, 2, 3, 4), (1, 2, 3, 4, 5), (0, 3))


def write_image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)).save(path)


def gallery(root: Path) -> Path:
    for i, name in enumerate(NAMES[:5]):
        write_image(root / name, i)
    (root / NAMES[5]).write_bytes(b"")
    return root


def model(number: int) -> Predictor:
    made = predictor(batch_size=2)
    made.model.nearest += number
    return made


def run(way: str, root: Path, out: Path, weights: int, images: int, size: int, existing: Any) -> None:
    paths = [root / NAMES[i] for i in LISTS[images]]
    if way == "images":
        made = plan(root, out, "png16", "npy")
        items = [item for item in made.items if item.source in paths]
        ImageExporter(model(weights), replace(made, items=items), existing=existing).export()
        return
    items = [item for item in find_items([str(root)], [".depth.npz"], out).items if item.source in paths]
    labels = LabelPlan(items, WRITERS, out, shard_size=size if way == "shards" else None)
    labels.check(existing)
    write_pseudo_labels(model(weights), labels, "teacher", (), existing)


def run_and_be_killed(after: int, *arguments: Any) -> None:
    """Run in a process that is killed when so many files are there, the last one before it is noted.

    The alarm kills a child that waits for ever for OpenCV's lock, which a thread of the parent held at the fork.
    """
    if (pid := os.fork()) == 0:
        signal.alarm(10)
        try:
            add, left = Ledger.add, iter(range(after))

            def killing(*given: Any) -> None:
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                add(*given)

            Ledger.add = killing  # type: ignore[method-assign]
            run(*arguments)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def outputs(way: str, out: Path) -> dict[str, Any]:
    """What a user has of an export: its files; pseudo-labels as the data set reads them."""
    if way == "images":
        return {name: data for name, data in contents(out).items() if name.endswith((".png", ".npy"))}
    data = open_dataset({"type": "pseudo_labels", "root": str(out)})
    samples = [data.read(i) for i in range(len(data))]
    return {
        "list": (out / "images.jsonl").read_bytes(),
        "manifest": (out / "manifest.json").read_bytes(),
        **{s.name: (s.image.tobytes(), s.depth.tobytes()) for s in samples if s.depth is not None},
    }


def walk(way: str, seed: int, folder: Path) -> None:
    draw, root, out = random.Random(f"{way} {seed}"), gallery(folder / "in"), folder / "out"
    for step in range(8):
        choice = draw.choice((1, 1, 1, 2)), draw.randrange(len(LISTS)), draw.choice((2, 2, 2, 4))
        existing = draw.choice(("refuse", "resume", "resume", "overwrite"))
        if draw.random() < 0.3:
            write_image(root / NAMES[draw.randrange(5)], draw.randrange(1000))
        before = contents(out) if out.exists() else {}
        if draw.random() < 0.4:
            run_and_be_killed(draw.randrange(5), way, root, out, *choice, existing)
            continue
        try:
            with suppress(PartialError):
                run(way, root, out, *choice, existing)
        except ConfigError:
            assert existing != "overwrite" and contents(out) == before, (step, choice, existing)
            continue
        clean = folder / f"clean-{step}"
        with suppress(PartialError):
            run(way, root, clean, *choice, "refuse")
        made, expected = outputs(way, out), outputs(way, clean)
        kept = {name: made.get(name) for name in expected} if way == "images" else made
        assert kept == expected, (step, choice, existing)
        if way == "shards" and existing == "overwrite":
            assert {path.name for path in out.glob("*.tar")} == {path.name for path in clean.glob("*.tar")}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["images", "folders", "shards"])
def test_whatever_came_before_an_export_that_ends_has_left_the_files_of_a_clean_run(way: str, tmp_path: Path) -> None:
    for seed in range(100):
        walk(way, seed, tmp_path / str(seed))


def export_clips(made: Predictor, clips: list[Path], out: Path, existing: Any, every: int = 1, stop: int = 99) -> None:
    """Export; stop is asked for at the n-th image."""
    asked, forward = threading.Event(), made.model.forward

    def counting(image: Any) -> Any:
        if len(made.model.seen) >= stop:
            asked.set()
        return forward(image)

    made.model.forward = counting
    formats = {"npz_clip": CLIP_FORMATS.check({"type": "npz_clip"}, "npz_clip").build()}
    writers = {"npy": DEPTH_FORMATS.check({"type": "npy"}, "npy").build()}
    found = find_clips(list(map(str, clips)), 10)
    clip_plan = ClipPlan(found, writers, formats, out, TimeSpan(every=every))
    ClipExporter(made, clip_plan, existing=existing, stop=asked).export()


def test_a_resumed_clip_holds_no_frame_of_another_model_or_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "SEGMENT", 4)
    one, two = (write_film(tmp_path / f"{i}.mp4", [frame(i + j) for j in range(12)]) for i in (0, 20))
    out = tmp_path / "out"
    with pytest.raises(Preempted):
        export_clips(model(1), [one], out, "refuse", stop=4)
    assert (out / ".0.parts").exists()
    export_clips(model(2), [two], out, "refuse")
    export_clips(model(2), [one, two], out, "resume")
    export_clips(model(2), [one, two], tmp_path / "clean", "refuse")
    assert contents(out) == contents(tmp_path / "clean")
    write_film(one, [frame(5 + j) for j in range(12)])
    export_clips(model(2), [one, two], out, "resume")
    export_clips(model(2), [one, two], tmp_path / "new", "refuse")
    assert contents(out) == contents(tmp_path / "new") != contents(tmp_path / "clean")
    export_clips(model(2), [one, two], out, "overwrite", every=2)
    export_clips(model(2), [one, two], tmp_path / "half", "refuse", every=2)
    assert contents(out) == contents(tmp_path / "half")


def test_an_earlier_file_is_forgotten_before_another_takes_its_place(tmp_path: Path) -> None:
    root, out = gallery(tmp_path / "in"), tmp_path / "out"
    run("images", root, out, 1, 1, 2, "refuse")
    run_and_be_killed(0, "images", root, out, 2, 1, 2, "overwrite")
    assert Ledger(out, "").read() == {}


def test_a_name_that_comes_twice_or_an_image_without_map_is_refused(tmp_path: Path) -> None:
    root, out = gallery(tmp_path / "in"), tmp_path / "out"
    run("shards", root, out, 1, 1, 2, "refuse")
    lines = (out / "images.jsonl").read_text().splitlines()
    (out / "images.jsonl").write_text("\n".join([*lines, lines[1]]))
    with pytest.raises(DataError, match="1 names come twice:"):
        open_dataset({"type": "pseudo_labels", "root": str(out)})
    (out / "images.jsonl").write_text("\n".join([*lines, lines[1].replace('"name": "', '"name": "no')]))
    with pytest.raises(DataError, match="1 images or maps are missing"):
        open_dataset({"type": "pseudo_labels", "root": str(out)})


def test_a_journal_that_another_export_joins_to_the_ledger_meanwhile_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path, "settings")
    ledger.write({"a.png": ("settings", 1)})
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: [folder / pattern.replace("*", "gone")])
    monkeypatch.setattr(Path, "is_file", lambda path: True)  # it was there at a first look
    assert ledger.read() == {"a.png": ("settings", 1)}
