"""The interface of all encoders, their registry, and the base of those with plain ViT tokens."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from densevit.errors import CheckpointError, ConfigError
from densevit.models.lora import Lora
from densevit.models.vit.vision_transformer import BlockOutput, as_map
from densevit.ops.resize import pad_to_multiple
from densevit.registry import Registry
from densevit.structures import BlockFunction, EncoderOutput, FeatureSpec, RemainingBlocks
from densevit.utils.state_dict import load_strict


class Encoder(nn.Module, ABC):
    """Turns an image into feature maps, one per out index.

    Attributes:
        features: what each map will be, shallow to deep.
        patch_size: image pixels per token; sides that are no multiple are padded.
        prefix_tokens: class and register tokens in front of the patches (0 for encoders without).
        out_indices: 0-based indices of the blocks or stages whose outputs are returned.
        mean, std: buffers b 3 1 1, part of the weights and of exports.
        licence: licence of the weights it was built with.
        lora: low-rank updates that it is given once its weights are loaded.
    """

    features: list[FeatureSpec]
    patch_size: int
    prefix_tokens: int
    out_indices: tuple[int, ...]
    mean: Tensor
    std: Tensor
    licence: str = "unknown"
    lora: Lora | None = None

    def set_normalisation(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Raise ConfigError: a standard deviation of 0."""
        if min(std) <= 0:
            raise ConfigError(f"encoder.std: three numbers over 0, got {list(std)}.")
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    @abstractmethod
    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        """Return `image` in [0, 1], of any size. It is normalised, then centre-padded to multiples of the patch."""

    @abstractmethod
    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        """Load a state dict in any layout it knows. `source`: the file, for error messages. Raises CheckpointError: it
        does not fit; with counts and the first five names."""

    @abstractmethod
    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Return every parameter once, grouped from the input (patch embedding) to the output, for layer-wise rates."""

    @abstractmethod
    def no_weight_decay(self) -> set[str]:
        """Return the names of the parameters that are not decayed: position embeddings and tokens."""

    @abstractmethod
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in the backward pass, which saves memory and costs time."""

    def detach_last_blocks(self, blocks: int, *, out_indices: bool) -> None:
        """Leave its last blocks to a decoder, which gets them as `EncoderOutput.remaining`. `out_indices`: whether its
        own feature maps are still needed, by other decoders. Raises ConfigError: it has too few blocks, or none that
        take query tokens."""
        raise ConfigError(f"decoder: it needs the last blocks of a ViT encoder; {type(self).__name__} has none.")


def check_one_weight_source(pretrained: bool, weights: Path | None) -> None:
    """Raise ConfigError: both published weights and a file are given."""
    if pretrained and weights:
        raise ConfigError("encoder: pretrained and weights exclude each other; keep one.")


ENCODERS = Registry[Encoder]("encoder")


OutIndices = tuple[int, ...] | int | None

# Four evenly spaced blocks, the last among them. DINOv2 and Depth Anything V2 use 4, 11, 17, 23 of 24
# where DPT uses 5, 11, 17, 23; at 12 and 40 blocks all agree.
DEFAULT_OUT_INDICES = {24: (4, 11, 17, 23)}


def resolve_out_indices(out_indices: OutIndices, depth: int) -> tuple[int, ...]:
    """Return 0-based block indices; an int n means the last n, None four evenly spaced. Raises ConfigError: not
    increasing, or beyond `depth`."""
    if out_indices is None:
        count = min(4, depth)
        return DEFAULT_OUT_INDICES.get(depth, tuple(depth * i // count - 1 for i in range(1, count + 1)))
    indices = tuple(range(depth - out_indices, depth)) if isinstance(out_indices, int) else out_indices
    rising = all(a < b for a, b in pairwise(indices))
    if not indices or not rising or not 0 <= indices[0] <= indices[-1] < depth:
        fit = f"rising numbers from 0 to {depth - 1}, or how many of the last {depth} blocks"
        raise ConfigError(f"encoder.out_indices: {out_indices!r} does not fit; would fit: {fit}.")
    return indices


class TokenEncoder(Encoder):
    """An encoder around a ViT whose patch tokens are a plain grid.

    Blocks after the last out index are dropped, and the final norm where `norm` is false, so that every parameter
    gets a gradient. Subclasses build `vit`, then call `wrap_backbone`.
    """

    vit: Any  # the model, with `blocks` and `norm`
    norm: bool  # whether the model's final LayerNorm is applied to the feature maps
    num_detached: int = 0  # number of last blocks that a decoder runs
    returns_maps: bool = True  # whether feature maps are needed beside these blocks

    def wrap_backbone(
        self, vit: nn.Module, *, dim: int, patch_size: int, prefix_tokens: int, out_indices: OutIndices, norm: bool
    ) -> None:
        blocks: Any = vit.blocks
        self.vit, self.patch_size, self.prefix_tokens, self.norm = vit, patch_size, prefix_tokens, norm
        self.out_indices = resolve_out_indices(out_indices, len(blocks))
        self.features = [FeatureSpec(dim, patch_size) for _ in self.out_indices]
        self.unused = set(vit.state_dict())
        vit.blocks = blocks[: self.out_indices[-1] + 1]
        if not norm:
            vit.norm = nn.Identity()
        self.unused -= set(vit.state_dict())

    @abstractmethod
    def block_outputs(
        self, image: Float[Tensor, "b 3 h w"], blocks: Sequence[int], norm: bool
    ) -> Sequence[BlockOutput]:
        """Return the tokens after each of the `blocks`; `image` is normalised and padded."""

    @abstractmethod
    def remaining_blocks(self, first: int, grid: tuple[int, int]) -> tuple[BlockFunction, ...]:
        """Return the blocks from `first` on, for a grid of patches and query tokens of a decoder. Raises ConfigError:
        these blocks cannot take query tokens."""

    @abstractmethod
    def visible_tokens(
        self, image: Float[Tensor, "b 3 h w"], kept: Int64[Tensor, "b kept"]
    ) -> Float[Tensor, "b visible d"]:
        """Return the prefix tokens, then those patches of each image that are kept, after all blocks and the norm; the
        others are left out from the start. `image` is normalised and padded."""

    def check_visible_tokens(self) -> None:
        """Raise ConfigError: the blocks need all patches of an image."""

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        x, _ = pad_to_multiple((image - self.mean) / self.std, self.patch_size)
        h, w = x.shape[-2:]
        grid = (h // self.patch_size, w // self.patch_size)
        outputs: Sequence[BlockOutput]
        if self.num_detached:
            outputs, remaining = self.forward_detached(x, grid)
        else:
            outputs, remaining = self.block_outputs(x, self.out_indices, self.norm), None
        maps = tuple(as_map(output.patches, grid) for output in outputs)
        return EncoderOutput(maps, tuple(output.prefix for output in outputs), (h, w), remaining)

    def forward_detached(
        self, x: Float[Tensor, "b 3 h w"], grid: tuple[int, int]
    ) -> tuple[list[BlockOutput], RemainingBlocks]:
        """Return the feature maps, if needed, and the tokens before the detached blocks; every block runs at most
        once."""
        first = len(self.vit.blocks) - self.num_detached
        out_indices = self.out_indices if self.returns_maps else ()
        blocks = sorted({*out_indices, first - 1})
        outputs = dict(zip(blocks, self.block_outputs(x, blocks, norm=False), strict=True))
        tokens = torch.cat([outputs[first - 1].prefix, outputs[first - 1].patches], dim=1)
        norm = self.vit.norm
        normed = [BlockOutput(norm(outputs[index].patches), norm(outputs[index].prefix)) for index in out_indices]
        return normed, RemainingBlocks(tokens, self.prefix_tokens, grid, self.remaining_blocks(first, grid), norm)

    def detach_last_blocks(self, blocks: int, *, out_indices: bool) -> None:
        depth = len(self.vit.blocks)
        if not 0 < blocks < depth:
            raise ConfigError(f"decoder.blocks: {blocks} of the encoder's {depth}; would fit: 1 to {depth - 1}.")
        if not self.norm:
            raise ConfigError("encoder.norm: a decoder that runs the last blocks reads normalised tokens; use true.")
        self.remaining_blocks(depth - blocks, (1, 1))  # raises now what the first forward pass would raise
        self.num_detached, self.returns_maps = blocks, out_indices

    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        """Load the ViT in `state`, strictly except for classifiers; resamples position embeddings to our grid.
        `source`: the file, for error messages. Raises CheckpointError if it does not fit; with counts and the first
        five names."""
        load_encoder(self.vit, self.convert(unwrap_vit(state, source)), source, self.unused)

    @abstractmethod
    def convert(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert other layouts to this ViT's parameter names and grid."""

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return layers_of_vit(self, self.vit)

    def no_weight_decay(self) -> set[str]:
        embeddings = ("pos_embed", "cls_token", "reg_token", "dist_token", "relative_position_bias_table", "freqs")
        return {name for name, _ in self.named_parameters() if name.rpartition(".")[2] in embeddings}


def layers_of_vit(encoder: nn.Module, vit: Any) -> list[list[nn.Parameter]]:
    """Return the parameters of an encoder in groups as timm's: all before the blocks of its ViT, then each block; the
    final norm learns as the last one."""
    blocks = [list(block.parameters()) for block in vit.blocks]
    blocks[-1] += vit.norm.parameters()
    grouped = {id(parameter) for block in blocks for parameter in block}
    return [[parameter for parameter in encoder.parameters() if id(parameter) not in grouped], *blocks]


State = Mapping[str, Tensor]

ANCHOR = "blocks.0.norm1.weight"  # in every ViT, with the prefix of its wrapper
# Parts of published files that a dense model does not have: classifiers, poolings, heads of pre-training.
UNUSED = (
    "head.", "head_dist.", "heads.", "classifier.", "fc.", "fc_norm.", "attn_pool.", "pre_logits.", "mask_token",
    "decoder_", "dino_head.", "ibot_head.",
)  # fmt: skip


def unwrap_vit(state: State, source: str) -> dict[str, Tensor]:
    """Return the ViT in a larger model's state dict, without its prefix `module.`, `backbone.`, `pretrained.`, ...
    Raises CheckpointError if the file holds several ViTs (a teacher and a student, say)."""
    prefixes = sorted(name.removesuffix(ANCHOR) for name in state if name == ANCHOR or name.endswith("." + ANCHOR))
    if len(prefixes) > 1:
        names = ", ".join(f"'{prefix}'" for prefix in prefixes)
        raise CheckpointError(f"{source}: holds {len(prefixes)} encoders, under {names}; keep one of them.")
    prefix = prefixes[0] if prefixes else ""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def load_encoder(module: nn.Module, state: State, source: str, unused: Collection[str] = ()) -> None:
    """Load an encoder strictly, except for parts that dense models do not have. `unused`: more names that the file may
    have, of blocks that were dropped. Raises CheckpointError if it does not fit; see `load_strict`."""
    load_strict(
        module, state, source, what="this encoder", ignore=lambda name: name in unused or name.startswith(UNUSED)
    )
