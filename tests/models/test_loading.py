"""State dicts come wrapped in all sorts of ways."""

from typing import Any

import pytest
import torch
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.models.encoders.vit import ViTEncoder


def small(**options: Any) -> ViTEncoder:
    return ViTEncoder(**{"dim": 32, "depth": 3, "heads": 2, "image_size": 64, **options})


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "encoder.", "module.pretrained.", "encoder.vit."])
def test_wrappers_are_taken_off(prefix: str) -> None:
    source, target = small(), small()
    state: dict[str, Tensor] = {prefix + name: tensor for name, tensor in source.vit.state_dict().items()}
    state |= {"head.weight": torch.zeros(3)} if not prefix else {"depth_head.weight": torch.zeros(3)}
    target.load_weights(state, "w.pth")
    for ours, theirs in zip(target.parameters(), source.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_blocks_and_norms_that_are_not_used_may_be_in_the_file() -> None:
    target = small(out_indices=(0, 1), norm=False)
    assert len(target.vit.blocks) == 2
    target.load_weights(small().vit.state_dict(), "w.pth")


def test_a_file_with_too_many_blocks_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"12 unexpected: blocks\.3\.norm1\.weight, .*, \.\.\."):
        small().load_weights(small(depth=4).vit.state_dict(), "w.pth")


def test_two_encoders_in_one_file_are_not_chosen_between() -> None:
    state = {f"{who}.{name}": t for who in ("student", "teacher") for name, t in small().vit.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"holds 2 encoders, under 'student\.', 'teacher\.'"):
        small().load_weights(state, "w.pth")


def test_another_width_counts_and_shows_the_first_five() -> None:
    with pytest.raises(CheckpointError, match=r"of another shape: cls_token \(file \[1, 1, 64\], model \[1, 1, 32\]\)"):
        small().load_weights(small(dim=64).vit.state_dict(), "w.pth")
