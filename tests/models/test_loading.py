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


def test_files_of_other_encoders_are_refused_with_the_first_five_differences() -> None:
    own = small().vit.state_dict()
    two = {f"{who}.{name}": tensor for who in ("student", "teacher") for name, tensor in own.items()}
    for state, says in (
        (small(depth=4).vit.state_dict(), r"12 unexpected: blocks\.3\.norm1\.weight, .*, \.\.\."),
        (two, r"holds 2 encoders, under 'student\.', 'teacher\.'"),
        (small(dim=64).vit.state_dict(), r"of another shape: cls_token \(file \[1, 1, 64\], model \[1, 1, 32\]\)"),
    ):
        with pytest.raises(CheckpointError, match=says):
            small().load_weights(state, "w.pth")
