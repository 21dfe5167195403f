"""The label maps that `eval-seg` scores: a model's, or those of a folder. Loaded when the command runs."""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Int
from tqdm import tqdm

from densevit import api
from densevit.cli.options import checkpoint, inference
from densevit.data.datasets.base import Dataset
from densevit.data.labels.class_lists import read_classes
from densevit.data.labels.class_table import ClassTable, refuse_reordered
from densevit.data.loading.dataloader import describe_with_files
from densevit.data.loading.parallel_map import ordered_parallel_map
from densevit.data.loading.prefetch import readahead
from densevit.data.predictions import SavedLabels
from densevit.errors import ConfigError, DataError
from densevit.evaluation.segmentation.evaluate import Counts, SegScores, count, summarise
from densevit.evaluation.segmentation.metrics import Ids
from densevit.inference.predictor import Predictor
from densevit.model_card import Palette
from densevit.ops.palette import palette_for, usual_palette
from densevit.structures import IGNORE, Sample

AnySize = Int[np.ndarray, "_ _"]  # maps that may not fit each other


class Source:
    """Where label maps come from.

    Attributes:
        read: index -> the sample and the ids predicted for it.
        evaluate: scores them all.
        palette: colours of the classes.
        seconds: that the model took for each image; none for saved maps.
        card: what the checkpoint says of itself.
    """

    def __init__(self, data: Dataset, palette: Palette, boundary: bool) -> None:
        self.data, self.palette, self.boundary = data, palette, boundary
        self.seconds: list[float] = []
        self.card: dict[str, Any] = {}
        self.read: Callable[[int], tuple[Sample, Ids]]
        self.evaluate: Callable[[], SegScores]

    def count(self, name: str, ids: AnySize, labels: AnySize | None) -> tuple[str, Counts]:
        """
        Raises:
            DataError: the maps do not fit each other; with the name.
        """
        labels = np.full(ids.shape, IGNORE) if labels is None else labels
        try:
            return name, count(ids, labels, len(self.data.classes), boundary=self.boundary)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None


def saved(args: argparse.Namespace, data: Dataset) -> Source:
    """The maps of a folder, read and scored by several processes."""
    maps = SavedLabels(
        args.predictions,
        data.names,
        table=table(args.label_encoding, data),
        suffix=args.suffix,
        manifest=args.manifest,
        allow_outside=args.allow_outside_root,
    )
    source = Source(data, data.palette or usual_palette(len(data.classes)), args.boundary)

    def read(index: int) -> tuple[Sample, Ids]:
        sample = data.read(index)
        return sample, maps.read(sample.name)

    def scored(index: int) -> tuple[str, Counts]:
        name = data.names[index]
        return source.count(name, maps.read(name), data.label_map(index))  # the image need not be decoded

    def evaluate() -> SegScores:
        found = ordered_parallel_map(scored, len(data), args.workers, partial(describe_with_files, data))
        return summarise(iter(tqdm(found, desc="evaluate", unit="image", total=len(data), delay=1)), data.classes)

    source.read, source.evaluate = read, evaluate
    return source


def table(ids: str, data: Dataset) -> ClassTable | None:
    """What stored numbers mean; None where they are the positions of the classes.

    Raises:
        ConfigError: the data set's own ids are asked for, and it has none.
        DataError: the file is not there, or names other classes than the data.
    """
    if ids == "classes":
        return None
    if ids == "stored":
        stored: ClassTable | None = getattr(data, "table", None)
        if stored is None:
            raise ConfigError("--label-encoding stored: this data set has no table of stored ids; leave it out.")
        return stored
    found = read_classes(Path(ids))
    if tuple(found.names) != tuple(data.classes):
        differing = [f"{a!r}, not {b!r}" for a, b in zip(found.names, data.classes, strict=False) if a != b]
        raise DataError(
            f"{ids}: names {len(found.names)} classes, the data {len(data.classes)}"
            + (f"; the first that differs is {differing[0]}." if differing else ".")
        )
    return found


def predicted(args: argparse.Namespace, data: Dataset) -> Source:
    """A model's predictions; the next image is read while the model works."""
    predictor = api.load(args.checkpoint, **checkpoint.compute_kwargs(args), **checkpoint.format_kwargs(args))
    inference.apply(args, predictor)
    head = predictor.label_head(args.head, "eval-seg")
    spec = predictor.card.outputs[head]
    if len(spec.classes) != len(data.classes):
        raise ConfigError(f"head '{head}' tells {len(spec.classes)} classes apart; the data has {len(data.classes)}.")
    refuse_reordered(f"head '{head}'", spec.classes, data.classes)
    source = Source(data, data.palette or palette_for(spec), args.boundary)
    source.card = predictor.card.to_dict()

    def read(index: int) -> tuple[Sample, Ids]:
        sample = data.read(index)
        return sample, predictor.classes(sample.image, head)

    source.read = read
    source.evaluate = lambda: summarise(counted(source, predictor, head), data.classes)
    return source


def counted(source: Source, predictor: Predictor, head: str) -> Iterator[tuple[str, Counts]]:
    """The counts of all images; those of one are made while the model works on the next."""
    waiting: Future[tuple[str, Counts]] | None = None
    with ThreadPoolExecutor(1) as counting:
        for sample in tqdm(readahead(source.data), desc="evaluate", unit="image", total=len(source.data), delay=1):
            began = perf_counter()
            ids = predictor.classes(sample.image, head)
            source.seconds.append(perf_counter() - began)
            if waiting is not None:
                yield waiting.result()
            waiting = counting.submit(source.count, sample.name, ids, sample.labels)
        if waiting is not None:
            yield waiting.result()
