"""Score a checkpoint, or depth maps that any system saved, by the protocol of a paper."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, dataset, inference, predictions

if TYPE_CHECKING:
    from densevit.evaluation.depth.evaluate import Evaluation
    from densevit.evaluators.depth import Source
    from densevit.reporting.figures import Picture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", help="a run's folder, a step folder or a model.safetensors")
    dataset.add_dataset_options(parser, "nyu, kitti, rooms, folder")
    parser.add_argument("--protocol", help="a name (`densevit protocols` lists them), or all; default: by --data")
    parser.add_argument("--align", metavar="NAME", help="fit predictions to each image's truth: lstsq, median, ...")
    parser.add_argument(
        "--metrics",
        type=_words,
        default=(),
        metavar="A,B",
        help="beside the usual nine: extra, silog, kitti, curve, boundary, distance, points",
    )
    maps = parser.add_argument_group("saved maps")
    predictions.add_arguments(maps, "depth maps", ".png")
    maps.add_argument(
        "--prediction-type",
        choices=["metric", "affine", "disparity"],
        default="metric",
        help="metres (default); depth or disparity without unit, which is aligned to the truth",
    )
    maps.add_argument("--scale", type=float, help="stored units per metre of PNG16 predictions that do not say")
    maps.add_argument(
        "--gt-cache",
        type=Path,
        metavar="DIR",
        help="keep the decoded truth there (float32 NPY): what is scored against it later need not decode it again",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write metrics.json, per_image.csv and report.html there"
    )
    parser.add_argument(
        "--flip",
        action=argparse.BooleanOptionalAction,
        help="average with the mirrored image's prediction; default: as the protocol does",
    )
    parser.add_argument("--head", help="which head of a model that has several depth heads")
    parser.add_argument(
        "--focal",
        type=float,
        metavar="PIXELS",
        help="of the camera, for models whose metres depend on it, where the data does not tell",
    )
    inference.add_tiling_options(parser)
    checkpoint.add_compute_options(parser)
    checkpoint.add_format_options(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit.builder import training
    from densevit.config import plugins
    from densevit.errors import ConfigError
    from densevit.evaluation.depth import report
    from densevit.evaluation.depth.extra_metrics import find_sets
    from densevit.evaluators.depth import predicted, saved
    from densevit.utils.atomic_io import check_can_create

    predictions.demand_one_source(args)
    if args.gt_cache is not None and args.predictions is None:
        raise ConfigError("--gt-cache goes with --predictions; a model takes longer than the truth.")
    if args.output is not None and "distance" not in args.metrics:
        args.metrics = (*args.metrics, "distance")  # its charts belong to a report
    find_sets(args.metrics)
    plugins.load(args.plugin)
    data = training.open_data(dataset.spec(args))
    source = saved(args, data) if args.predictions is not None else predicted(args, data)
    if args.output is not None:
        check_can_create(args.output)
    evaluations = source.evaluate()
    print(report.table(evaluations[0]) if len(evaluations) == 1 else report.tables(evaluations))
    if source.seconds:
        print(f"{1000 * sum(source.seconds) / len(source.seconds):.1f} ms per image for the prediction.")
    if args.output is not None:
        for found in evaluations:
            folder = args.output if len(evaluations) == 1 else args.output / found.protocol.name
            keep(folder, found, args, source)
    return 0


def keep(folder: Path, found: "Evaluation", args: argparse.Namespace, source: "Source") -> None:
    """Writes the three files of one evaluation."""
    from densevit.evaluation.depth import report
    from densevit.evaluation.depth.html_report import Report, write_html

    written = report.write_report(folder, found, source=dataset.asked(args))
    page = Report(
        title=f"{Path(args.checkpoint or args.predictions).name} on {args.data}",
        subtitle=f"{found.protocol.name}, {report.summary_sentence(found)}",
        evaluation=found,
        pictures=pictures(found, source),
        times={"prediction, per image": sum(source.seconds) / len(source.seconds)} if source.seconds else {},
        card=source.card,
    )
    written.append(write_html(folder / "report.html", page))
    print("written: " + ", ".join(map(str, written)))


def pictures(found: "Evaluation", source: "Source") -> Sequence["Picture"]:
    """The best, the median and the worst image, read once more."""
    from densevit.reporting.figures import Picture

    places = {name: index for index, name in enumerate(source.data.names)}
    rows = dict(found.rows)
    shown = []
    for label, name in found.examples().items():
        sample, prediction = source.read(places[name])
        assert sample.depth is not None and sample.valid is not None  # or it would not have been scored
        frame = found.protocol.render(prediction, sample.depth, sample.valid)
        shown.append(
            Picture(
                name=name, label=label, image=sample.image, depth=sample.depth, valid=sample.valid, prediction=frame,
                abs_rel=rows[name]["abs_rel"],
            )
        )  # fmt: skip
    return shown


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
