"""Score a checkpoint, or depth maps that any system saved, by the protocol of a paper."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.cli import computing, family, saved_maps, scored_data, tiles

if TYPE_CHECKING:
    from densevit.data.dataset import Dataset
    from densevit.evaluation.evaluate import Evaluation
    from densevit.evaluation.pictures import Picture
    from densevit.evaluation.protocols import Protocol
    from densevit.inference.predictor import Predictor
    from densevit.structures import OutputSpec, Sample

# What a data set is usually scored by.
USUAL = {"nyu": "nyu_eigen", "kitti": "kitti_eigen_garg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", help="a run's folder, a step folder or a model.safetensors")
    scored_data.add_arguments(parser, "nyu, kitti, rooms, folder")
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
    saved_maps.add_arguments(maps, "depth maps", ".png")
    maps.add_argument(
        "--kind",
        choices=["metric", "affine", "disparity"],
        default="metric",
        help="metres (default); depth or disparity without unit, which is aligned to the truth",
    )
    maps.add_argument("--scale", type=float, help="stored units per metre of PNG16 predictions that do not say")
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
    tiles.add_arguments(parser)
    computing.add_arguments(parser)
    family.add_arguments(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit import build
    from densevit.evaluation import report
    from densevit.evaluation.metric_sets import find_sets

    saved_maps.demand_one_source(args)
    if args.output is not None and "distance" not in args.metrics:
        args.metrics = (*args.metrics, "distance")  # its charts belong to a report
    find_sets(args.metrics)
    build.load_plugins(args.plugin)
    data = build.open_data(scored_data.spec(args))
    source = saved(args, data) if args.predictions is not None else predicted(args, data)
    evaluations = source.evaluate()
    print(report.table(evaluations[0]) if len(evaluations) == 1 else report.tables(evaluations))
    if source.seconds:
        print(f"{1000 * sum(source.seconds) / len(source.seconds):.1f} ms per image for the prediction.")
    if args.output is not None:
        for found in evaluations:
            folder = args.output if len(evaluations) == 1 else args.output / found.protocol.name
            keep(folder, found, args, source)
    return 0


class Source:
    """Where predictions come from: what to ask for one of them, and how to score them all.

    Attributes:
        read: index -> the sample and its prediction.
        seconds: that the model took for each image; none for saved maps.
        card: what the checkpoint says of itself.
    """

    def __init__(self, data: "Dataset", read: Callable[[int], tuple["Sample", Any]]) -> None:
        self.data, self.read = data, read
        self.seconds: list[float] = []
        self.card: dict[str, Any] = {}
        self.evaluate: Callable[[], list[Evaluation]]

    def item(self, index: int) -> tuple[Any, ...]:
        sample, prediction = self.read(index)
        return sample.name, prediction, sample.depth, sample.valid, sample.intrinsics


def saved(args: argparse.Namespace, data: "Dataset") -> Source:
    """The maps of a folder, read and scored in threads."""
    from densevit.data.io import blank_images
    from densevit.data.predictions import SavedMaps
    from densevit.evaluation.evaluate import evaluate_indexed
    from densevit.structures import OutputSpec

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

    def read(index: int) -> tuple["Sample", Any]:
        sample = data.read(index)
        return sample, maps.read(sample.name)

    def scored(index: int) -> tuple[Any, ...]:
        with blank_images():  # to decode them would take longer than to score
            return source.item(index)

    source = Source(data, read)
    source.evaluate = lambda: evaluate_indexed(
        scored, len(data), protocols, metrics=args.metrics, workers=args.workers, progress=True
    )
    return source


def predicted(args: argparse.Namespace, data: "Dataset") -> Source:
    """A model's predictions; the next image is read while the model works."""
    from densevit import build
    from densevit.evaluation.evaluate import evaluate_all

    predictor = build.load(
        args.checkpoint,
        device=args.device,
        precision=args.precision,
        tiling=tiles.tiling(args),
        **family.chosen(args),
    )
    protocols = chosen(args, data, predictor.card.outputs[predictor.head(args.head)])
    predictor.flip = protocols[0].flip if args.flip is None else args.flip
    predictor.focal = args.focal
    source = Source(data, lambda index: _predict(data.read(index), predictor, args.head, protocols[0]))
    source.card = predictor.card.to_dict()
    items = timed(predictor, args.head, data, protocols[0], source.seconds)
    source.evaluate = lambda: evaluate_all(items, protocols, metrics=args.metrics, progress=True, total=len(data))
    return source


def _predict(sample: "Sample", predictor: "Predictor", head: str | None, protocol: "Protocol") -> tuple["Sample", Any]:
    box = protocol.input_box(*sample.image.shape[:2])
    if sample.intrinsics is not None:
        predictor.focal = (float(sample.intrinsics[0, 0]), float(sample.intrinsics[1, 1]))
    return sample, predictor(sample.image, head=head, box=box)


def timed(
    predictor: "Predictor", head: str | None, data: "Dataset", protocol: "Protocol", seconds: list[float]
) -> Iterator[tuple[Any, ...]]:
    """The items of a data set, and in `seconds` how long the model took for each."""
    from time import perf_counter

    from densevit.data.readahead import readahead

    for sample in readahead(data):
        began = perf_counter()
        _, prediction = _predict(sample, predictor, head, protocol)
        seconds.append(perf_counter() - began)
        yield sample.name, prediction, sample.depth, sample.valid, sample.intrinsics


def chosen(args: argparse.Namespace, data: "Dataset", output: "OutputSpec") -> list["Protocol"]:
    """The protocol that was asked for, or all that apply."""
    from densevit import build
    from densevit.errors import ConfigError
    from densevit.evaluation.protocols import applicable

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


def keep(folder: Path, found: "Evaluation", args: argparse.Namespace, source: Source) -> None:
    """Writes the three files of one evaluation."""
    from densevit.evaluation import report
    from densevit.evaluation.html import Report, write_html

    written = report.write_report(folder, found, source=scored_data.asked(args))
    page = Report(
        title=f"{Path(args.checkpoint or args.predictions).name} on {args.data}",
        subtitle=f"{found.protocol.name}, {report.account(found)}",
        evaluation=found,
        pictures=pictures(found, source),
        times={"prediction, per image": sum(source.seconds) / len(source.seconds)} if source.seconds else {},
        card=source.card,
    )
    written.append(write_html(folder / "report.html", page))
    print("written: " + ", ".join(map(str, written)))


def pictures(found: "Evaluation", source: Source) -> Sequence["Picture"]:
    """The best, the median and the worst image, read once more."""
    from densevit.evaluation.pictures import Picture

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
