"""ZoeDepth through our loader: what the original said of seeded weights (`golden/`), and files that do not fit."""

from pathlib import Path

import pytest
import torch
from seeded import check, saved

import densevit
from densevit.errors import CheckpointError

PLAIN = {"margin": False, "flip": False}


@pytest.mark.slow
def test_n_gives_the_originals_metres_with_its_margin_and_mirror(tmp_path: Path) -> None:
    card = check("zoedepth_n", None, tmp_path).card
    assert (card.outputs["depth"].kind, card.outputs["depth"].range) == ("metric", None)
    assert (card.resize.margin, card.resize.flip, card.resize.size) == (3.0, True, (384, 512))


@pytest.mark.slow
def test_n_gives_the_originals_metres_at_one_look(tmp_path: Path) -> None:
    assert "ZoeDepthN (" in check("zoedepth_n_plain", None, tmp_path, **PLAIN).card.source


@pytest.mark.slow
def test_k_divides_the_range_among_its_bins(tmp_path: Path) -> None:
    card = check("zoedepth_k", None, tmp_path, **PLAIN).card
    assert card.source == "ZoeDepthK (isl-org/ZoeDepth)"
    assert card.outputs["depth"].range == (0.0, 80.0)
    assert card.resize.size == (384, 768)


def test_nk_takes_the_road_of_the_original(tmp_path: Path) -> None:
    assert "ZoeDepthNK (" in check("zoedepth_nk", None, tmp_path, **PLAIN).card.source


def test_each_image_of_a_batch_has_its_own_road(tmp_path: Path) -> None:
    model = densevit.load(saved("zoedepth_nk", tmp_path), device="cpu", precision="fp32").model
    images = torch.stack([torch.zeros(3, 64, 64), torch.rand(3, 64, 64)])
    with torch.no_grad():
        together = model(images)["depth"]
        alone = torch.cat([model(image[None])["depth"] for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    path = saved("zoedepth_nk", tmp_path, **{"attractors.kitti.2._net.0.bias": None})
    with pytest.raises(CheckpointError, match=r"1 missing: decoder\.attract\.2\.mlp\.first\.bias"):
        densevit.load(path)
