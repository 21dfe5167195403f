"""DINOv2's heads: what the originals say with seeded weights (checkpoint_goldens.py), and files that do not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from seeded import Golden, gap, load, picture, read, saved

from densevit.errors import CheckpointError, ConfigError

HEAD = "decode_head."
GOLDENS = {
    "dinov2_linear": "dinov2-depth-nyu",
    "dinov2_linear4": "dinov2-depth-kitti",
    "dinov2_dpt": "dinov2-depth-nyu",
    "dinov2_segmentation": "dinov2-segmentation",
}


def put(golden: Golden, folder: Path, name: str = "dinov2_vits14_nyu_linear_head.pth") -> Path:
    """Head and backbone side by side under their published names."""
    state = golden.state()
    head = {key: tensor for key, tensor in state.items() if key.startswith(HEAD)}
    torch.save({"state_dict": head, "meta": {"epoch": 1}}, folder / name)
    backbone = {key.removeprefix("backbone."): t for key, t in state.items() if key not in head}
    torch.save(backbone, folder / "dinov2_vits14_pretrain.pth")
    return folder / name


@pytest.mark.parametrize(
    "name",
    ["dinov2_linear", "dinov2_linear4", "dinov2_dpt", pytest.param("dinov2_segmentation", marks=pytest.mark.slow)],
)
def test_a_head_beside_its_backbone_says_what_the_original_says(name: str, tmp_path: Path) -> None:
    assert gap(name, load(put(read(name), tmp_path), GOLDENS[name])) <= 1e-4


@pytest.mark.slow
def test_one_file_of_both_halves_is_read_too(tmp_path: Path) -> None:
    assert gap("dinov2_dpt", load(saved("dinov2_dpt", tmp_path), "dinov2-depth-nyu")) <= 1e-4


def test_a_folder_of_both_halves_is_a_checkpoint(tmp_path: Path) -> None:
    put(read("dinov2_segmentation"), tmp_path)
    card = load(tmp_path).card
    output = card.outputs["labels"]
    assert (len(output.classes), output.classes[2], output.palette[2]) == (150, "sky", (6, 230, 230))
    assert (card.trained_on, card.licence, card.multiple) == ("ADE20K", "Apache-2.0", 1)


def test_the_range_is_asked_for_and_never_guessed(tmp_path: Path) -> None:
    path = put(read("dinov2_linear"), tmp_path)
    with pytest.raises(CheckpointError, match=r"fit several families") as caught:
        load(path)
    for family in ("dinov2-depth-nyu: ", "up to 10", "dinov2-depth-kitti: ", "up to 80", "dinov2-depth: "):
        assert family in str(caught.value)
    with pytest.raises(ConfigError, match="max_depth: missing"):
        load(path, "dinov2-depth")


def test_the_range_scales_the_bins(tmp_path: Path) -> None:
    # Expectations over bins of 0.001 to 10 and to 80 m: (80 - 0.001) / (10 - 0.001) = 8.0007 apart, from 0.001 on.
    path = put(read("dinov2_linear"), tmp_path)
    nyu, own = (
        load(path, f, **o)(picture((60, 90)))
        for f, o in (("dinov2-depth-nyu", {}), ("dinov2-depth", {"max_depth": 80}))
    )
    np.testing.assert_allclose(own - 0.001, (nyu - 0.001) * 79.999 / 9.999, rtol=1e-5)
    assert load(path, "dinov2-depth-nyu").card.outputs["depth"].range == (0.001, 10.0)


def test_a_head_alone_names_the_file_that_it_lacks(tmp_path: Path) -> None:
    path = put(read("dinov2_linear"), tmp_path)
    (tmp_path / "dinov2_vits14_pretrain.pth").rename(tmp_path / "elsewhere.bin")
    with pytest.raises(CheckpointError, match=r"published as dinov2_vits14_pretrain.pth, and it .* backbone=PATH"):
        load(path, "dinov2-depth-nyu")
    (tmp_path / "elsewhere.bin").rename(tmp_path / "elsewhere.pth")
    assert load(path, "dinov2-depth-nyu", backbone=tmp_path / "elsewhere.pth").card.outputs["depth"].kind == "metric"


@pytest.mark.parametrize("name", ["dinov2_linear", "dinov2_dpt", "dinov2_segmentation"])
def test_a_head_of_another_backbone_is_refused_by_its_width(name: str, tmp_path: Path) -> None:
    path = put(read(name), tmp_path)
    backbone = torch.load(tmp_path / "dinov2_vits14_pretrain.pth", weights_only=True)
    wide = {key: torch.cat([x, x]) if x.ndim == 4 else x for key, x in backbone.items()}
    torch.save(wide, tmp_path / "dinov2_vits14_pretrain.pth")
    with pytest.raises(CheckpointError, match=r"channels.*backbone (of|has) 128"):
        load(path, GOLDENS[name])


def test_two_files_that_are_no_halves_are_refused(tmp_path: Path) -> None:
    put(read("dinov2_linear"), tmp_path)
    (tmp_path / "dinov2_vits14_pretrain.pth").unlink()
    put(read("dinov2_linear"), tmp_path, "dinov2_vits14_kitti_linear_head.pth")
    (tmp_path / "dinov2_vits14_pretrain.pth").unlink()
    with pytest.raises(CheckpointError, match=r"no head and backbone, with 2 names in common: decode_head.conv_depth"):
        load(tmp_path)
