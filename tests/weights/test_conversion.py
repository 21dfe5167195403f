"""From layout to layout: nothing is lost, nothing is overwritten, and what cannot be held is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
import torch
from safetensors.torch import save_file

import densevit
from densevit.builder.convert import convert
from densevit.depth_corrections import Calibration
from densevit.errors import CheckpointError, ConfigError
from densevit.preprocess_config import PreprocessConfig
from densevit.weights.families.huggingface.depth_anything import DepthAnything
from densevit.weights.readers import read_tensors


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    return seeded.saved("depth_anything_v2", tmp_path)


def same(one: Path, other: Path) -> bool:
    a, b = read_tensors(one), read_tensors(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_there_and_back_through_ours_and_hugging_faces_gives_every_tensor_back(v2: Path, tmp_path: Path) -> None:
    ours, folder, back = tmp_path / "ours.safetensors", tmp_path / "folder", tmp_path / "back.pth"
    assert convert(str(v2), ours, "densevit", "depth-anything-v2") == []
    notes = convert(str(ours), folder, "huggingface")
    assert "encoder.pos_embed_interpolation is 'offset', there 'bicubic'" in notes[0]
    convert(str(folder), back, "depth-anything-v2")
    assert same(v2, back)  # those that never run, too


def test_hugging_faces_folder_comes_back_with_config_and_processor(v2: Path, tmp_path: Path) -> None:
    convert(str(v2), tmp_path / "one", "huggingface", "depth-anything-v2-hypersim")
    convert(str(tmp_path / "one"), tmp_path / "ours", "densevit")
    assert convert(str(tmp_path / "ours"), tmp_path / "two", "huggingface") == []
    assert same(tmp_path / "one" / "model.safetensors", tmp_path / "two" / "model.safetensors")
    for name in ("config.json", "preprocessor_config.json"):
        one, two = (json.loads((tmp_path / folder / name).read_text()) for folder in ("one", "two"))
        assert one == two
    assert one["ensure_multiple_of"] == 14
    config = json.loads((tmp_path / "one/config.json").read_text())
    assert (config["depth_estimation_type"], config["max_depth"]) == ("metric", 20)


@pytest.mark.parametrize(
    ("encoder", "ratio"),
    [
        ({"mlp_ratio": 4.0}, 4),
        ({"mlp_ratio": 2.0}, 2),
        ({"mlp": "swiglu_packed", "dim": 1536, "mlp_ratio": (8192 + 0.5) / 1536}, 4),  # DINOv2 ViT-g: 2 x 4096
    ],
)
def test_transformers_makes_mlps_of_as_many_channels(v2: Path, encoder: dict[str, Any], ratio: int) -> None:
    card = densevit.load(v2, "depth-anything-v2", device="cpu").card

    def written(**options: Any) -> Any:
        model = {**card.model, "encoder": {**card.model["encoder"], **encoder, **options}}
        return DepthAnything().describe(replace(card, model=model))["config.json"]["backbone_config"]

    assert written()["mlp_ratio"] == ratio
    with pytest.raises(CheckpointError, match="makes no MLPs of"):
        written(mlp_ratio=3.4)


def test_a_normalisation_of_more_digits_than_float32_is_the_same(v2: Path, tmp_path: Path) -> None:
    convert(str(v2), tmp_path / "one", "huggingface", "depth-anything-v2")
    path = tmp_path / "one/preprocessor_config.json"
    bytewise = {"do_rescale": False, "image_mean": [123.675, 116.28, 103.53], "image_std": [58.395, 57.12, 57.375]}
    path.write_text(json.dumps({**json.loads(path.read_text()), **bytewise}))
    convert(str(tmp_path / "one"), tmp_path / "ours.safetensors", "densevit")
    assert convert(str(tmp_path / "ours.safetensors"), tmp_path / "two", "huggingface") == []
    assert densevit.load(tmp_path / "two", device="cpu").card.std == pytest.approx((0.229, 0.224, 0.225))


def test_a_model_of_padded_pictures_becomes_a_folder_that_pads_and_comes_back(v2: Path, tmp_path: Path) -> None:
    first = densevit.load(v2, "depth-anything-v2", device="cpu", precision="fp32")
    first.with_options(card=replace(first.card, resize=PreprocessConfig())).save_pretrained(tmp_path / "ours")
    notes = convert(str(tmp_path / "ours"), tmp_path / "folder", "huggingface")
    assert any("heads.depth.scale is None, there 1.75" in note for note in notes)
    again = densevit.load(tmp_path / "folder", device="cpu")
    assert (again.card.resize.padding, again.card.resize.single_resize) == ("stretch", True)
    notes = convert(str(tmp_path / "folder"), tmp_path / "back.pth", "depth-anything-v2")
    assert any("heads.depth.scale is 1.75, there None" in note for note in notes)


def test_blocks_behind_the_last_tap_are_kept(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    backbone = {"model_type": "dinov2", "hidden_size": 64, "num_attention_heads": 1, "image_size": 518}
    backbone |= {"out_indices": [3, 6, 9, 11], "apply_layernorm": False}
    config = {"model_type": "depth_anything", "backbone_config": backbone}
    (tmp_path / "one" / "config.json").write_text(json.dumps(config))
    sizes = {"size": 518, "keep_aspect_ratio": True, "ensure_multiple_of": 14}
    (tmp_path / "one" / "preprocessor_config.json").write_text(json.dumps(sizes))
    state = seeded.read("hugging_face_padded").state()  # twelve blocks; the last, and a norm, never run
    save_file(state, tmp_path / "one" / "model.safetensors")
    convert(str(tmp_path / "one"), tmp_path / "ours.safetensors", "densevit")
    convert(str(tmp_path / "ours.safetensors"), tmp_path / "two", "huggingface")
    written = json.loads((tmp_path / "two" / "config.json").read_text())["backbone_config"]
    assert (written["num_hidden_layers"], written["out_indices"]) == (12, [3, 6, 9, 11])
    last = {name for name in read_tensors(tmp_path / "two" / "model.safetensors") if ".layer.11." in name}
    assert len(last) == sum(".layer.11." in name for name in state)
    densevit.load(tmp_path / "two", device="cpu")


def test_ours_predicts_as_the_file_did(v2: Path, tmp_path: Path) -> None:
    convert(str(v2), tmp_path / "ours.safetensors", "densevit", "depth-anything-v2")
    image = seeded.picture((40, 60))
    one = densevit.load(v2, "depth-anything-v2", device="cpu", precision="fp32")
    two = densevit.load(tmp_path / "ours.safetensors", device="cpu", precision="fp32")
    assert np.array_equal(one(image), two(image))
    assert one.card == two.card


def test_a_layout_that_reads_other_blocks_is_refused(v2: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"encoder.out_indices is \[2, 5, 8, 11\], there \[8, 9, 10, 11\]"):
        convert(str(v2), tmp_path / "v1.pth", "depth-anything-v1", "depth-anything-v2")
    assert not (tmp_path / "v1.pth").exists()


def test_an_architecture_that_a_layout_does_not_know_is_refused(tmp_path: Path) -> None:
    old = Path(__file__).parent / "old" / "schema_1.safetensors"
    with pytest.raises(CheckpointError, match="cannot become depth-anything-v2"):
        convert(str(old), tmp_path / "v2.pth", "depth-anything-v2")
    with pytest.raises(CheckpointError, match="not written back to the layout of"):
        convert(str(old), tmp_path / "dpt.pth", "dpt")
    with pytest.raises(CheckpointError, match="stem 'patch', not 'conv'"):
        convert("densevit:rooms", tmp_path / "v2.pth", "depth-anything-v2")


def test_a_layout_of_metres_is_written_by_its_own_name_and_only_for_its_maximum(v2: Path, tmp_path: Path) -> None:
    ours = str(tmp_path / "ours.safetensors")
    convert(str(v2), Path(ours), "densevit", "depth-anything-v2-vkitti")
    convert(ours, tmp_path / "back.pth", "depth-anything-v2-metric")
    assert same(v2, tmp_path / "back.pth")
    with pytest.raises(CheckpointError, match=r"max_depth is 80\.0, there 20\.0"):
        convert(ours, tmp_path / "hypersim.pth", "depth-anything-v2-hypersim")
    with pytest.raises(CheckpointError, match="not written back to the layout of DinoV2Depth"):
        convert(ours, tmp_path / "dino.pth", "dinov2-depth")


def test_a_calibration_that_a_layout_cannot_hold_is_said(v2: Path, tmp_path: Path) -> None:
    metric = densevit.load(v2, "depth-anything-v2-hypersim", device="cpu")
    depth = replace(metric.card.outputs["depth"], calibration=Calibration(form="scale", a=2.0))
    metric.with_options(card=replace(metric.card, outputs={"depth": depth})).save_pretrained(tmp_path / "ours")
    (note,) = convert(str(tmp_path / "ours"), tmp_path / "back.pth", "depth-anything-v2")
    assert note == "depth is calibrated (2 depth), which has no place there."


def test_nothing_is_overwritten_and_no_layout_is_guessed(v2: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(CheckpointError, match="exists already"):
        convert(str(v2), tmp_path / "there", "huggingface", "depth-anything-v2")
    with pytest.raises(ConfigError, match="no layout 'depth_anything'"):
        convert(str(v2), tmp_path / "x", "depth_anything", "depth-anything-v2")
    with pytest.raises(ConfigError, match=r"written are \.safetensors files"):
        convert(str(v2), tmp_path / "x.pth", "densevit", "depth-anything-v2")
    with pytest.raises(ConfigError, match="is a folder of config.json"):
        convert(str(v2), tmp_path / "x.safetensors", "huggingface", "depth-anything-v2")
