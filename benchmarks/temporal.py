"""A model with motion blocks beside its image model and the stabiliser, on rendered walks, as a Markdown table:

python benchmarks/temporal.py IMAGE_MODEL TEMPORAL_MODEL --walks DIR [--head depth]

Walks: prepare_rooms.py --fps; their test scenes are scored.
"""

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import densevit
from densevit.data.datasets.rooms import Rooms
from densevit.evaluation.video.clip import VideoProtocol
from densevit.evaluation.video.metrics import temporal_alignment_error
from densevit.evaluators.video import clips_of, evaluate_video

COLUMNS = ("abs_rel", "d1", "tae", "flicker", "rtc", "scale_jitter")
RANGE = (0.1, 13.0)  # metres, of the head
STABILIZER = {"--stabilize": {"future": 6}, "--stabilize --no-fuse": {"future": 6, "fuse": False}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image_model")
    parser.add_argument("temporal_model")
    parser.add_argument("--walks", type=Path, required=True)
    parser.add_argument("--head", default="depth")
    args = parser.parse_args()
    data = Rooms(root=args.walks, split="test")
    image, temporal = (
        densevit.load(path, device="cpu", precision="fp32") for path in (args.image_model, args.temporal_model)
    )
    variants: dict[str, tuple[Any, dict[str, Any]]] = {
        "image model": (image, {}),
        **{f"image model, {name}": (image, {"stabilize": options}) for name, options in STABILIZER.items()},
        "motion blocks, windows": (temporal, {}),
        "motion blocks, causal": (temporal, {"lookahead": 0}),
        "motion blocks, windows, --stabilize": (temporal, {"stabilize": STABILIZER["--stabilize"]}),
    }
    print("| | " + " | ".join(COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|")
    for name, (predictor, options) in variants.items():
        scored = evaluate_video(
            predictor, data, VideoProtocol(range=RANGE), "none", head=args.head, pictures=False, **options
        )
        row = dict(scored.scores)
        print(f"| {name} | " + " | ".join(f"{row[column]:.4g}" for column in COLUMNS) + " |", flush=True)
    floor = [
        temporal_alignment_error(a.depth, b.depth, a.pose, b.pose, a.intrinsics, b.intrinsics)
        for indices in clips_of(data).values()
        for a, b in pairwise(data.read(i) for i in indices)
    ]
    print(f"\nTAE of the true depth of the walks: {np.mean(floor):.3g}")


if __name__ == "__main__":
    main()
