"""Signatures with shapes are checked while tests run."""

from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from typecheck import check, has_shape


@jaxtyping.jaxtyped(typechecker=check)
def first(x: Float[Tensor, "b n"], y: Float[Tensor, " n"] | None = None) -> Float[Tensor, " n"]:
    return x[0]


@jaxtyping.jaxtyped(typechecker=check)
@dataclass
class Pair:
    name: str
    map: Float[Tensor, "h w"]


def test_wrong_types_and_shapes_are_noticed() -> None:
    assert first(torch.ones(2, 3), torch.ones(3)).shape == (3,)
    flat = torch.ones(3)
    for call in (
        lambda: first(flat),
        lambda: first(torch.ones(2, 3), torch.ones(4)),
        lambda: Pair("a", flat),
        lambda: Pair(3, torch.ones(2, 3)),
    ):
        with pytest.raises(jaxtyping.TypeCheckError):
            call()


def test_a_shape_is_found_inside_other_hints() -> None:
    assert has_shape(dict[str, list[Float[Tensor, "b n"] | None]]) and has_shape("Float[Tensor, 'b n']")
    assert not has_shape(dict[str, Tensor] | None)
