"""The depth maps that `eval-depth` scores: a model's, or those of a folder. Loaded when the command runs."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from densevit import build
from densevit.card import OutputSpec
from densevit.cli import computing, family, tiles
from densevit.data.dataset import Dataset
from densevit.data.decoded import keep_decoded
from densevit.data.io import blank_images
from densevit.data.loader import located
from densevit.data.parallel import in_order
from densevit.data.predictions import SavedMaps
from densevit.data.readahead import readahead
from densevit.errors import ConfigError
from densevit.evaluation.evaluate import Evaluation, evaluate_all, evaluate_indexed
from densevit.evaluation.protocols import Protocol, applicable
from densevit.inference.predictor import Predictor
from densevit.structures import Sample

# What a data set is usually scored by.
USUAL = {"nyu": "nyu_eigen", "kitti": "kitti_eigen_garg"}


class Source:
    """Where predictions come from: what to ask for one of them, and how to score them all.

    Attributes:
        read: index -> the sample and its prediction.
        seconds: that the model took for each image; none for saved maps.
        card: what the checkpoint says of itself.
    """

    def __init__(self, data: Dataset, read: Callable[[int], tuple[Sample, Any]]) -> None:
        self.data, self.read = data, read
        self.seconds: list[float] = []
        self.card: dict[str, Any] = {}
        self.evaluate: Callable[[], list[Evaluation]]

    def item(self, index: int) -> tuple[Any, ...]:
        sample, prediction = self.read(index)
        return sample.name, prediction, sample.depth, sample.valid, sample.intrinsics


def saved(args: argparse.Namespace, data: Dataset) -> Source:
    """The maps of a folder, read and scored by several processes."""
    protocols = chosen(args, data, OutputSpec(kind=args.kind))
    maps = SavedMaps(
        args.predictions,
        data.names,
        kind=args.kind,
        scale=args.scale,
        suffix=args.suffix,
        manifest=args.manifest,
        allow_outside=args.allow_outside_root,
    )

    def read(index: int) -> tuple[Sample, Any]:
        with keep_decoded(args.truth_cache):
            sample = data.read(index)
        return sample, maps.read(sample.name)

    def scored(index: int) -> tuple[Any, ...]:
        with blank_images():  # to decode them would take longer than to score
            return source.item(index)

    source = Source(data, read)
    source.evaluate = lambda: evaluate_indexed(
        scored,
        len(data),
        protocols,
        metrics=args.metrics,
        spread=partial(in_order, workers=args.workers, describe=partial(located, data)),
        progress=True,
    )
    return source


def predicted(args: argparse.Namespace, data: Dataset) -> Source:
    """A model's predictions; the next image is read while the model works."""
    predictor = build.load(args.checkpoint, tiling=tiles.tiling(args), **computing.chosen(args), **family.chosen(args))
    protocols = chosen(args, data, predictor.card.outputs[predictor.head(args.head)])
    predictor.flip = protocols[0].flip if args.flip is None else args.flip
    predictor.focal = args.focal
    source = Source(data, lambda index: _predict(data.read(index), predictor, args.head, protocols[0]))
    source.card = predictor.card.to_dict()
    items = timed(predictor, args.head, data, protocols[0], source.seconds)
    source.evaluate = lambda: evaluate_all(items, protocols, metrics=args.metrics, progress=True, total=len(data))
    return source


def _predict(sample: Sample, predictor: Predictor, head: str | None, protocol: Protocol) -> tuple[Sample, Any]:
    box = protocol.input_box(*sample.image.shape[:2])
    if sample.intrinsics is not None:
        predictor.focal = (float(sample.intrinsics[0, 0]), float(sample.intrinsics[1, 1]))
    return sample, predictor(sample.image, head=head, box=box)


def timed(
    predictor: Predictor, head: str | None, data: Dataset, protocol: Protocol, seconds: list[float]
) -> Iterator[tuple[Any, ...]]:
    """The items of a data set, and in `seconds` how long the model took for each."""
    for sample in readahead(data):
        began = perf_counter()
        _, prediction = _predict(sample, predictor, head, protocol)
        seconds.append(perf_counter() - began)
        yield sample.name, prediction, sample.depth, sample.valid, sample.intrinsics


def chosen(args: argparse.Namespace, data: Dataset, output: OutputSpec) -> list[Protocol]:
    """The protocol that was asked for, or all that apply."""
    if args.protocol != "all":
        protocol = build.find_protocol(args.protocol or USUAL.get(args.data, "plain"), data, output)
        return [protocol if args.align is None else protocol.aligned(args.align)]
    if args.align is not None:
        raise ConfigError("--align belongs to one protocol, and --protocol all to the ones that there are.")
    h, w = data.read(0).image.shape[:2]
    found = applicable(args.data, (h, w), output.kind, data.depth_range)
    if args.checkpoint is not None:  # the network is shown one thing
        found = [row for row in found if row.window == found[0].window]
    if not found:
        raise ConfigError(f"no protocol is for {output.kind} predictions of {args.data} with frames of {h}x{w}.")
    return found
