"""Folders of transformers: what its models said of seeded weights (`golden/`), configs and processors old and new."""

import json
from pathlib import Path
from typing import Any

import pytest
import seeded
import torch
from safetensors.torch import save_file

import densevit
from densevit.errors import CheckpointError

DINOV2 = {"model_type": "dinov2", "hidden_size": 64, "num_attention_heads": 1, "image_size": 518}
DEPTH_ANYTHING = {
    "model_type": "depth_anything",
    "backbone_config": {**DINOV2, "out_indices": [3, 6, 9, 12]},
    "depth_estimation_type": "metric",
    "max_depth": 20,
}
DPT = {
    "model_type": "dpt",
    "backbone_config": {**DINOV2, "out_features": ["stage3", "stage6", "stage9", "stage12"], "apply_layernorm": False},
    "add_projection": True,
    "use_bias_in_fusion_residual": False,
}
RESIZED = {
    "image_processor_type": "DPTImageProcessor", "size": {"height": 518, "width": 518}, "ensure_multiple_of": 14,
    "keep_aspect_ratio": True, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}  # fmt: skip
PADDED = {
    "image_processor_type": "DPTImageProcessorFast", "do_resize": False, "do_rescale": False, "do_pad": True,
    "size_divisor": 14, "image_mean": [123.675, 116.28, 103.53], "image_std": [58.395, 57.12, 57.375],
}  # fmt: skip


def folder(name: str, path: Path, config: dict[str, Any], processor: dict[str, Any] | None, old: bool = False) -> Path:
    state = seeded.read(name).state()
    if old:
        state = {in_files(key): tensor for key, tensor in state.items()}
    save_file(state, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    if processor is not None:
        (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return path


def in_files(name: str) -> str:
    """The older name of attention, which files have."""
    for new, old in (("q", "query"), ("k", "key"), ("v", "value")):
        name = name.replace(f".attention.{new}_proj.", f".attention.attention.{old}.")
    return name.replace(".attention.o_proj.", ".attention.output.dense.")


def check(name: str, path: Path, family: str | None = None, **options: object) -> densevit.Predictor:
    predictor = seeded.load(path, family, **options)
    assert seeded.gap(name, predictor) <= 1e-4
    return predictor


@pytest.mark.parametrize("old", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_depth_anything_gives_transformers_metres_under_old_and_new_names(old: bool, tmp_path: Path) -> None:
    card = check("hugging_face", folder("hugging_face", tmp_path, DEPTH_ANYTHING, RESIZED, old)).card
    assert (card.outputs["depth"].kind, card.outputs["depth"].range) == ("metric", (0.0, 20.0))
    assert card.out_indices == (2, 5, 8, 11)


def test_dpt_on_dinov2_gives_transformers_metres_through_padding(tmp_path: Path) -> None:
    path = folder("hugging_face_dpt", tmp_path, DPT, PADDED)
    card = check("hugging_face_dpt", path, "huggingface-dpt-metric").card  # no upper bound, as in transformers
    assert (card.outputs["depth"].kind, card.outputs["depth"].range) == ("metric", None)
    assert card.resize.padding == "stretch"
    assert card.mean == pytest.approx((0.485, 0.456, 0.406))  # of bytes, by 255


SMALL_DPT = {
    "model_type": "dpt",
    "backbone_config": {**DINOV2, "out_indices": [3, 6, 9, 11]},
    "neck_hidden_sizes": [8, 16, 32, 64],
    "fusion_hidden_size": 64,
}
CLASSES = {
    **SMALL_DPT, "backbone_config": None, "hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256,
    "image_size": 96, "use_batch_norm_in_fusion_residual": True,
    "id2label": {"0": "wall", "1": "floor", "2": "door", "3": "lamp"},
}  # fmt: skip
STRETCHED = {"size": {"height": 96, "width": 96}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def test_metres_are_clipped_only_on_request(tmp_path: Path) -> None:
    path = folder("hugging_face_dpt", tmp_path, DPT, PADDED)
    image = seeded.picture((60, 90))
    free, clipped = (
        densevit.load(path, "huggingface-dpt-metric", family_options=options)(image)
        for options in ({}, {"max_depth": 1.0})
    )
    assert free.max() > 1.05
    assert clipped.max() <= 1.05  # bicubic resizing overshoots


@pytest.mark.parametrize("family", ["huggingface-dpt", "huggingface-dpt-metric"])
def test_dpt_whose_map_has_16_pixels_for_a_patch_of_14_is_stretched_once(family: str, tmp_path: Path) -> None:
    check("hugging_face_dpt_relative", folder("hugging_face_dpt_relative", tmp_path, SMALL_DPT, RESIZED), family)


def test_dpt_with_a_fusion_width_under_twice_the_heads_is_transformers(tmp_path: Path) -> None:
    config = {**SMALL_DPT, "fusion_hidden_size": 48}
    check("hugging_face_dpt_narrow", folder("hugging_face_dpt_narrow", tmp_path, config, RESIZED), "huggingface-dpt")


def test_depth_anything_is_read_through_padding_with_blocks_and_a_norm_that_never_run(tmp_path: Path) -> None:
    backbone = {**DINOV2, "out_indices": [3, 6, 9, 11], "apply_layernorm": False}
    config = {**DEPTH_ANYTHING, "backbone_config": backbone, "depth_estimation_type": "relative", "max_depth": 1}
    padded = {**RESIZED, "do_resize": False, "do_pad": True, "size_divisor": 14}
    check("hugging_face_padded", folder("hugging_face_padded", tmp_path, config, padded))


def test_dpt_for_classes_gives_transformers_logits_and_its_names(tmp_path: Path) -> None:
    card = check("hugging_face_classes", folder("hugging_face_classes", tmp_path, CLASSES, STRETCHED)).card
    assert card.outputs["labels"].classes == ("wall", "floor", "door", "lamp")


@pytest.mark.parametrize(
    "processor", [{"size": {"height": 112, "width": 96}}, {"keep_aspect_ratio": True, "ensure_multiple_of": 32}]
)
def test_dpt_for_classes_refuses_sizes_whose_logits_would_be_larger_than_the_picture(
    processor: dict[str, Any], tmp_path: Path
) -> None:
    path = folder("hugging_face_classes", tmp_path, CLASSES, {**STRETCHED, **processor})
    with pytest.raises(CheckpointError, match="stretched to multiples of 32"):
        densevit.load(path)


def test_an_adapter_beside_the_weights_is_not_left_out_in_silence(tmp_path: Path) -> None:
    path = folder("hugging_face", tmp_path, DEPTH_ANYTHING, RESIZED)
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    with pytest.raises(CheckpointError, match="holds an adapter of peft, which changes the weights; save .* merged"):
        densevit.load(path, device="cpu")


def test_an_architecture_that_is_not_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="of no known family; its config.json says 'zoedepth'"):
        densevit.load(folder("hugging_face", tmp_path, {"model_type": "zoedepth"}, RESIZED))


def test_the_weights_alone_of_a_folder_ask_for_the_folder(tmp_path: Path) -> None:
    path = folder("hugging_face", tmp_path, DEPTH_ANYTHING, RESIZED)
    with pytest.raises(CheckpointError, match=f"config.json beside it is its own, give the folder {path};"):
        densevit.load(path / "model.safetensors")


def test_dpt_cannot_tell_metres_from_inverse_depth(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="fit several families") as caught:
        densevit.load(folder("hugging_face_dpt", tmp_path, DPT, PADDED))
    assert "\n  huggingface-dpt-metric:" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "processor", "message"),
    [
        ({}, None, "has no preprocessor_config.json"),
        ({}, {**RESIZED, "ensure_multiple_of": 16}, "no multiples of the network's patch of 14"),
        ({}, {**RESIZED, "do_pad": True, "size_divisor": 28, "ensure_multiple_of": 1}, "pads to multiples of 28"),
        ({}, {**RESIZED, "image_processor_type": "ViTImageProcessor"}, "go through a ViTImageProcessor"),
        ({}, {**RESIZED, "resample": 1}, "resamples by PIL's 1"),
        ({}, {**RESIZED, "size": None}, r"size None or multiple 14 is no integer"),
        ({}, {**RESIZED, "ensure_multiple_of": 14.0}, "multiple 14.0 is no integer"),
        ({"backbone_config": {"model_type": "swin"}}, RESIZED, "backbone 'swin'; what is read here is 'dinov2'"),
        ({"backbone_config": {**DINOV2, "out_indices": [3, 6, 9]}}, RESIZED, r"reads blocks \[2, 5, 8\] of 12"),
        ({"reassemble_factors": [8, 4, 2, 1]}, RESIZED, "reassemble_factors"),
        ({"depth_estimation_type": "relative", "max_depth": 5}, RESIZED, "'relative' with 1"),
    ],
)
def test_what_is_not_read_here_is_said(config: dict[str, Any], processor: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        densevit.load(folder("hugging_face", tmp_path, {**DEPTH_ANYTHING, **config}, processor))


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    state = seeded.read("hugging_face").state()
    halves = list(state)[::2], list(state)[1::2]
    index = {}
    for number, names in enumerate(halves, 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: state[name] for name in names}, tmp_path / file)
        index |= dict.fromkeys(names, file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (tmp_path / "config.json").write_text(json.dumps(DEPTH_ANYTHING))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(RESIZED))
    check("hugging_face", tmp_path)


@pytest.mark.parametrize("index", [{}, {"weight_map": [1]}, {"weight_map": {"a": 1}}, {"weight_map": None}])
def test_an_index_that_names_no_shards_is_refused(tmp_path: Path, index: object) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="a `weight_map` should give each tensor's file"):
        densevit.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "processor"),
    [({"backbone_config": "dinov2"}, {}), ({}, {"size": {}}), ({}, {"image_mean": None}), ({}, {"rescale_factor": ""})],
)
def test_values_that_no_config_has_are_the_files_fault(
    config: dict[str, Any], processor: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="cannot be read as huggingface"):
        densevit.load(folder("hugging_face", tmp_path, {**DEPTH_ANYTHING, **config}, {**RESIZED, **processor}))


def test_a_folder_of_pickled_weights_is_read_with_nothing_run(tmp_path: Path) -> None:
    folder("hugging_face", tmp_path, DEPTH_ANYTHING, RESIZED)
    (tmp_path / "model.safetensors").unlink()
    torch.save(seeded.read("hugging_face").state(), tmp_path / "pytorch_model.bin")
    check("hugging_face", tmp_path)
