"""MiDaS 3.1 through our loader: what the original said of seeded weights (`golden/`), and files that do not fit."""

from pathlib import Path

import pytest
import torch
from seeded import check, saved

import densevit
from densevit.errors import CheckpointError


def test_beit_gives_the_originals_disparity(tmp_path: Path) -> None:
    card = check("midas_beit", None, tmp_path).card
    assert (card.outputs["depth"].kind, card.multiple) == ("disparity", 32)
    assert (card.resize.mode, card.resize.size) == ("minimal", (384, 384))


@pytest.mark.slow
def test_swin2_gives_the_originals_disparity(tmp_path: Path) -> None:
    card = check("midas_swin2", None, tmp_path).card
    assert (card.resize.mode, card.resize.size) == ("fixed", (256, 256))


@pytest.mark.slow
def test_a_swin_that_nobody_published_is_refused(tmp_path: Path) -> None:
    path = saved("midas_swin2", tmp_path, **{"pretrained.model.layers.0.blocks.0.norm1.weight": torch.ones(100)})
    with pytest.raises(CheckpointError, match="a Swin V2 of 100 channels and 6 blocks.*swinv2_tiny_window16_256"):
        densevit.load(path)


def test_a_beit_without_its_patches_is_refused(tmp_path: Path) -> None:
    path = saved("midas_beit", tmp_path, **{"pretrained.model.patch_embed.proj.weight": None})
    with pytest.raises(CheckpointError, match=r"1 of its tensors are missing: pretrained\.model\.patch_embed"):
        densevit.load(path)
