"""DPT through our loader: what the original said of seeded weights (`golden/`), and files that do not fit."""

import contextlib
from pathlib import Path

import pytest
import seeded
import torch
from seeded import check, load, saved

import densevit
import densevit.weights.families  # registers them
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
