"""A data set of one's own on disk, as `folder` reads it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from densevit.data.io.writers import encode
from densevit.model_card import Palette
from densevit.structures import IGNORE, Sample
from layouts.common import put
from layouts.encoders import DEPTH_WRITERS, LABEL_WRITERS, DepthFormat, LabelFormat


def write_folder(
    root: Path,
    samples: Iterable[Sample],
    *,
    image: str = ".jpg",
    depth: DepthFormat = ".png",
    scale: float = 1000.0,
    labels: LabelFormat = "ids",
    classes: Sequence[str] = (),
    palette: Palette = (),
) -> None:
    """`images/`, `depths/`, `labels/`, `classes.json` and `intrinsics.json`; of what a sample lacks there is no file.

    Args:
        labels: how they are stored; "colours", as RGB, leaves pixels without a class black.
        classes: names of the classes; `palette` their colours.
        scale: units per metre of 16-bit PNG depth; all other formats are float32 metres.
    """
    intrinsics = {}
    for sample in samples:
        put(root / "images" / f"{sample.name}{image}", encode(image, sample.image))
        if sample.depth is not None:
            put(root / "depths" / f"{sample.name}{depth}", DEPTH_WRITERS[depth](sample.depth, scale))
        if sample.labels is not None:
            put(root / "labels" / f"{sample.name}.png", LABEL_WRITERS[labels](sample.labels, palette))
        if sample.intrinsics is not None:
            intrinsics[sample.name] = sample.intrinsics.tolist()
    if classes:
        put(root / "classes.json", json.dumps(_listed(classes, palette)).encode())
    if intrinsics:
        put(root / "intrinsics.json", json.dumps(intrinsics).encode())


def _listed(classes: Sequence[str], palette: Palette) -> list[Any]:
    if not palette:
        return list(classes)
    void = {"id": IGNORE, "name": "void", "color": (0, 0, 0), "ignore": True}
    named = zip(classes, palette, strict=True)
    return [{"id": i, "name": name, "color": colour} for i, (name, colour) in enumerate(named)] + [void]
