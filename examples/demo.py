"""The whole of densevit in a few minutes, offline: make rooms, train, evaluate, export, report; depth and classes.

    make demo        or        python examples/demo.py --output demo

Every step prints the command that does the same. The data are synthetic (rendered rooms), so the score says how well
the chain works, and nothing about photographs.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # before torch is imported, as commands do

import numpy as np
from jaxtyping import Float32, Int64
from markupsafe import Markup

import densevit
from densevit.cli.main import main as command
from densevit.data.datasets.base import Dataset, open_dataset
from densevit.data.loading.prefetch import prefetch, prefetch_samples
from densevit.engine.logger import read_csv
from densevit.evaluation.depth.published_protocols import find_protocol
from densevit.evaluation.depth.scores import DepthScores, evaluate
from densevit.evaluation.segmentation.scores import SegScores, count, summarise
from densevit.inference.predictor import Predictor
from densevit.reporting.figures import Figure, depth_figure, segmentation_figure
from densevit.reporting.html_page import line_chart
from densevit.scorers.baselines import median_depth_map
from densevit.structures import Sample

CONFIG = Path(__file__).parents[1] / "configs/multitask/rooms.yaml"
SCENES = {"train": 340, "val": 8, "test": 24}
FRAMES = 8  # per scene
CORES = min(16, os.cpu_count() or 1)
SIZE = (128, 160)  # h, w


@contextmanager
def timed(times: dict[str, float], what: str) -> Iterator[None]:
    print(f"\n== {what}", flush=True)
    begun = time.monotonic()
    yield
    times[what] = time.monotonic() - begun


def call(*words: str) -> None:
    print("$ densevit " + " ".join(words), flush=True)
    code = command(words)
    if code:
        sys.exit(code)


def make_rooms(root: Path) -> None:
    from densevit_rooms import generate

    scenes = " ".join(f"--{split}-scenes {count}" for split, count in SCENES.items())
    options = f"--frames {FRAMES} --size {SIZE[0]}x{SIZE[1]} --mount robot --workers {CORES}"
    print(f"$ python datasets/prepare_rooms.py --root {root} {scenes} {options}", flush=True)
    generate(root, SCENES, frames=FRAMES, size=SIZE, mount="robot", workers=CORES)


class Predicted(NamedTuple):
    """A test image with both predictions of one pass through the model."""

    sample: Sample
    depth: Float32[np.ndarray, "h w"]
    classes: Int64[np.ndarray, "h w"]


def predict(predictor: Predictor, test: Dataset) -> dict[str, Predicted]:
    """By the name of the sample."""
    samples = list(prefetch_samples(test))
    maps = predictor.stream_all(sample.image for sample in samples)
    return {s.name: Predicted(s, m["depth"], m["labels"].argmax(0)) for s, m in zip(samples, maps, strict=True)}


def evaluate_constant_map(train: Dataset, predicted: dict[str, Predicted], protocol: Any) -> DepthScores:
    """The baseline: the per-pixel median of the training depths, for every image."""
    depths = list(prefetch(train.depth_map, range(len(train)), threads=CORES, ahead=4 * CORES))
    median = median_depth_map(depths, [depth > 0 for depth in depths])
    return evaluate(((name, median, p.sample.depth, p.sample.valid) for name, p in predicted.items()), protocol)


def depth_figures(predicted: dict[str, Predicted], evaluation: DepthScores) -> Iterator[Figure]:
    """The best, the median and the worst image."""
    scores = dict(evaluation.rows)
    for label, name in evaluation.examples().items():
        sample, depth, _ = predicted[name]
        assert sample.depth is not None and sample.valid is not None
        yield depth_figure(
            name=name,
            label=label,
            score=f"AbsRel {scores[name]['abs_rel']:.4f}",
            image=sample.image,
            depth=sample.depth,
            valid=sample.valid,
            prediction=depth,
        )


def segmentation_figures(predicted: dict[str, Predicted], test: Dataset, scores: SegScores) -> Iterator[Figure]:
    """The best, the median and the worst image."""
    accuracy = {name: row["pixel_accuracy"] for name, row in scores.rows}
    for label, name in scores.examples().items():
        sample, _, classes = predicted[name]
        assert sample.labels is not None
        yield segmentation_figure(
            name=f"{name}, classes",
            label=label,
            score=f"pixel accuracy {accuracy[name]:.4f}",
            image=sample.image,
            labels=sample.labels,
            predicted=classes,
            classes=scores.classes,
            palette=test.palette,
        )


def segmentation_sections(predicted: dict[str, Predicted], test: Dataset, scores: SegScores) -> Markup:
    """The page's sections about the second task."""
    return scores.sections(list(segmentation_figures(predicted, test, scores)), "Segmentation: ")


def curves(run: Path) -> list[Markup]:
    train, val = read_csv(run / "train.csv"), read_csv(run / "val.csv")
    return [
        line_chart("training loss", [(row["step"], row["loss"]) for row in train]),
        line_chart("validation AbsRel", [(row["step"], row["depth/abs_rel"]) for row in val]),
        line_chart("validation mIoU", [(row["step"], row["labels/miou"]) for row in val]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo"))
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the training, steps=200 say")
    args = parser.parse_args()
    output: Path = args.output.absolute()
    rooms, run, times = output / "rooms", output / "run", {}
    for old in (run, output / "eval", output / "eval_classes", output / "maps"):
        shutil.rmtree(old, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)

    with timed(times, "make rooms"):
        make_rooms(rooms)
    with timed(times, "train"):
        roots = [f"data.{part}.root={rooms}" for part in ("train", "val")]
        call("train", str(CONFIG), f"output={run}", *roots, *args.overrides)
    with timed(times, "evaluate"):
        data = ["--data", "rooms", "--root", str(rooms)]
        call("eval", str(run), "--task", "depth", *data, "--output", str(output / "eval"))
        call("eval", str(run), "--task", "segmentation", *data, "--output", str(output / "eval_classes"))
    with timed(times, "export"):
        images = str(rooms / "test/scene_00000/rgb_*.jpg")
        call(
            "predict",
            str(run),
            images,
            "--output",
            str(output / "maps"),
            "--formats",
            "png16,color,ply,labels,overlay",
            "--fov",
            "60",
        )
    with timed(times, "report"):
        test = open_dataset({"type": "rooms", "root": str(rooms), "split": "test"})
        train = open_dataset({"type": "rooms", "root": str(rooms), "split": "train"})
        predicted = predict(densevit.load(run, precision="fp32", batch_size=16), test)
        protocol = find_protocol("plain", test.depth_range)
        ours = evaluate(((name, p.depth, p.sample.depth, p.sample.valid) for name, p in predicted.items()), protocol)
        constant = evaluate_constant_map(train, predicted, protocol)
        counts = ((name, count(p.classes, p.sample.labels, len(test.classes))) for name, p in predicted.items())
        classes = summarise(counts, test.classes, test.palette)
    page = ours.write_page(
        output / "report.html",
        title="densevit demo",
        subtitle="A small ViT trained from scratch on synthetic rooms, for depth and for the class of each pixel, "
        "and scored on rooms it has not seen.",
        cards=[*ours.cards(), *classes.cards()[:1]],
        baseline=constant.mean,
        curves=curves(run),
        figures=list(depth_figures(predicted, ours)),
        further=segmentation_sections(predicted, test, classes),
        times=times,
        config=(run / "config.yaml").read_text(),
    )
    mine, theirs = ours.mean["abs_rel"], constant.mean["abs_rel"]
    print(f"\nAbsRel on unseen rooms: model {mine:.4f}, best constant map {theirs:.4f}, ratio {mine / theirs:.2f}")
    print(f"mIoU on unseen rooms, from the same pass: {classes.mean['miou']:.4f} over {len(test.classes)} classes")
    print(f"time: {sum(times.values()):.0f} s (" + ", ".join(f"{k} {v:.0f}" for k, v in times.items()) + ")")
    print(f"report: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
