"""Data: `init` writes a first config for a folder, `check_data` validates data sets before training."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from densevit.api.types import Count


def init(name: str | Path, /, *, root: str | Path | None = None, overwrite: bool = False) -> str:
    """Write a first config for a folder of your own, after a look at it: sizes, the unit of depth, classes.

    `densevit init mine --root /data/mine` writes mine.yaml, ready for `densevit train mine.yaml`. Images lie in
    images/, depth maps of the same names in depths/, label maps in labels/, all of them perhaps in train/ and val/.

    Args:
        name: of the config, NAME.yaml, and of the run, runs/NAME.
        root: the folder; default: the one called NAME, whose config is then written here.
        overwrite: replace a config that is there.
    """
    from densevit.config import validation
    from densevit.config.parser import Draft
    from densevit.config.starter import starter_config
    from densevit.data.folder_facts import look_at_folder
    from densevit.errors import ConfigError
    from densevit.utils.atomic_io import write_text

    stem = (Path(name).name or Path.cwd().name).removesuffix(".yaml")
    path = (Path(name).parent if root is not None else Path()) / f"{stem}.yaml"
    if path.exists() and not overwrite:
        raise ConfigError(f"{path}: is there already; take another NAME, or --overwrite.")
    facts = look_at_folder(Path(root or name))
    write_text(path, starter_config(path.stem, facts))
    validation.check(Draft.read(path))
    shown = shlex.quote(str(path))
    next_steps = [f"written  {path}", f"next     densevit check-data {shown}", f"         densevit train {shown}"]
    return "\n".join([*facts.lines(), *next_steps])


def check_data(
    target: str | None = None,
    /,
    *words: str,
    data: str | None = None,
    root: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    splits: Sequence[str] = (),
    class_weights: Literal["enet", "inverse", "median"] | None = None,
    classes: int | None = None,
    checksums: str | Path | None = None,
    ignore: Sequence[str] = (),
    output: str | Path | None = None,
    threads: Count | None = None,
    cache: bool = True,
    plugins: Sequence[str | Path] = (),
) -> str:
    """Validate data sets before training: damaged, missing, duplicate, misread or leaking samples, by path and reason.

    With `--class-weights` count the classes of the label maps instead, and print class weights for a loss as a line of
    the config.

    Args:
        target: a config (its training and validation data), a data set's name, or a folder.
        words: keys of the config, as data.train.root=DIR.
        data: a data set instead of a config: nyu, kitti, folder, ...
        root: folder of the data set; default: its own below $DENSEVIT_DATASETS.
        data_options: options of the data set, as depth_scale=1000.
        splits: splits to look at; default: all of train, val and test; of class weights the training data.
        class_weights: how weights follow from the share of a class: enet 1/ln(1.02 + share), inverse 1/share, median.
        classes: number of classes that the labels may have.
        checksums: compare with the sha256 sums in this file; it is made if it is not there.
        ignore: types of issues to leave out, as in the JSON.
        output: write report.txt, report.json and report.html to this folder.
        threads: default: one per core.
        cache: reuse what was found in samples that have not changed.
        plugins: Python files that register components of your own.
    """
    from densevit.api import data_checks
    from densevit.api.checkpoint import load_plugins
    from densevit.api.data_arguments import find_splits

    load_plugins(plugins)
    candidates = find_splits(target, words, data, root, data_options, splits)
    if class_weights is not None:
        selected = list(candidates) if splits else [next(candidates)]
        return data_checks.class_weights(selected, class_weights, threads)
    checksum_path = None if checksums is None else Path(checksums)
    folder = None if output is None else Path(output)
    return data_checks.check_data(candidates, classes, checksum_path, list(ignore), folder, threads, cache=cache)
