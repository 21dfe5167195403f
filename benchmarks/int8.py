"""Int8 on a CPU: speed of a ViT-S/14 with DPT at 518 x 518, and scores of a trained model.

    python benchmarks/int8.py --depth-anything CLONE --run RUN --rooms ROOMS [--rounds 5]

It writes benchmarks/DATE-int8.md.

Speed: random weights, in turns, in processor seconds of one thread, which other programs do not stretch. Scores: the
model of `examples/demo.py` on its test rooms, by ONNX Runtime and by OpenVINO.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from densevit.api.evaluation import score
from densevit.api.quantize import as_input, calibration_images
from densevit.benchmark.reference_models import depth_anything
from densevit.benchmark.timing import Spread, speedup, time_interleaved
from densevit.builder.checkpoint import restore
from densevit.data.datasets.base import open_dataset
from densevit.inference.backends.onnx_runtimes import RUNTIMES
from densevit.inference.onnx.export import check_options, export_onnx
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.onnx.quantize import RECIPES, quantize
from densevit.inference.predictor import Predictor
from densevit.utils.precision import Precision

SIDE, GOAL, BUDGET = 518, 7.0, 0.005
REFERENCE = "Depth Anything V2, reference, torch fp32"
FLOAT = "no layer in int8"
PROGRAMS = {"ONNX Runtime": ("onnxruntime", "fp32"), "OpenVINO, rest bf16": ("openvino", "bf16")}


def int8_files(path: Path, images: list[np.ndarray]) -> dict[str, Path]:
    files = {FLOAT: path}
    for index, recipe in enumerate(RECIPES):
        files[recipe] = path.with_name(f"{index}.onnx")
        quantize(path, files[recipe], recipe, images, {})
    return files


def opened(files: dict[str, Path]) -> dict[str, Callable[..., list[np.ndarray]]]:
    return {
        f"{program}: {recipe}": RUNTIMES[name].open(path, precision)  # type: ignore[arg-type]
        for program, (name, precision) in PROGRAMS.items()
        for recipe, path in files.items()
    }


def speed(clone: Path, rounds: int) -> list[str]:
    reference = depth_anything("small", clone)
    draw: Any = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        model, card = restore(reference.save(reference.module, Path(folder)), reference.family)
        wanted = OnnxExportOptions(size=(SIDE, SIDE), network=True)
        export_onnx(model, card, Path(folder) / "net.onnx", wanted)
        smooth = torch.nn.functional.interpolate(
            torch.from_numpy(draw.random((8, 3, 32, 32), dtype=np.float32)), (SIDE, SIDE), mode="bilinear"
        )
        images = [image[None].numpy() for image in smooth]
        runs = opened(int8_files(Path(folder) / "net.onnx", images))
        works: dict[str, Callable[[], object]] = {REFERENCE: partial(inferred, reference, smooth[:1])}
        precisions: tuple[Precision, ...] = ("fp32", "bf16")
        for precision in precisions:
            packed = Predictor(deepcopy(model), card, device="cpu", precision=precision).model
            works[f"densevit, torch {precision}"] = partial(by_torch, packed, smooth[:1], precision)
        works |= {name: partial(run, images[0]) for name, run in runs.items()}
        seconds = time_interleaved(works, rounds, timer=processor_time)
    rows = ["| | processor seconds an image | times the reference |", "|---|---|---|"]
    for name in works:
        ratio, own = speedup(seconds, name, REFERENCE), Spread.of(seconds[name]).middle
        rows.append(f"| {name} | {own:.3f} | {ratio.middle:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) |")
    best = max(speedup(seconds, name, REFERENCE).middle for name in works)
    rows += ["", f"Goal: {GOAL:g} times the reference. Best here: {best:.2f}."]
    return rows


@torch.inference_mode()
def inferred(module: Callable[..., object], image: torch.Tensor) -> object:
    return module(image)


@torch.inference_mode()
def by_torch(model: Callable[..., object], image: torch.Tensor, precision: str) -> object:
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        return model(image)


def processor_time(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def scores(run: Path, rooms: Path) -> list[str]:
    data = open_dataset({"type": "rooms", "root": str(rooms), "split": "test"})
    model, card = restore(run)
    h, w = data.read(0).image.shape[:2]
    card, options = check_options(card, OnnxExportOptions(size=(h, w)))
    rows = [f"| {len(data)} images of {h} x {w} | d1 | AbsRel | mIoU | loss of d1 |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(model, card, path, options)
        files = int8_files(path, calibration_images(data, options))
        first = None
        places = [list(card.outputs).index(head) for head in ("depth", "labels")]
        for name, found in opened(files).items():
            maps = [found(as_input(data.read(i).image, options)) for i in range(len(data))]
            depths, logits = ([outputs[place][0] for outputs in maps] for place in places)
            depth = score([y[0] for y in depths], data, "rooms", task="depth").scores
            ids = [y.argmax(0) for y in logits]
            labels = score(ids, data, "rooms", task="segmentation", boundary=False).scores
            first = depth["d1"] if first is None else first
            values = (depth["d1"], depth["abs_rel"], labels["miou"], first - depth["d1"])
            rows.append(f"| {name} | " + " | ".join(f"{value:.4f}" for value in values) + " |")
    return [*rows, "", f"Budget: {BUDGET:g} of d1."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth-anything", type=Path, required=True, metavar="CLONE")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    today = datetime.now(UTC).date()
    programs = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnxruntime", "openvino", "nncf"))
    found_scores = scores(args.run, args.rooms)
    print("\n".join(found_scores), flush=True)
    found_speed = speed(args.depth_anything, args.rounds)
    print("\n".join(found_speed), flush=True)
    page = [
        "# Int8 on a CPU",
        "",
        f"{today}; 2 CPU cores, AVX512-BF16 and VNNI, other programs beside; {programs}.",
        "",
        "```",
        f"python benchmarks/int8.py --depth-anything Depth-Anything-V2 --run demo/run --rooms demo/rooms "
        f"--rounds {args.rounds}",
        "```",
        "",
        "## Speed",
        f"ViT-S/14 with DPT, one image of {SIDE} x {SIDE}, random weights, the network alone, {args.rounds} rounds in",
        "turns: median, and the quartiles of the ratio in a round. One thread; processor seconds.",
        "",
        *found_speed,
        "",
        "## Accuracy",
        "The model of `examples/demo.py` on its test rooms; 32 of the images calibrate (without their ground truth).",
        "",
        *found_scores,
        "",
    ]
    (Path(__file__).parent / f"{today}-int8.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
