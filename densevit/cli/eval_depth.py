"""Score a checkpoint, or depth maps that any system saved, by the protocol of a paper."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densevit.data.dataset import Dataset
    from densevit.evaluation.protocols import Protocol
    from densevit.inference.predictor import Predictor

# What a data set is usually scored by.
USUAL = {"nyu": "nyu_eigen", "kitti": "kitti_eigen_garg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", help="a run's folder, a step folder or a model.safetensors")
    parser.add_argument("--data", required=True, metavar="NAME", help="nyu, kitti, rooms, folder, ...")
    parser.add_argument("--root", type=Path, help="the data set's folder; default: its own below $DENSEVIT_DATASETS")
    parser.add_argument("--split", help="default: test, where the data set has one")
    parser.add_argument(
        "--option", action="append", default=[], metavar="key=value", help="of the data set; repeatable"
    )
    parser.add_argument(
        "--protocol", help="nyu_eigen, kitti_eigen_garg, kitti_eigen_garg_kb, plain; default: by --data"
    )
    parser.add_argument("--predictions", type=Path, metavar="DIR", help="score the depth maps in this folder instead")
    parser.add_argument("--scale", type=float, help="stored units per metre of PNG16 predictions that do not say")
    parser.add_argument("--suffix", help="which files of --predictions to take, .png say")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write metrics.json and per_image.csv there")
    parser.add_argument("--flip", action="store_true", help="average with the mirrored image's prediction")
    parser.add_argument("--head", help="which head of a model that has several depth heads")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    parser.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "bf16", "fp16", "auto"],
        help="fp32 (default), since bf16 moves the third digit of a score; auto: bf16 where fast",
    )
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit import build
    from densevit.errors import ConfigError
    from densevit.evaluation import report
    from densevit.evaluation.evaluate import evaluate

    if (args.checkpoint is None) == (args.predictions is None):
        raise ConfigError("give either a CHECKPOINT or --predictions DIR.")
    build.load_plugins(args.plugin)
    data = build.open_data(data_spec(args))
    name = args.protocol or USUAL.get(args.data, "plain")
    if args.predictions is not None:
        protocol = build.find_protocol(name, data)
        items = saved(args, data)
    else:
        predictor = build.load(args.checkpoint, device=args.device, precision=args.precision, flip=args.flip)
        protocol = build.find_protocol(name, data, predictor.card.outputs[predictor.head(args.head)])
        items = predicted(predictor, args.head, data, protocol)
    evaluation = evaluate(items, protocol, progress=True, total=len(data))
    print(report.table(evaluation))
    if args.output is not None:
        source = {key: str(value) for key, value in vars(args).items() if value not in (None, False, [])}
        written = report.write_report(args.output, evaluation, source=source)
        print("written: " + ", ".join(map(str, written)))
    return 0


def data_spec(args: argparse.Namespace) -> dict[str, Any]:
    """The data set as a config would name it."""
    from densevit.data.dataset import DATASETS
    from densevit.document import Document
    from densevit.registry import choices, default

    document = Document({"type": args.data})
    for item in args.option:
        document.override(item)
    if args.root is not None:
        document.tree["root"] = str(args.root.absolute())
    part = DATASETS.parts.get(args.data)
    if args.split is not None:
        document.tree["split"] = args.split
    elif part is not None and default(part, "split") == "train" and "test" in choices(part, "split"):
        document.tree.setdefault("split", "test")
    return document.tree


Item = tuple[str, Any, Any, Any]


def saved(args: argparse.Namespace, data: "Dataset") -> Iterator[Item]:
    """Name, saved map, truth and mask of each image."""
    from densevit.data.predictions import SavedMaps

    maps = SavedMaps(args.predictions, data.names, scale=args.scale, suffix=args.suffix)

    def items() -> Iterator[Item]:
        for index in range(len(data)):
            sample = data.read(index)
            yield sample.name, maps.read(sample.name), sample.depth, sample.valid

    return items()


def predicted(predictor: "Predictor", head: str | None, data: "Dataset", protocol: "Protocol") -> Iterator[Item]:
    """Name, prediction, truth and mask of each image; the next is read while the model works."""
    from densevit.data.readahead import readahead

    for sample in readahead(data):
        box = protocol.input_box(*sample.image.shape[:2])
        yield sample.name, predictor(sample.image, head=head, box=box), sample.depth, sample.valid
