"""Score a checkpoint that classifies pixels, or label maps that any system saved.

mIoU, pixel and mean accuracy, frequency-weighted IoU and boundary IoU, of all pixels together as mmseg counts them,
with intervals; then each class and what is taken for what.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.cli import computing, family, looks, saved_maps, scored_data

if TYPE_CHECKING:
    from densevit.data.class_table import ClassTable
    from densevit.data.dataset import Dataset
    from densevit.evaluation.seg_html import SegPicture
    from densevit.evaluation.seg_metrics import Ids
    from densevit.evaluation.seg_scores import Counts, SegScores
    from densevit.inference.predictor import Predictor
    from densevit.structures import Palette, Sample


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
    from densevit import build
    from densevit.errors import ConfigError
    from densevit.evaluation import seg_report

    saved_maps.demand_one_source(args)
    build.load_plugins(args.plugin)
    data = build.open_data(scored_data.spec(args))
    if not data.classes:
        raise ConfigError(f"data '{args.data}' names no classes, so there is nothing to score.")
    source = saved(args, data) if args.predictions is not None else predicted(args, data)
    scores = source.evaluate()
    print(seg_report.table(scores))
    if source.seconds:
        print(f"{1000 * sum(source.seconds) / len(source.seconds):.1f} ms per image for the prediction.")
    if args.output is not None:
        keep(scores, args, source)
    return 0


class Source:
    """Where label maps come from.

    Attributes:
        read: index -> the sample and the ids predicted for it.
        evaluate: scores them all.
        palette: colours of the classes.
        seconds: that the model took for each image; none for saved maps.
        card: what the checkpoint says of itself.
    """

    def __init__(self, data: "Dataset", palette: "Palette", boundary: bool) -> None:
        self.data, self.palette, self.boundary = data, palette, boundary
        self.seconds: list[float] = []
        self.card: dict[str, Any] = {}
        self.read: Callable[[int], tuple[Sample, Ids]]
        self.evaluate: Callable[[], SegScores]

    def count(self, name: str, ids: "Ids", labels: "Ids | None") -> tuple[str, "Counts"]:
        """
        Raises:
            DataError: the maps do not fit each other; with the name.
        """
        import numpy as np

        from densevit.errors import DataError
        from densevit.evaluation.seg_scores import count
        from densevit.structures import IGNORE

        labels = np.full(ids.shape, IGNORE) if labels is None else labels
        try:
            return name, count(ids, labels, len(self.data.classes), boundary=self.boundary)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None


def saved(args: argparse.Namespace, data: "Dataset") -> Source:
    """The maps of a folder, read and scored in threads."""
    from tqdm import tqdm

    from densevit.data.predictions import SavedLabels
    from densevit.evaluation.evaluate import in_order
    from densevit.evaluation.seg_scores import summarise
    from densevit.ops.palette import usual_palette

    maps = SavedLabels(
        args.predictions,
        data.names,
        table=table(args.ids, data),
        suffix=args.suffix,
        manifest=args.manifest,
        allow_outside=args.allow_outside_root,
    )
    source = Source(data, data.palette or usual_palette(len(data.classes)), args.boundary)

    def read(index: int) -> tuple["Sample", "Ids"]:
        sample = data.read(index)
        return sample, maps.read(sample.name)

    def scored(index: int) -> tuple[str, "Counts"]:
        name = data.names[index]
        return source.count(name, maps.read(name), data.label_map(index))  # the image need not be decoded

    def evaluate() -> "SegScores":
        found = in_order(scored, len(data), args.workers)
        return summarise(iter(tqdm(found, desc="evaluate", unit="image", total=len(data), delay=1)), data.classes)

    source.read, source.evaluate = read, evaluate
    return source


def table(ids: str, data: "Dataset") -> "ClassTable | None":
    """What stored numbers mean; None where they are the positions of the classes.

    Raises:
        ConfigError: the data set's own ids are asked for, and it has none.
        DataError: the file is not there, or names other classes than the data.
    """
    from densevit.data.class_files import read_classes
    from densevit.errors import ConfigError, DataError

    if ids == "classes":
        return None
    if ids == "stored":
        stored: ClassTable | None = getattr(data, "table", None)
        if stored is None:
            raise ConfigError("--ids stored: this data set has no table of stored ids; leave it out.")
        return stored
    found = read_classes(Path(ids))
    if tuple(found.names) != tuple(data.classes):
        differing = [f"{a!r}, not {b!r}" for a, b in zip(found.names, data.classes, strict=False) if a != b]
        raise DataError(
            f"{ids}: names {len(found.names)} classes, the data {len(data.classes)}"
            + (f"; the first that differs is {differing[0]}." if differing else ".")
        )
    return found


def predicted(args: argparse.Namespace, data: "Dataset") -> Source:
    """A model's predictions; the next image is read while the model works."""
    from densevit import build
    from densevit.errors import ConfigError
    from densevit.evaluation.seg_scores import summarise
    from densevit.ops.palette import palette_for

    predictor = build.load(args.checkpoint, device=args.device, precision=args.precision, **family.chosen(args))
    looks.apply(args, predictor)
    head = predictor.head_for(("labels",), [args.head] if args.head else (), "eval-seg")
    spec = predictor.card.outputs[head]
    if len(spec.classes) != len(data.classes):
        raise ConfigError(f"head '{head}' tells {len(spec.classes)} classes apart; the data has {len(data.classes)}.")
    source = Source(data, data.palette or palette_for(spec), args.boundary)
    source.card = predictor.card.to_dict()

    def read(index: int) -> tuple["Sample", "Ids"]:
        sample = data.read(index)
        return sample, predictor.classes(sample.image, head)

    source.read = read
    source.evaluate = lambda: summarise(counted(source, predictor, head), data.classes)
    return source


def counted(source: Source, predictor: "Predictor", head: str) -> Iterator[tuple[str, "Counts"]]:
    """The counts of all images; those of one are made while the model works on the next."""
    from concurrent.futures import Future, ThreadPoolExecutor
    from time import perf_counter

    from tqdm import tqdm

    from densevit.data.readahead import readahead

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


def keep(scores: "SegScores", args: argparse.Namespace, source: Source) -> None:
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


def pictures(scores: "SegScores", source: Source) -> "list[SegPicture]":
    """The best, the median and the worst image, read once more."""
    from densevit.evaluation.seg_html import SegPicture

    places = {name: index for index, name in enumerate(source.data.names)}
    shown = []
    for label, name in scores.examples().items():
        sample, ids = source.read(places[name])
        assert sample.labels is not None  # or it would not have been scored
        shown.append(SegPicture(name=name, label=label, image=sample.image, labels=sample.labels, predicted=ids))
    return shown
