"""A data set of one's own on disk, as `folder` reads it."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from densevit.data.encode import DEPTH_WRITERS, DepthFormat, ImageFormat, encode
from densevit.data.layouts.put import put
from densevit.structures import Sample


def write_folder(
    root: Path,
    samples: Iterable[Sample],
    *,
    image: ImageFormat = ".jpg",
    depth: DepthFormat = ".png",
    scale: float = 1000.0,
) -> None:
    """`images/`, `depths/`, `labels/` and `intrinsics.json`; of what a sample lacks there is no file.

    Args:
        scale: units per metre of 16-bit PNG depth; all other formats are float32 metres.
    """
    intrinsics = {}
    for sample in samples:
        put(root / "images" / f"{sample.name}{image}", encode(image, sample.image))
        if sample.depth is not None:
            put(root / "depths" / f"{sample.name}{depth}", DEPTH_WRITERS[depth](sample.depth, scale))
        if sample.labels is not None:
            put(root / "labels" / f"{sample.name}.png", encode(".png", sample.labels.astype(np.uint8)))
        if sample.intrinsics is not None:
            intrinsics[sample.name] = sample.intrinsics.tolist()
    if intrinsics:
        put(root / "intrinsics.json", json.dumps(intrinsics).encode())
