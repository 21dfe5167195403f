"""Depth Anything 3: the original's answers for seeded weights, metres by the camera, and files that do not fit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from seeded import gap, picture, read
from torch import Tensor

import densevit
from densevit.errors import CheckpointError, DataError
from densevit.inference.predictor import Predictor

METRIC, MONO = "depth-anything-3-metric", "depth-anything-3-mono"
FOCAL = (610.0, 590.0)  # as in benchmarks/checkpoint_cases/depth_anything_3.py


def put(folder: Path, **more: Tensor) -> Path:
    state = {f"model.{name}": tensor for name, tensor in read("depth_anything_3").state().items()}
    save_file({**state, **more}, folder / "model.safetensors")
    return folder / "model.safetensors"


def load(path: Path, family: str | None = METRIC, **options: Any) -> Predictor:
    return densevit.load(path, family, device="cpu", precision="fp32", **options)


def test_metres_are_those_of_the_original(tmp_path: Path) -> None:
    assert gap("depth_anything_3", load(put(tmp_path), focal=FOCAL)) <= 1e-4


@pytest.mark.slow
def test_metres_go_with_the_focal_length_as_the_network_sees_it(tmp_path: Path) -> None:
    # 126 x 252 becomes 252 x 504: a lens of 100 pixels has 200 there, so depth is 200 / 300 of what the network says.
    path, image = put(tmp_path), picture((126, 252))
    raw = load(path, MONO)(image)
    np.testing.assert_allclose(load(path, focal=100.0)(image), raw * 2 / 3, rtol=1e-5)
    # 125 x 252 becomes 252 x 504, too, but by 2.016 along y: (2 * 100 + 2.016 * 100) / 2 / 300.
    image = picture((125, 252))
    np.testing.assert_allclose(load(path, focal=100.0)(image), load(path, MONO)(image) * 2.008 / 3, rtol=1e-5)


def test_without_a_focal_length_the_error_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"focal=PIXELS \(--focal PIXELS\); width / \(2 tan"):
        load(put(tmp_path))(picture((60, 90)))
    with pytest.raises(DataError, match="above 0"):
        load(put(tmp_path), focal=-3.0)(picture((60, 90)))


def test_mono_and_metric_are_not_guessed_but_a_folder_tells(tmp_path: Path) -> None:
    path = put(tmp_path)
    with pytest.raises(CheckpointError, match=rf"fit several families(.|\n)*{METRIC}: (.|\n)*{MONO}: "):
        load(path, None)
    (tmp_path / "config.json").write_text(json.dumps({"model_name": "da3mono-large"}))
    assert load(tmp_path, None).card.outputs["depth"].kind == "affine"


def test_models_for_several_views_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path, **{"model.backbone.pretrained.camera_token": torch.zeros(1, 2, 64)})
    with pytest.raises(CheckpointError, match="for several views"):
        load(path)
