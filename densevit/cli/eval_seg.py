"""Score a checkpoint that classifies pixels, or label maps that any system saved.

mIoU, pixel and mean accuracy, frequency-weighted IoU and boundary IoU, of all pixels together as mmseg counts them,
with intervals; then each class and what is taken for what.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli import computing, family, looks, saved_maps, scored_data

if TYPE_CHECKING:
    from densevit.cli.label_source import Source
    from densevit.evaluation.seg_html import SegPicture
    from densevit.evaluation.seg_scores import SegScores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", help="a run's folder, a step folder or a model.safetensors")
    scored_data.add_arguments(parser, "ade20k, cityscapes, rooms, folder")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write JSON, CSV, confusion.png and report.html there"
    )
    parser.add_argument(
        "--boundary", action=argparse.BooleanOptionalAction, default=True, help="boundary IoU, too (default: yes)"
    )
    maps = parser.add_argument_group("saved label maps")
    saved_maps.add_arguments(maps, "label maps", ".labels.png")
    maps.add_argument(
        "--ids",
        default="classes",
        metavar="WHAT",
        help="what the numbers in them are: classes, positions among the data's classes (default); stored, as in the "
        "label files of the data set; or a JSON or text file that names them",
    )
    model = parser.add_argument_group("model")
    looks.add_arguments(model)
    model.add_argument("--head", help="which head of a model that has several that classify pixels")
    computing.add_arguments(model)
    family.add_arguments(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit import build, plugins
    from densevit.cli.label_source import predicted, saved
    from densevit.errors import ConfigError
    from densevit.evaluation import seg_report
    from densevit.files import expect_folder

    saved_maps.demand_one_source(args)
    plugins.load(args.plugin)
    data = build.open_data(scored_data.spec(args))
    if not data.classes:
        raise ConfigError(f"data '{args.data}' names no classes, so there is nothing to score.")
    source = saved(args, data) if args.predictions is not None else predicted(args, data)
    if args.output is not None:
        expect_folder(args.output)
    scores = source.evaluate()
    print(seg_report.table(scores))
    if source.seconds:
        print(f"{1000 * sum(source.seconds) / len(source.seconds):.1f} ms per image for the prediction.")
    if args.output is not None:
        keep(scores, args, source)
    return 0


def keep(scores: "SegScores", args: argparse.Namespace, source: "Source") -> None:
    """Writes the files of an evaluation and its page."""
    from densevit.evaluation import seg_report
    from densevit.evaluation.seg_html import SegReport, write_html

    written = seg_report.write_report(args.output, scores, source=scored_data.asked(args))
    page = SegReport(
        title=f"{Path(args.checkpoint or args.predictions).name} on {args.data}",
        subtitle=seg_report.account(scores),
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
    from densevit.evaluation.seg_html import SegPicture

    places = {name: index for index, name in enumerate(source.data.names)}
    shown = []
    for label, name in scores.examples().items():
        sample, ids = source.read(places[name])
        assert sample.labels is not None  # or it would not have been scored
        shown.append(SegPicture(name=name, label=label, image=sample.image, labels=sample.labels, predicted=ids))
    return shown
