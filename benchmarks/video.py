"""What stabilising does to depth over time, and what it costs: python benchmarks/video.py CHECKPOINT --walks DIR

Walks: prepare_rooms.py --fps. Corridor: a folder with rgb/ and depth/ (PNG16, mm). Prints a Markdown report.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

import densevit
from densevit.data.datasets.folder import Folder
from densevit.data.datasets.rooms import Rooms
from densevit.data.io.video import VideoFile
from densevit.evaluation.depth.boundary_f1 import boundary_depth_pro
from densevit.evaluation.video.clip import VideoProtocol
from densevit.evaluation.video.metrics import temporal_alignment_error
from densevit.evaluators.video import clips_of, evaluate_films, evaluate_video
from densevit.inference.predictor import Predictor
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream

VARIANTS: dict[str, dict[str, Any] | None] = {
    "as predicted": None,
    "--stabilize": {"future": 6},
    "--stabilize --fuse": {"future": 6, "fuse": True},
    "--stabilize --fuse --lookahead 0": {"future": 0, "fuse": True},
}


def row(name: str, scores: dict[str, float], columns: list[str]) -> str:
    return f"| {name} | " + " | ".join(f"{scores[c]:.4f}" if c in scores else "" for c in columns) + " |"


def table(title: str, rows: dict[str, dict[str, float]]) -> None:
    columns = list(dict.fromkeys(column for scores in rows.values() for column in scores))
    print(f"\n| {title} | " + " | ".join(columns) + " |\n|---" + "|---" * len(columns) + "|")
    for name, scores in rows.items():
        print(row(name, scores, columns))


def walks(predictor: Predictor, root: Path, output: Path) -> None:
    """TAE and accuracy; boundaries; the first frame after a cut; and the TAE of true depth."""
    data = Rooms(root=root, split="test")
    protocol = VideoProtocol(range=(0.01, 13.1))
    found = {}
    for name, options in VARIANTS.items():
        scored = evaluate_video(predictor, data, protocol, "none", head="depth", stabilize=options)
        scored.write_report(output / name.replace(" ", "").replace("--", "-"), title=name, source={})
        found[name] = dict(scored.scores)
    samples = {name: [data.read(i) for i in indices] for name, indices in clips_of(data).items()}
    floor = [
        temporal_alignment_error(a.depth, b.depth, a.pose, b.pose, a.intrinsics, b.intrinsics)
        for clip in samples.values()
        for a, b in pairwise(clip)
    ]
    predicted = {name: [np.asarray(predictor(s.image, head="depth")) for s in clip] for name, clip in samples.items()}
    limits = predictor.card.outputs["depth"].range
    for name, options in VARIANTS.items():
        edges, cuts = [], []
        film = [(s, m) for clip in samples for s, m in zip(samples[clip], predicted[clip], strict=True)]
        maps = [m for _, m in film]
        if options is not None:
            stabilizer = Stabilizer("metric", limits=limits, **options)
            maps = list(stabilize_stream(((s.image, m) for s, m in film), stabilizer))  # with a cut between the walks
        begins = np.cumsum([len(clip) for clip in samples.values()])[:-1]
        for number, ((s, _), m) in enumerate(zip(film, maps, strict=True)):
            if number in begins:
                cuts.append(float((np.abs(m - s.depth) / np.maximum(s.depth, 1e-3))[s.valid].mean()))
            if number % 6 == 0:
                edges.append(boundary_depth_pro(m.astype(np.float64), s.depth.astype(np.float64), s.valid))
        found[name] |= {"boundary_f1": float(np.mean(edges)), "abs_rel_after_cut": float(np.mean(cuts))}
    table("walks", found)
    print(f"\nTAE of the true depth of the walks: {np.mean(floor):.4f}")


def corridor(predictor: Predictor, root: Path, output: Path) -> None:
    data = Folder(root=root, images="rgb", depths="depth", depth_scale=1000.0)
    found = {}
    for name, options in VARIANTS.items():
        scored = evaluate_video(
            predictor, data, VideoProtocol(range=(0.1, 10.0)), "scale", head="depth", stabilize=options
        )
        scored.write_report(output / f"corridor{name.replace(' ', '').replace('--', '-')}", title=name, source={})
        found[name] = dict(scored.scores)
    table("corridor (one scale per clip)", found)


def films(predictor: Predictor, paths: list[str], output: Path) -> None:
    for variant, options in VARIANTS.items():
        scored = evaluate_films(predictor, paths, head="depth", stabilize=options)
        scored.write_report(output / f"films{variant.replace(' ', '').replace('--', '-')}", title=variant, source={})
        table(f"films, {variant}", dict(scored.clips))


def cost(size: tuple[int, int] = (480, 640)) -> None:
    """CPU time of the stabiliser for a frame, on one thread."""
    cv2.setNumThreads(1)
    draw = np.random.default_rng(0)
    big = cv2.GaussianBlur(draw.uniform(0, 255, (size[0], size[1] + 200, 3)).astype(np.float32), (0, 0), 4)
    big = ((big - big.mean()) * 8 + 128).clip(0, 255).astype(np.uint8)
    frames = [(big[:, 4 * i : 4 * i + size[1]].copy(), draw.uniform(1, 5, size).astype(np.float32)) for i in range(30)]
    for name, options in list(VARIANTS.items())[1:]:
        stabilizer = Stabilizer("metric", **options)  # type: ignore[arg-type]
        for image, depth in frames[:15]:
            stabilizer.push(image, depth)
        begun = time.process_time()
        for image, depth in frames[15:]:
            stabilizer.push(image, depth)
        print(f"{name}: {1000 * (time.process_time() - begun) / 15:.1f} ms CPU time a {size[1]}x{size[0]} frame")


def memory(frames: int) -> None:
    """Peak memory of a stream of so many frames through a stand-in for a network; run in a process of its own."""
    from densevit.model_card import HeadSpec, ModelCard

    class Mean(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"depth": 1 + image.mean(1, keepdim=True)}

    predictor = Predictor(Mean(), ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1), device="cpu")
    base = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)

    def camera() -> Iterator[np.ndarray]:
        for i in range(frames):
            yield np.roll(base, i, axis=1)

    for _ in predictor.stream(camera(), stabilize=True, lookahead=6):
        pass
    print(f"{frames} frames: peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def export_rate(checkpoint: str, film: str) -> None:
    """Frames a second end to end, beside the model alone; and a killed export resumed to the same bytes."""
    predictor = densevit.load(checkpoint, device="cpu", precision="fp32")
    images = [frame.image for frame in VideoFile(Path(film)).frames()]
    predictor(images[0], head="depth")
    begun = time.perf_counter()
    for image in images:
        predictor(image, head="depth")
    alone = len(images) / (time.perf_counter() - begun)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        densevit.export_video(predictor, film, Path(folder) / "a", heads=["depth"])
        whole = len(images) / (time.perf_counter() - begun)
    print(f"model alone {alone:.2f} frames/s, export of mp4 and ffv1 end to end {whole:.2f} ({whole / alone:.0%})")


def killed(checkpoint: str, film: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "densevit",
            "export-depth",
            checkpoint,
            film,
            "--stabilize",
            "--fuse",
            "--head",
            "depth",
        ]
        command += ["--head", "depth", "--device", "cpu", "--precision", "fp32", "--output"]
        subprocess.run([*command, f"{folder}/whole"], check=True, capture_output=True)
        process = subprocess.Popen([*command, f"{folder}/cut"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        work = Path(folder) / "cut" / f".{Path(film).stem}.parts/progress.json"
        while process.poll() is None and not work.exists():
            time.sleep(0.05)
        process.kill()
        process.wait()
        subprocess.run([*command, f"{folder}/cut", "--resume"], check=True, capture_output=True)
        names = sorted(p.name for p in (Path(folder) / "whole").iterdir())
        same = all((Path(folder) / "cut" / n).read_bytes() == (Path(folder) / "whole" / n).read_bytes() for n in names)
        print(f"killed (SIGKILL) after the first segment and resumed: {', '.join(names)}: the same bytes: {same}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--walks", type=Path)
    parser.add_argument("--corridor", type=Path)
    parser.add_argument("--films", nargs="+")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--rate", metavar="FILM")
    parser.add_argument("--killed", metavar="FILM")
    parser.add_argument("--variant", choices=list(VARIANTS), help="only this one")
    parser.add_argument("--output", type=Path, default=Path("video_report"))
    args = parser.parse_args()
    for name in list(VARIANTS):
        if args.variant not in (None, name):
            del VARIANTS[name]
    if args.cost:
        cost()
    if args.memory:
        memory(args.memory)
    if args.checkpoint is None:
        return
    if args.rate:
        export_rate(args.checkpoint, args.rate)
    if args.killed:
        killed(args.checkpoint, args.killed)
    predictor = densevit.load(args.checkpoint, device="cpu", precision="fp32")
    if args.walks:
        walks(predictor, args.walks, args.output)
    if args.corridor:
        corridor(predictor, args.corridor, args.output)
    if args.films:
        films(predictor, args.films, args.output)


if __name__ == "__main__":
    main()
