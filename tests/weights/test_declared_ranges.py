"""Predictions at image size stay in the range that the card declares, whatever resizing overshoots."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import seeded
import test_dinov2_family as dinov2
import test_dinov3_family as dinov3
import test_hugging_face_family as hugging_face

from densevit.weights.external import FAMILIES

Put = Callable[[str, Path], Path]
"""Writes the files of a golden."""


def dinov2_files(name: str, path: Path) -> Path:
    return dinov2.put(seeded.read(name), path)


def dinov3_files(name: str, path: Path) -> Path:
    return dinov3.put(seeded.read(name), path)


TEN = {"max_depth": 10.0}
CASES: list[tuple[str, str, Put, dict[str, Any]]] = [
    ("depth-anything-v2-metric", "depth_anything_v2_metric", seeded.saved, TEN),
    ("depth-anything-v2-hypersim", "depth_anything_v2_metric", seeded.saved, {}),
    ("depth-anything-v2-vkitti", "depth_anything_v2_metric", seeded.saved, {}),
    ("zoedepth-k", "zoedepth_k", seeded.saved, {}),
    ("dinov2-depth", "dinov2_dpt", dinov2_files, TEN),
    ("dinov2-depth-nyu", "dinov2_linear", dinov2_files, {}),
    ("dinov2-depth-kitti", "dinov2_linear4", dinov2_files, {}),
    ("dinov3-depth-linear", "dinov3_linear", dinov3_files, TEN),
    ("dinov3-chmv2", "dinov3_chmv2", dinov3_files, {}),
    ("huggingface", "hugging_face",
     lambda name, path: hugging_face.folder(name, path, hugging_face.DEPTH_ANYTHING, hugging_face.RESIZED), {}),
    ("huggingface-dpt-metric", "hugging_face_dpt",
     lambda name, path: hugging_face.folder(name, path, hugging_face.DPT, hugging_face.PADDED), TEN),
]  # fmt: skip


UNBOUNDED = {"depth-anything-3-metric", "dpt-kitti", "dpt-nyu", "zoedepth-n", "zoedepth-nk"}


def test_every_family_of_metres_is_tried() -> None:
    metric = {name for name, family in FAMILIES.components.items() if "metres" in family.description}
    assert metric <= {family for family, *_ in CASES} | UNBOUNDED


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "put", "options"), CASES, ids=[family for family, *_ in CASES])
def test_predictions_stay_in_the_declared_range(
    family: str, name: str, put: Put, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = seeded.read(name)
    lively = golden._replace(gain=300 * golden.gain)  # of a sigmoid, depth jumps between both ends
    monkeypatch.setattr(seeded, "read", lambda name: lively)
    path = put(name, tmp_path)
    if (tmp_path / "backbone.pth").exists():
        options = {**options, "backbone": tmp_path / "backbone.pth"}
    predictor = seeded.load(path, family, **options)
    low, high = predictor.card.outputs["depth"].metres
    depth = predictor(seeded.picture((61, 90)))
    assert low <= depth.min() < depth.max() <= high
