"""DPT, MiDaS 3.1 and ZoeDepth: what the originals said of seeded weights (`golden/`), and files that do not fit."""

import contextlib
from pathlib import Path

import pytest
import seeded
import torch
from seeded import check, load, saved

import densevit
import densevit.weights.families
from densevit.errors import CheckpointError
from densevit.weights.external import FAMILIES, RawCheckpoint


def test_large_gives_the_originals_disparity(tmp_path: Path) -> None:
    card = check("dpt_vit", None, tmp_path).card
    assert (card.outputs["depth"].kind, card.multiple, card.licence) == ("disparity", 32, "MIT")
    assert card.resize.mode == "minimal"


def test_hybrid_gives_the_originals_metres(tmp_path: Path) -> None:
    card = check("dpt_hybrid_nyu", "dpt-nyu", tmp_path).card
    assert (card.outputs["depth"].kind, card.outputs["depth"].unit) == ("metric", "m")
    assert card.resize.size == (480, 640)


def test_kittis_constants_are_its_own(tmp_path: Path) -> None:
    disparity = load(saved("dpt_hybrid_nyu", tmp_path), "dpt")
    metres = load(saved("dpt_hybrid_nyu", tmp_path), "dpt-kitti")
    x = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        expected = 1 / (0.00006016 * disparity.model(x)["depth"] + 0.00579)  # run_monodepth.py
        torch.testing.assert_close(metres.model(x)["depth"], expected)
    assert metres.card.resize.size == (352, 1216)


def test_ade20k_gives_the_originals_logits(tmp_path: Path) -> None:
    card = check("dpt_hybrid_ade20k", None, tmp_path).card
    assert card.outputs["labels"].kind == "labels"
    classes = card.outputs["labels"].classes
    # objectInfo150.txt and color150.mat of the challenge
    assert (len(classes), classes[:3], classes[-1]) == (150, ("wall", "building", "sky"), "flag")
    assert card.outputs["labels"].palette[2] == (6, 230, 230)
    assert card.model["heads"]["labels"]["classes"] == list(classes)


def test_a_hybrid_cannot_say_whether_it_is_relative_or_of_kitti_or_nyu(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="fit several families") as error:
        densevit.load(saved("dpt_hybrid_nyu", tmp_path))
    assert all(f"\n  {family}:" in str(error.value) for family in ("dpt", "dpt-kitti", "dpt-nyu"))


@pytest.mark.parametrize(
    ("golden", "family"),
    [
        ("dpt_vit", "dpt"),
        ("midas_beit", "midas"),
        pytest.param("zoedepth_nk", "zoedepth-nk", marks=pytest.mark.slow),
        ("smp_cat", "smp-dpt"),
    ],
)
def test_whatever_is_missing_the_error_is_about_the_file(golden: str, family: str) -> None:
    options = {"encoder": "test_vit"} if family == "smp-dpt" else {}
    reader = FAMILIES.check({"type": family, **options}, "family").build()
    whole = {name: torch.empty(shape, device="meta") for name, shape in seeded.read(golden).shapes.items()}
    for name in [name for name in whole if ".blocks." not in name and ".layers." not in name]:
        found = RawCheckpoint(Path("cut.pt"), {key: value for key, value in whole.items() if key != name})
        with contextlib.suppress(CheckpointError):  # what `read` does not miss, loading does
            reader.read(found)


def test_a_tensor_without_axes_is_of_no_family(tmp_path: Path) -> None:
    state = seeded.read("dpt_vit").state() | {"scratch.output_conv.4.weight": torch.zeros(())}
    torch.save(state, tmp_path / "dpt.pt")
    with pytest.raises(CheckpointError, match="of no known family"):
        densevit.load(tmp_path / "dpt.pt")


def test_beit_gives_the_originals_disparity(tmp_path: Path) -> None:
    card = check("midas_beit", None, tmp_path).card
    assert (card.outputs["depth"].kind, card.multiple) == ("disparity", 32)
    assert (card.resize.mode, card.resize.size) == ("minimal", (384, 384))


@pytest.mark.slow
def test_swin2_gives_the_originals_disparity(tmp_path: Path) -> None:
    card = check("midas_swin2", None, tmp_path).card
    assert (card.resize.mode, card.resize.size) == ("fixed", (256, 256))


@pytest.mark.parametrize(
    ("golden", "tensor", "value", "told"),
    [
        pytest.param("midas_swin2", "pretrained.model.layers.0.blocks.0.norm1.weight", torch.ones(100),
                     "a Swin V2 of 100 channels and 6 blocks.*swinv2_tiny_window16_256", marks=pytest.mark.slow),
        ("midas_beit", "pretrained.model.patch_embed.proj.weight", None,
         r"1 of its tensors are missing: pretrained\.model\.patch_embed"),
        ("zoedepth_nk", "attractors.kitti.2._net.0.bias", None, r"1 missing: decoder\.attract\.2\.mlp\.first\.bias"),
    ],
)  # fmt: skip
def test_networks_that_nobody_published_and_missing_tensors_are_named(
    golden: str, tensor: str, value: torch.Tensor | None, told: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=told):
        densevit.load(saved(golden, tmp_path, **{tensor: value}))


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
