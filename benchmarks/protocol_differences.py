"""Scores one made-up prediction of real frames under every protocol that applies, and draws the regions they count.

    benchmarks/protocol_differences.py SAMPLES [--drawing docs/protocol_regions.svg]

SAMPLES holds `nyu_v2/depth/*.png` and `kitti/depth/*.png`. The prediction is the truth, filled in, blurred, bent by
20%, at half the resolution that the protocol shows the network: nothing but the protocol differs between the lines.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from densevit.data.io.readers import read_depth
from densevit.evaluation.depth.published_protocols import PROTOCOLS, Protocol, applicable
from densevit.evaluation.depth.scores import Item, evaluate
from densevit.utils.atomic_io import write_text

METRICS = ("abs_rel", "rmse", "silog", "log10", "d1")
DRAWN = {
    "kitti": (
        375,
        1242,
        {"plain": "#9aa5b1", "kitti_eigen_garg": "#2563c4", "kitti_eigen_garg_kb": "#d9480f", "kitti_eigen": "#2b8a3e"},
    ),
    "nyu": (480, 640, {"plain": "#9aa5b1", "nyu_eigen": "#2563c4"}),
}


def guess(truth: np.ndarray) -> np.ndarray:
    """Positive everywhere, smooth, wrong by up to 20%."""
    known = (truth > 0).astype(np.float32)
    filled = cv2.GaussianBlur(truth, (0, 0), 12) / np.maximum(cv2.GaussianBlur(known, (0, 0), 12), 1e-6)
    filled = np.where(filled > 0, filled, truth[truth > 0].mean())
    y, x = np.indices(truth.shape)
    return (filled * (1.03 + 0.12 * np.sin(y / 40) + 0.05 * np.cos(x / 60))).astype(np.float32)


def items(paths: list[Path], scale: float, protocol: Protocol) -> Iterator[Item]:
    for path in paths:
        truth = read_depth(path, scale)
        prediction = guess(truth)
        box = protocol.input_box(*truth.shape)
        if box is not None:
            prediction = prediction[box[0] : box[1], box[2] : box[3]]
        h, w = prediction.shape
        half = cv2.resize(prediction, (w // 2, h // 2), interpolation=cv2.INTER_AREA)
        inverse = protocol.inverts or protocol.compared_as == "disparity"
        yield path.stem, (1 / half if inverse else half), truth, truth > 0


def table(data: str, paths: list[Path], scale: float, far: float) -> Iterator[str]:
    size = read_depth(paths[0], scale).shape
    yield "| protocol | pixels | " + " | ".join(METRICS) + " |"
    yield "|---" * (len(METRICS) + 2) + "|"
    for name in [row.name for row in applicable(data, (size[0], size[1]), "metric", (1e-3, far))]:
        protocol = PROTOCOLS[name].for_range(1e-3, far)
        found = evaluate(items(paths, scale, protocol), protocol)
        values = " | ".join(f"{found.mean[metric]:.4f}" for metric in METRICS)
        yield f"| `{name}` | {found.counts['pixels']:,} | {values} |"


def drawing() -> str:
    """Every frame at its size, one unit a pixel, with the boxes that count."""
    body, top = [], 20
    for data, (h, w, rows) in DRAWN.items():
        body.append(f'<text x="20" y="{top}">{data}, {h} x {w}</text>')
        for i, (name, colour) in enumerate(rows.items()):
            y0, y1, x0, x1 = PROTOCOLS[name].score_box(h, w)
            body.append(
                f'<rect x="{20 + x0}" y="{top + 10 + y0}" width="{x1 - x0}" height="{y1 - y0}" fill="{colour}" '
                f'fill-opacity="0.12" stroke="{colour}" stroke-width="2"/>'
            )
            label = f"{name}: rows {y0}:{y1}, columns {x0}:{x1}"
            body.append(f'<text x="{30 + x0}" y="{top + 32 + y0 + 24 * i}" fill="{colour}">{label}</text>')
        if "kitti" in data:
            y0, y1, x0, x1 = PROTOCOLS["kitti_eigen_garg"].input_box(h, w) or (0, h, 0, w)
            body.append(
                f'<rect x="{20 + x0}" y="{top + 10 + y0}" width="{x1 - x0}" height="{y1 - y0}" fill="none" '
                f'stroke="#868e96" stroke-dasharray="8 6"/><text x="{30 + x0}" y="{top + y1}" fill="#868e96">'
                f"benchmark window: rows {y0}:{y1}, columns {x0}:{x1}</text>"
            )
        top += h + 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1282 {top}" font-family="sans-serif" font-size="18">'
        f'<rect width="1282" height="{top}" fill="#fff"/>{"".join(body)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--drawing", type=Path)
    args = parser.parse_args()
    for data, folder, scale, far in (("nyu", "nyu_v2", 1000, 10.0), ("kitti", "kitti", 256, 80.0)):
        print(f"\n{data}\n")
        print("\n".join(table(data, sorted(args.samples.glob(f"{folder}/depth/*.png")), scale, far)))
    if args.drawing is not None:
        write_text(args.drawing, drawing())


if __name__ == "__main__":
    main()
