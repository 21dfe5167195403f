"""What stabilising does to depth over time, and what it costs: python benchmarks/video.py CHECKPOINT --walks DIR

Walks: prepare_rooms.py --fps. Corridor: a folder with rgb/ and depth/ (PNG16, mm). Prints a Markdown report.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
from densevit.structures import Sample

VARIANTS: dict[str, dict[str, Any] | None] = {
    "as predicted": None,
    "--stabilize": {"future": 6},
    "--stabilize --no-fuse": {"future": 6, "fuse": False},
    "--stabilize --lookahead 0": {"future": 0},
}

PIECE = 8  # frames between the cuts of a film


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
    # Films with many cuts: pieces of the walks in turn.
    pieces = [
        list(zip(samples[clip], predicted[clip], strict=True))[begin : begin + PIECE]
        for begin in range(0, min(map(len, samples.values())) - PIECE + 1, PIECE)
        for clip in samples
    ]
    draw = np.random.default_rng(0)
    film = [pair for piece in pieces for pair in piece]
    sharp = [(s, np.clip(with_errors(s.depth, draw), *limits)) for s, _ in film]
    found_sharp = {}
    for name, options in VARIANTS.items():
        stabilizer = None if options is None else Stabilizer("metric", limits=limits, **options)
        found[name] |= {"abs_rel_after_cut": score_film(film, stabilizer)["abs_rel_after_cut"]}
        found_sharp[name] = score_film(sharp, stabilizer)
    table("walks", found)
    table("true depth with errors drawn for each frame", found_sharp)
    print(f"\nTAE of the true depth of the walks: {np.mean(floor):.4f}")


def with_errors(depth: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Another scale (sd 5%) and a smooth error (sd 5%, over a tenth of the width): sharp edges that flicker."""
    smooth = cv2.GaussianBlur(draw.normal(0, 1, depth.shape).astype(np.float32), (0, 0), depth.shape[1] / 10)
    error = 0.05 * draw.normal() + 0.05 * smooth / smooth.std()
    return np.asarray(depth * np.exp(error), np.float32)


def score_film(film: list[tuple[Sample, np.ndarray]], stabilizer: Stabilizer | None) -> dict[str, float]:
    """Scores of maps with a cut before every PIECE-th frame."""
    maps = [m for _, m in film]
    if stabilizer is not None:
        maps = list(stabilize_stream(((s.image, m) for s, m in film), stabilizer))
    errors, edges, steps = [], [], []
    for number, ((s, _), m) in enumerate(zip(film, maps, strict=True)):
        errors.append(float((np.abs(m - s.depth) / np.maximum(s.depth, 1e-3))[s.valid].mean()))
        if number % 3 == 0:
            edges.append(boundary_depth_pro(m.astype(np.float64), s.depth.astype(np.float64), s.valid))
        if number % PIECE:
            before = film[number - 1][0]
            cameras = before.pose, s.pose, before.intrinsics, s.intrinsics
            steps.append(temporal_alignment_error(maps[number - 1], m, *cameras))
    return {
        "abs_rel": float(np.mean(errors)),
        "tae": float(np.mean(steps)),
        "boundary_f1": float(np.mean(edges)),
        "abs_rel_after_cut": float(np.mean(errors[PIECE::PIECE])),
    }


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
    """Peak memory of the export of a film of so many frames, stabilised; run in a process of its own.

    A stand-in for a network, so that what is measured is densevit's.
    """
    from densevit.model_card import HeadSpec, ModelCard

    class Mean(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"depth": 1 + image.mean(1, keepdim=True)}

    predictor = Predictor(Mean(), ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1), device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        write_film(Path(folder) / "film.mp4", frames)
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        densevit.export_video(predictor, Path(folder) / "film.mp4", Path(folder) / "maps", stabilize=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{frames} frames: peak {peak / 1024:.0f} MiB, {begun / 1024:.0f} MiB before the export")


def write_film(path: Path, frames: int, size: tuple[int, int] = (96, 128)) -> None:
    import av

    noise = np.random.default_rng(0).uniform(0, 255, (*size, 3)).astype(np.float32)
    base = np.clip((cv2.GaussianBlur(noise, (0, 0), 2) - 127.5) * 6 + 127.5, 0, 255).astype(np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        for i in range(frames):
            shifted = np.ascontiguousarray(np.roll(base, i, axis=1))
            out.mux(stream.encode(av.VideoFrame.from_ndarray(shifted, format="rgb24")))
        out.mux(stream.encode(None))


def export_rate(checkpoint: str, film: str) -> None:
    """Frames a second end to end, beside decoding and the model alone, by the clock and in CPU time.

    Three rounds in turn, the best of each: the machine may have other work.
    """
    predictor = densevit.load(checkpoint, device="cpu", precision="fp32")
    images = [frame.image for frame in VideoFile(Path(film)).frames()]
    predictor(images[0], head="depth")
    best: dict[str, list[float]] = {name: [np.inf, np.inf] for name in ("model alone", "export", "export, stabilised")}

    def export(stabilize: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            densevit.export_video(predictor, film, Path(folder) / "a", heads=["depth"], stabilize=stabilize)

    runs: dict[str, Callable[[], object]] = {
        "model alone": lambda: [predictor(image, head="depth") for image in images],
        "export": lambda: export(False),
        "export, stabilised": lambda: export(True),
    }
    for _ in range(3):
        for name, run in runs.items():
            clock, cpu = time.perf_counter(), time.process_time()
            run()
            best[name][0] = min(best[name][0], time.perf_counter() - clock)
            best[name][1] = min(best[name][1], time.process_time() - cpu)
    print(f"\n| {len(images)} frames | frames/s | of the model's rate | CPU ms a frame |\n|---|---|---|---|")
    alone = best["model alone"][0]
    for name, (clock, cpu) in best.items():
        rate, share = len(images) / clock, alone / clock
        print(f"| {name} | {rate:.2f} | {share:.0%} | {1000 * cpu / len(images):.1f} |")


def killed(checkpoint: str, film: str, trials: int = 3) -> None:
    """Kills an export (SIGKILL) at a random frame and resumes it; are the files the same bytes?"""
    draw = np.random.default_rng(0)
    frames = len(list(VideoFile(Path(film)).frames()))
    options = ["--stabilize", "--head", "depth", "--device", "cpu", "--precision", "fp32"]
    options += ["--format", "mp4,ffv1,npz_clip,png16"]
    command = [sys.executable, "-m", "densevit", "export-depth", checkpoint, film, *options, "--output"]
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        subprocess.run([*command, str(whole)], check=True, capture_output=True)
        wanted = contents(whole)
        for trial in range(trials):
            cut, frame = Path(folder) / f"cut{trial}", int(draw.integers(1, frames))
            process = subprocess.Popen([*command, str(cut)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and len(list(cut.glob("*/*.png"))) < frame:
                time.sleep(0.005)
            alive = process.poll() is None
            process.kill()
            process.wait()
            left = len(list(cut.glob("*/*.png")))
            subprocess.run([*command, str(cut), "--resume"], check=True, capture_output=True)
            found = contents(cut)
            others = sorted(name for name in wanted if found.get(name) != wanted[name])
            print(
                f"{'killed' if alive else 'ended before the kill'} with {left} of {frames} frames written, resumed: "
                f"{len(found)} files, not as of a whole run: {', '.join(others) or 'none'}",
                flush=True,
            )


def contents(folder: Path) -> dict[str, bytes]:
    """What an export wrote, by name; without the record of the run."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.suffix in (".mp4", ".mkv", ".npz", ".png", ".csv"))
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


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
