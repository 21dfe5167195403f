"""Depth Anything: what the originals said of seeded weights (`golden/`), and files that cannot tell or do not fit."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
import torch
from safetensors.torch import save_file
from seeded import gap, load, picture, read, saved
from torch import Tensor

import densevit
from densevit.builder.checkpoint import describe
from densevit.errors import CheckpointError, ConfigError, DataError
from densevit.inference.predictor import Predictor
from densevit.weights.describe import as_text
from densevit.weights.readers import read_tensors

CASES = {
    "depth_anything_v1": ("depth-anything-v1", {}),
    "depth_anything_v2": ("depth-anything-v2", {}),
    "depth_anything_v2_bn": ("depth-anything-v2", {}),
    "depth_anything_v2_metric": ("depth-anything-v2-metric", {"max_depth": 20}),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "depth_anything_v2")) for name in CASES],
)
def test_maps_are_the_originals(name: str, tmp_path: Path) -> None:
    family, options = CASES[name]
    assert gap(name, load(saved(name, tmp_path), family, **options)) <= 1e-4


@pytest.mark.slow
def test_v2_weights_read_as_v1_would_be_something_else(tmp_path: Path) -> None:
    assert gap("depth_anything_v2", load(saved("depth_anything_v2", tmp_path), "depth-anything-v1")) > 0.01


def test_the_card_says_kind_range_size_and_licence(tmp_path: Path) -> None:
    card = load(saved("depth_anything_v2", tmp_path), "depth-anything-v2-vkitti").card
    assert (card.outputs["depth"].kind, card.outputs["depth"].range) == ("metric", (0.0, 80.0))
    assert (card.resize.mode, card.resize.size, card.multiple) == ("lower_bound", (518, 518), 14)
    assert card.mean == (0.485, 0.456, 0.406)
    assert card.out_indices == (2, 5, 8, 11)
    assert card.trained_on == "Virtual KITTI 2"


def test_a_file_alone_cannot_tell_and_the_choices_are_listed_with_what_they_mean(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="give family=NAME") as caught:
        load(saved("depth_anything_v2", tmp_path))
    text = str(caught.value)
    names = [f"depth-anything-{name}" for name in ("v1", "v2", "v2-metric", "v2-hypersim", "v2-vkitti")]
    assert all(f"\n  {name}: Depth Anything" in text for name in names)


def lightning(path: Path, **modules: str) -> Path:
    """As Lightning saves: a module's parts by their names, under `state_dict`."""
    parts = {f"{name}.{key}": t for name, which in modules.items() for key, t in seeded.read(which).state().items()}
    torch.save(
        {"epoch": 3, "state_dict": {**parts, "loss.scale": torch.ones(1)}, "hyper_parameters": {"lr": 1.0}}, path
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["model", "student.net", "depth_model"])
def test_a_model_inside_of_lightnings_module_is_found_and_said(prefix: str, tmp_path: Path, caplog) -> None:
    path = lightning(tmp_path / "last.ckpt", **{prefix: "depth_anything_v2"})
    assert gap("depth_anything_v2", load(path, "depth-anything-v2")) <= 1e-4
    assert f"its model is under '{prefix}.'; 1 other tensors are ignored" in caplog.text
    assert f"under '{prefix}.'" in as_text(describe(path))


def test_weights_beside_those_that_are_read_are_said(tmp_path: Path, caplog) -> None:
    raw, average = {"a.weight": torch.zeros(1)}, {"a.weight": torch.ones(1)}
    torch.save({"model": raw, "model_ema": average, "optimizer": {"state": {}}}, tmp_path / "last.pth")
    assert read_tensors(tmp_path / "last.pth") == raw
    assert caplog.messages == [f"{tmp_path / 'last.pth'}: its weights are read from 'model', not from 'model_ema'."]


def test_several_models_in_one_file_and_parts_of_others_are_no_model(tmp_path: Path) -> None:
    both = lightning(tmp_path / "both.ckpt", student="depth_anything_v2", teacher="depth_anything_v1")
    with pytest.raises(CheckpointError, match="holds 2 models, under 'student.', 'teacher.'; save one of them alone"):
        densevit.load(both)
    part = lightning(tmp_path / "part.ckpt", **{"core.depth": "depth_anything_v2"})
    with pytest.raises(CheckpointError, match="of no known family"):
        densevit.load(part)


def test_a_fine_tune_without_its_maximum_is_asked_for_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"family_options\.max_depth: missing"):
        load(saved("depth_anything_v2_metric", tmp_path), "depth-anything-v2-metric")
    with pytest.raises(ConfigError, match="greater than 0"):
        load(saved("depth_anything_v2_metric", tmp_path), "depth-anything-v2-metric", max_depth=-1)


def test_unknown_families_and_files_of_others_or_damaged_are_told(tmp_path: Path) -> None:
    torch.save({"backbone.conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    torch.save({"model": Fraction(1, 2)}, tmp_path / "pickled.pth")
    path = saved("depth_anything_v2", tmp_path)
    with pytest.raises(ConfigError, match="Did you mean 'depth-anything-v2'"):
        load(path, "depth-anything-v3")
    path.write_bytes(path.read_bytes()[:-1000])
    for wrong, family, told in (
        ("other.pth", "depth-anything-v2", "not of this family, or cut short; 4 of its tensors are missing"),
        ("other.pth", None, "of no known family; its 1 tensors begin with backbone"),
        ("gone.pth", "depth-anything-v2", r"gone\.pth: no such file"),
        ("/dev/null", "depth-anything-v2", "/dev/null: no such file"),
        (path.name, "depth-anything-v2", "not a readable PyTorch file"),
        ("pickled.pth", "depth-anything-v2", "refused"),
    ):
        with pytest.raises(CheckpointError, match=told):
            load(tmp_path / wrong, family)


def test_missing_and_misshapen_tensors_are_counted_and_named(tmp_path: Path) -> None:
    gone = {f"pretrained.blocks.3.{name}.weight": None for name in ("norm1", "attn.qkv", "attn.proj", "norm2")}
    changed = {"depth_head.scratch.output_conv2.2.weight": torch.zeros(3, 32, 1, 1), "extra": torch.zeros(1)}
    with pytest.raises(CheckpointError, match="4 missing") as caught:
        load(saved("depth_anything_v2", tmp_path, **gone, **changed), "depth-anything-v2")
    text = str(caught.value)
    assert "encoder.vit.blocks.3.attn.qkv.weight" in text
    assert "1 unexpected: extra" in text
    assert "projection.after.2.weight (file [3, 32, 1, 1], model [1, 32, 1, 1])" in text


def test_a_depth_nobody_published_is_refused(tmp_path: Path) -> None:
    golden = seeded.read("depth_anything_v2").state()
    gone: dict[str, torch.Tensor | None] = {name: None for name in golden if name.startswith("pretrained.blocks.11.")}
    with pytest.raises(CheckpointError, match="11 blocks; Depth Anything V2 has 12 or 24 or 40"):
        load(saved("depth_anything_v2", tmp_path, **gone), "depth-anything-v2")


METRIC, MONO = "depth-anything-3-metric", "depth-anything-3-mono"
FOCAL = (610.0, 590.0)  # as in benchmarks/checkpoint_cases/depth_anything_3.py


def put(folder: Path, **more: Tensor) -> Path:
    state = {f"model.{name}": tensor for name, tensor in read("depth_anything_3").state().items()}
    save_file({**state, **more}, folder / "model.safetensors")
    return folder / "model.safetensors"


def load_3(path: Path, family: str | None = METRIC, **options: Any) -> Predictor:
    return densevit.load(path, family, device="cpu", precision="fp32", **options)


def test_metres_are_those_of_the_original(tmp_path: Path) -> None:
    assert gap("depth_anything_3", load_3(put(tmp_path), focal=FOCAL)) <= 1e-4


@pytest.mark.slow
def test_metres_go_with_the_focal_length_as_the_network_sees_it(tmp_path: Path) -> None:
    # 126 x 252 becomes 252 x 504: a lens of 100 pixels has 200 there, so depth is 200 / 300 of what the network says.
    path, image = put(tmp_path), picture((126, 252))
    raw = load_3(path, MONO)(image)
    np.testing.assert_allclose(load_3(path, focal=100.0)(image), raw * 2 / 3, rtol=1e-5)
    # 125 x 252 becomes 252 x 504, too, but by 2.016 along y: (2 * 100 + 2.016 * 100) / 2 / 300.
    image = picture((125, 252))
    np.testing.assert_allclose(load_3(path, focal=100.0)(image), load_3(path, MONO)(image) * 2.008 / 3, rtol=1e-5)


def test_without_a_focal_length_the_error_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"focal=PIXELS \(--focal PIXELS\); width / \(2 tan"):
        load_3(put(tmp_path))(picture((60, 90)))
    with pytest.raises(DataError, match="above 0"):
        load_3(put(tmp_path), focal=-3.0)(picture((60, 90)))


def test_mono_and_metric_are_not_guessed_but_a_folder_tells(tmp_path: Path) -> None:
    path = put(tmp_path)
    with pytest.raises(CheckpointError, match=rf"fit several families(.|\n)*{METRIC}: (.|\n)*{MONO}: "):
        load_3(path, None)
    (tmp_path / "config.json").write_text(json.dumps({"model_name": "da3mono-large"}))
    assert load_3(tmp_path, None).card.outputs["depth"].kind == "affine"


def test_models_for_several_views_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path, **{"model.backbone.pretrained.camera_token": torch.zeros(1, 2, 64)})
    with pytest.raises(CheckpointError, match="for several views"):
        load_3(path)
