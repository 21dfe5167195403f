"""What all plain Vision Transformers share as encoders: taps, padding, and the way from tokens to maps."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models import state_dict
from densevit.models.encoders.base import Encoder
from densevit.models.vit.intermediate_layers import BlockOutput, as_map
from densevit.ops.resize import pad_to_multiple
from densevit.structures import EncoderOutput, FeatureSpec, RemainingBlocks, Step

OutIndices = tuple[int, ...] | int | None

# Four blocks at even distances, the last among them. DINOv2 and Depth Anything V2 tap 4, 11, 17, 23 of 24
# where DPT has 5, 11, 17, 23; at 12 and 40 blocks all agree.
PUBLISHED_TAPS = {24: (4, 11, 17, 23)}


def choose_taps(out_indices: OutIndices, depth: int) -> tuple[int, ...]:
    """0-based blocks to tap; an int means the last so many, None four at even distances.

    Raises:
        ConfigError: taps that are no rising choice of `depth` blocks.
    """
    if out_indices is None:
        count = min(4, depth)
        return PUBLISHED_TAPS.get(depth, tuple(depth * i // count - 1 for i in range(1, count + 1)))
    chosen = tuple(range(depth - out_indices, depth)) if isinstance(out_indices, int) else out_indices
    rising = all(a < b for a, b in pairwise(chosen))
    if not chosen or not rising or not 0 <= chosen[0] <= chosen[-1] < depth:
        fit = f"rising numbers from 0 to {depth - 1}, or how many of the last {depth} blocks"
        raise ConfigError(f"encoder.out_indices: {out_indices!r} does not fit; would fit: {fit}.")
    return chosen


class TokenEncoder(Encoder):
    """An encoder around a ViT whose patch tokens are a plain grid.

    Blocks behind the last tap are dropped, and the final norm where `norm` is false, so that every parameter
    gets a gradient. Subclasses build `vit`, then call `adopt`.

    Attributes:
        vit: the model, with `blocks` and `norm`.
        norm: whether taps pass the model's final LayerNorm.
        left: how many of the last blocks are left to a decoder.
    """

    vit: Any
    norm: bool
    left: int = 0
    handing_on: bool = True  # the taps

    def adopt(
        self, vit: nn.Module, *, dim: int, patch_size: int, prefix_tokens: int, out_indices: OutIndices, norm: bool
    ) -> None:
        blocks: Any = vit.blocks
        self.vit, self.patch_size, self.prefix_tokens, self.norm = vit, patch_size, prefix_tokens, norm
        self.out_indices = choose_taps(out_indices, len(blocks))
        self.features = [FeatureSpec(dim, patch_size) for _ in self.out_indices]
        self.unused = set(vit.state_dict())
        vit.blocks = blocks[: self.out_indices[-1] + 1]
        if not norm:
            vit.norm = nn.Identity()
        self.unused -= set(vit.state_dict())

    @abstractmethod
    def tap(self, image: Float[Tensor, "b 3 h w"], blocks: Sequence[int], norm: bool) -> Sequence[BlockOutput]:
        """The tokens behind each of the `blocks`; `image` is normalised and padded."""

    @abstractmethod
    def steps(self, first: int, grid: tuple[int, int]) -> tuple[Step, ...]:
        """The blocks from `first` on, for tokens of such a grid with a decoder's own among them.

        Raises:
            ConfigError: they cannot take such tokens in.
        """

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        x, _ = pad_to_multiple((image - self.mean) / self.std, self.patch_size)
        h, w = x.shape[-2:]
        grid = (h // self.patch_size, w // self.patch_size)
        out_indices, rest = self.part_way(x, grid) if self.left else (self.tap(x, self.out_indices, self.norm), None)
        maps = tuple(as_map(tap.patches, grid) for tap in out_indices)
        return EncoderOutput(maps, tuple(tap.prefix for tap in out_indices), (h, w), rest)

    def part_way(self, x: Float[Tensor, "b 3 h w"], grid: tuple[int, int]) -> tuple[list[BlockOutput], RemainingBlocks]:
        """The taps, if anybody reads them, and the tokens where a decoder joins; every block runs at most once."""
        first = len(self.vit.blocks) - self.left
        out_indices = self.out_indices if self.handing_on else ()
        blocks = sorted({*out_indices, first - 1})
        found = dict(zip(blocks, self.tap(x, blocks, norm=False), strict=True))
        tokens = torch.cat([found[first - 1].prefix, found[first - 1].patches], dim=1)
        norm = self.vit.norm
        normed = [BlockOutput(norm(found[tap].patches), norm(found[tap].prefix)) for tap in out_indices]
        return normed, RemainingBlocks(tokens, self.prefix_tokens, grid, self.steps(first, grid), norm)

    def leave(self, blocks: int, *, out_indices: bool) -> None:
        depth = len(self.vit.blocks)
        if not 0 < blocks < depth:
            raise ConfigError(f"decoder.blocks: {blocks} of the encoder's {depth}; would fit: 1 to {depth - 1}.")
        if not self.norm:
            raise ConfigError("encoder.norm: a decoder that joins the encoder reads its tokens normalised; use true.")
        self.steps(depth - blocks, (1, 1))  # refuses now what would be refused in the first forward pass
        self.left, self.handing_on = blocks, out_indices

    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        """Loads the ViT found in `state`, strictly but for classifiers; positions are resampled to our grid.

        Args:
            source: what errors call the file.

        Raises:
            CheckpointError: it does not fit; with counts and the first five names.
        """
        state_dict.load(self.vit, self.convert(state_dict.unwrap(state, source)), source, self.unused)

    @abstractmethod
    def convert(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Other layouts to this ViT's names and grid."""

    def layer_groups(self) -> list[list[nn.Parameter]]:
        blocks = [list(block.parameters()) for block in self.vit.blocks]
        last = list(self.vit.norm.parameters())
        known = {id(parameter) for group in [*blocks, last] for parameter in group}
        stem = [parameter for parameter in self.parameters() if id(parameter) not in known]
        return [stem, *blocks, *([last] if last else [])]

    def no_weight_decay(self) -> set[str]:
        embeddings = ("pos_embed", "cls_token", "reg_token", "dist_token", "relative_position_bias_table")
        return {name for name, _ in self.named_parameters() if name.rpartition(".")[2] in embeddings}
