"""Score a checkpoint that classifies pixels, or label maps that any system saved.

mIoU, pixel and mean accuracy, frequency-weighted IoU and boundary IoU, of all pixels together as mmseg counts them,
with intervals; then each class and what is taken for what.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, dataset, inference, predictions

if TYPE_CHECKING:
    from densevit.evaluation.segmentation.evaluate import SegScores
    from densevit.evaluation.segmentation.html_report import SegPicture
    from densevit.evaluators.segmentation import Source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", help="a run's folder, a step folder or a model.safetensors")
    dataset.add_dataset_options(parser, "ade20k, cityscapes, rooms, folder")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write JSON, CSV, confusion.png and report.html there"
    )
    parser.add_argument(
        "--boundary", action=argparse.BooleanOptionalAction, default=True, help="boundary IoU, too (default: yes)"
    )
    maps = parser.add_argument_group("saved label maps")
    predictions.add_arguments(maps, "label maps", ".labels.png")
    maps.add_argument(
        "--label-encoding",
        default="classes",
        metavar="WHAT",
        help="what the numbers in them are: classes, positions among the data's classes (default); stored, as in the "
        "label files of the data set; or a JSON or text file that names them",
    )
    model = parser.add_argument_group("model")
    inference.add_inference_options(model)
    model.add_argument("--head", help="which head of a model that has several that classify pixels")
    checkpoint.add_compute_options(model)
    checkpoint.add_format_options(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit.builder import training
    from densevit.config import plugins
    from densevit.errors import ConfigError
    from densevit.evaluation.segmentation import report
    from densevit.evaluators.segmentation import predicted, saved
    from densevit.utils.atomic_io import check_can_create

    predictions.demand_one_source(args)
    plugins.load(args.plugin)
    data = training.open_data(dataset.spec(args))
    if not data.classes:
        raise ConfigError(f"data '{args.data}' names no classes, so there is nothing to score.")
    source = saved(args, data) if args.predictions is not None else predicted(args, data)
    if args.output is not None:
        check_can_create(args.output)
    scores = source.evaluate()
    print(report.table(scores))
    if source.seconds:
        print(f"{1000 * sum(source.seconds) / len(source.seconds):.1f} ms per image for the prediction.")
    if args.output is not None:
        keep(scores, args, source)
    return 0


def keep(scores: "SegScores", args: argparse.Namespace, source: "Source") -> None:
    """Writes the files of an evaluation and its page."""
    from densevit.evaluation.segmentation import report
    from densevit.evaluation.segmentation.html_report import SegReport, write_html

    written = report.write_report(args.output, scores, source=dataset.asked(args))
    page = SegReport(
        title=f"{Path(args.checkpoint or args.predictions).name} on {args.data}",
        subtitle=report.account(scores),
        scores=scores,
        palette=source.palette,
        pictures=pictures(scores, source),
        times={"prediction, per image": sum(source.seconds) / len(source.seconds)} if source.seconds else {},
        card=source.card,
    )
    written.append(write_html(args.output / "report.html", page))
    print("written: " + ", ".join(map(str, written)))


def pictures(scores: "SegScores", source: "Source") -> "list[SegPicture]":
    """The best, the median and the worst image, read once more."""
    from densevit.evaluation.segmentation.html_report import SegPicture

    places = {name: index for index, name in enumerate(source.data.names)}
    shown = []
    for label, name in scores.examples().items():
        sample, ids = source.read(places[name])
        assert sample.labels is not None  # or it would not have been scored
        shown.append(SegPicture(name=name, label=label, image=sample.image, labels=sample.labels, predicted=ids))
    return shown
