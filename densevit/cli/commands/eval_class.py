"""Score a checkpoint that classifies images: accuracy, top-5, per class, confusion."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, dataset

if TYPE_CHECKING:
    from densevit.data.datasets.base import Dataset
    from densevit.evaluation.records import Row
    from densevit.inference.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="a run's folder, a step folder or a model.safetensors")
    dataset.add_dataset_options(parser, "mnist, digits")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write metrics.json, per_image.csv and confusion.csv there"
    )
    parser.add_argument("--flip", action="store_true", help="average with the mirrored image's logits")
    parser.add_argument("--head", help="which head of a model that has several that classify")
    parser.add_argument("--batch-size", type=int, default=32, help="images of one size that share a pass (32)")
    checkpoint.add_compute_options(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit import api
    from densevit.builder import training
    from densevit.config import plugins
    from densevit.evaluation.classification import report
    from densevit.evaluation.classification.metrics import summarise
    from densevit.utils.atomic_io import check_can_create

    plugins.load(args.plugin)
    data = training.open_data(dataset.spec(args))
    predictor = api.load(args.checkpoint, flip=args.flip, batch_size=args.batch_size, **checkpoint.compute_kwargs(args))
    head = class_head(predictor, args.head, data)
    if args.output is not None:
        check_can_create(args.output)
    scores = summarise(scored(predictor, head, data), predictor.card.outputs[head].classes)
    print(report.table(scores))
    if args.output is not None:
        written = report.write_report(args.output, scores, source=dataset.asked(args))
        print("written: " + ", ".join(map(str, written)))
    return 0


def class_head(predictor: "Predictor", name: str | None, data: "Dataset") -> str:
    """The head that is meant, sure to know the classes of the data.

    Raises:
        ConfigError: none, several, or one with other classes.
    """
    from densevit.data.labels.class_table import refuse_reordered
    from densevit.errors import ConfigError

    known = {key: spec for key, spec in predictor.card.outputs.items() if spec.kind == "class"}
    if name is None and len(known) == 1:
        name = next(iter(known))
    if name not in known:
        have = ", ".join(known) or f"none, only {', '.join(predictor.card.outputs)} for `densevit eval-depth`"
        raise ConfigError(f"--head: names a head that classifies; this model has {have}.")
    if len(known[name].classes) != len(data.classes):
        raise ConfigError(
            f"head '{name}' tells {len(known[name].classes)} classes apart; the data has {len(data.classes) or 'none'}."
        )
    refuse_reordered(f"head '{name}'", known[name].classes, data.classes)
    return name


def scored(predictor: "Predictor", head: str, data: "Dataset") -> Iterator[tuple[str, "Row"]]:
    """Name and row of every image, in the order of the data."""
    from collections import deque

    from tqdm import tqdm

    from densevit.data.loading.prefetch import readahead
    from densevit.evaluation.classification.metrics import score
    from densevit.structures import Sample

    waiting: deque[Sample] = deque()

    def images() -> Iterator[object]:
        for sample in readahead(data):
            waiting.append(sample)
            yield sample.image

    bar = tqdm(predictor.stream(images()), desc="evaluate", unit="image", total=len(data), delay=1)  # type: ignore[arg-type]
    for answer in bar:
        sample = waiting.popleft()
        yield sample.name, {} if sample.label is None else score(answer[head], sample.label)
