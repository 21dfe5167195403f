"""The DPT of segmentation-models-pytorch through our loader: golden outputs (`golden/`), and files that do not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import seeded
import torch
from safetensors.torch import save_file
from seeded import check, saved

import densevit
from densevit.errors import CheckpointError

CONFIG = {
    "_model_class": "DPT", "encoder_name": "tu-test_vit", "encoder_weights": None, "decoder_readout": "add",
    "classes": 5, "reg_tokens": 2, "img_size": 192,
}  # fmt: skip  # as `save_pretrained` writes it


def folder(where: Path) -> Path:
    save_file(seeded.read("smp_add").state(), where / "model.safetensors")
    (where / "config.json").write_text(json.dumps(CONFIG))
    return where


def test_a_file_gives_the_originals_logits(tmp_path: Path) -> None:
    card = check("smp_cat", None, tmp_path, encoder="test_vit").card
    assert (card.outputs["labels"].kind, card.resize.mode, card.resize.size) == ("labels", "fixed", (160, 160))


def test_a_folder_says_all_that_is_needed(tmp_path: Path) -> None:
    assert seeded.gap("smp_add", seeded.load(folder(tmp_path))) <= 1e-4


def test_a_folder_says_that_its_grid_is_no_square(tmp_path: Path) -> None:
    where = folder(tmp_path)  # 12 x 12 cells, or 8 x 18
    (where / "config.json").write_text(json.dumps({**CONFIG, "img_size": [128, 288]}))
    predict = densevit.load(where, device="cpu")
    assert predict.card.resize.size == (128, 288)
    assert predict.card.model["encoder"]["image_size"] == [128, 288]


def test_a_mask_of_one_class_becomes_two(tmp_path: Path) -> None:
    head = {
        f"segmentation_head.head.4.{part}": torch.ones(shape)
        for part, shape in [("weight", (1, 32, 1, 1)), ("bias", 1)]
    }
    path = saved("smp_cat", tmp_path, **head)
    logits = densevit.load(path, device="cpu", family_options={"encoder": "test_vit"})(seeded.picture((60, 90)))
    assert logits.shape == (2, 60, 90)
    assert not logits[0].any()  # sigmoid(x) is the softmax of 0 and x
    assert logits[1].any()


def test_a_classifier_of_distillation_is_left_out_as_the_other_is(tmp_path: Path) -> None:
    """Encoders as deit_tiny_distilled_patch16_224, in whose files smp keeps both, were refused."""
    path = saved("smp_cat", tmp_path, **{"encoder.model.head_dist.weight": torch.zeros(1000, 64)})
    assert seeded.gap("smp_cat", seeded.load(path, encoder="test_vit")) <= 1e-4


@pytest.mark.parametrize(
    ("golden", "options", "told"),
    [
        ("smp_cat", {}, "say encoder=NAME"),
        ("smp_add", {"encoder": "test_vit"}, "say readout=add or readout=ignore"),  # it has no projection
        ("smp_cat", {"encoder": "test_vit", "classes": ("wall", "floor")}, "has 5 classes, and 2 names"),
    ],
)
def test_what_a_file_does_not_tell_is_asked_for(golden: str, options: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=told):
        densevit.load(saved(golden, tmp_path), device="cpu", family_options=options)
