"""The depth maps that `eval-depth` scores: a model's, or those of a folder. Loaded when the command runs."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from densevit import api
from densevit.builder import training
from densevit.cli.options import checkpoint, inference
from densevit.data.datasets.base import Dataset
from densevit.data.io.depth_cache import depth_cache
from densevit.data.io.readers import blank_images
from densevit.data.loading.dataloader import describe_with_files
from densevit.data.loading.parallel_map import ordered_parallel_map
from densevit.data.loading.prefetch import readahead
from densevit.data.predictions import SavedMaps
from densevit.errors import ConfigError
from densevit.evaluation.depth.evaluate import Evaluation, evaluate_all, evaluate_indexed
from densevit.evaluation.depth.published_protocols import Protocol, applicable
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec
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
    protocols = chosen(args, data, HeadSpec(kind=args.prediction_type))
    maps = SavedMaps(
        args.predictions,
        data.names,
        kind=args.prediction_type,
        scale=args.scale,
        suffix=args.suffix,
        manifest=args.manifest,
        allow_outside=args.allow_outside_root,
    )

    def read(index: int) -> tuple[Sample, Any]:
        with depth_cache(args.gt_cache):
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
        spread=partial(ordered_parallel_map, workers=args.workers, describe=partial(describe_with_files, data)),
        progress=True,
    )
    return source


def predicted(args: argparse.Namespace, data: Dataset) -> Source:
    """A model's predictions; the next image is read while the model works."""
    predictor = api.load(
        args.checkpoint,
        tiling=inference.tiling(args),
        **checkpoint.compute_kwargs(args),
        **checkpoint.format_kwargs(args),
    )
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


def chosen(args: argparse.Namespace, data: Dataset, output: HeadSpec) -> list[Protocol]:
    """The protocol that was asked for, or all that apply."""
    if args.protocol != "all":
        protocol = training.find_protocol(args.protocol or USUAL.get(args.data, "plain"), data, output)
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
