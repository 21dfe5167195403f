"""DINOv3's heads: what the originals say with seeded weights (checkpoint_goldens.py), and files that do not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from seeded import Golden, gap, load, read
from torch import Tensor

from densevit.errors import CheckpointError, ConfigError

HEAD = ("reassemble_blocks.", "convs.", "fusion_blocks.", "project.", "conv_depth.", "batchnorm_layer.")
GOLDENS: dict[str, tuple[str, dict[str, Any]]] = {
    "dinov3_synthmix": ("dinov3-depth-synthmix", {}),
    "dinov3_chmv2": ("dinov3-chmv2", {}),
    "dinov3_linear": ("dinov3-depth-linear", {"max_depth": 10.0}),
}


def put(golden: Golden, folder: Path, change: Callable[[dict[str, Tensor]], object] = lambda backbone: None) -> Path:
    """Head and backbone, whose constant buffers no seed makes, side by side."""
    state = golden.state()
    head = {name: tensor for name, tensor in state.items() if name.startswith(HEAD)}
    backbone = {name: tensor for name, tensor in state.items() if name not in head}
    count = len(backbone["rope_embed.periods"])
    backbone["rope_embed.periods"] = 100.0 ** (torch.arange(count) / count)
    for name, mask in backbone.items():
        if name.endswith("bias_mask"):
            mask.fill_(1).view(3, -1)[1] = 0  # queries, keys, values
    change(backbone)
    torch.save(head, folder / "head.pth")
    torch.save(backbone, folder / "backbone.pth")
    return folder / "head.pth"


@pytest.mark.parametrize("name", GOLDENS)
def test_head_and_backbone_say_what_the_original_says(name: str, tmp_path: Path) -> None:
    golden, (family, options) = read(name), GOLDENS[name]
    assert gap(name, load(put(golden, tmp_path), family, backbone=tmp_path / "backbone.pth", **options)) <= 1e-4


def test_the_dpt_heads_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for name in ("dinov3_synthmix", "dinov3_chmv2"):
        folder = tmp_path / name
        folder.mkdir()
        put(read(name), folder)
        card = load(folder).card
        assert (card.outputs["depth"].kind, card.licence) == (
            "affine" if "synth" in name else "metric",
            "DINOv3 License",
        )


def test_canopy_heights_have_a_normalisation_of_their_own(tmp_path: Path) -> None:
    # chmv2_inference.ipynb; the backbone alone has 0.430.
    put(read("dinov3_chmv2"), tmp_path)
    assert load(tmp_path).card.mean == pytest.approx((0.420, 0.411, 0.296))


def test_a_linear_probe_asks_for_its_range(tmp_path: Path) -> None:
    path = put(read("dinov3_linear"), tmp_path)
    with pytest.raises(ConfigError, match="max_depth: missing"):
        load(path, backbone=tmp_path / "backbone.pth")


def test_the_backbone_is_asked_for_by_its_published_name(tmp_path: Path) -> None:
    path = put(read("dinov3_chmv2"), tmp_path)
    with pytest.raises(CheckpointError, match=r"published as dinov3_vitl16_pretrain_sat493m\*.pth, and it"):
        load(path)
    (tmp_path / "backbone.pth").rename(tmp_path / "dinov3_vitl16_pretrain_sat493m-eadcf0ff.pth")
    assert load(path).card.out_indices == (0, 1, 2, 3)


def test_other_positions_unmasked_biases_and_a_backbone_cut_short_are_refused(tmp_path: Path) -> None:
    changes: list[tuple[Callable[[dict[str, Tensor]], object], str]] = [
        (lambda b: b["rope_embed.periods"].mul_(2), r"periods 2 to .*released models have 1 to"),
        (lambda b: b.pop("blocks.0.attn.qkv.bias_mask"), r"blocks.0.attn.qkv.bias moves keys"),
        (lambda b: b.pop("blocks.2.mlp.fc2.weight"), r"1 missing: encoder.vit.blocks.2.mlp.fc2.weight"),
    ]
    for change, told in changes:
        with pytest.raises(CheckpointError, match=told):
            load(put(read("dinov3_chmv2"), tmp_path, change), backbone=tmp_path / "backbone.pth")
