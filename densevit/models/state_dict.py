"""Finds and loads the Vision Transformer in a state dict."""

from collections.abc import Collection, Mapping

from torch import Tensor, nn

from densevit.errors import CheckpointError
from densevit.utils.state_dict import load_strict

State = Mapping[str, Tensor]

ANCHOR = "blocks.0.norm1.weight"  # in every ViT, with the prefix of its wrapper
# Parts of published files that a dense model does not have: classifiers, poolings, heads of pre-training.
UNUSED = (
    "head.", "head_dist.", "heads.", "classifier.", "fc.", "fc_norm.", "attn_pool.", "pre_logits.", "mask_token",
    "decoder_", "dino_head.", "ibot_head.",
)  # fmt: skip


def unwrap(state: State, source: str) -> dict[str, Tensor]:
    """The ViT in a larger model's state dict, without its prefix `module.`, `backbone.`, `pretrained.`, ... Raises
    CheckpointError if the file holds several ViTs (a teacher and a student, say)."""
    prefixes = sorted(name.removesuffix(ANCHOR) for name in state if name == ANCHOR or name.endswith("." + ANCHOR))
    if len(prefixes) > 1:
        names = ", ".join(f"'{prefix}'" for prefix in prefixes)
        raise CheckpointError(f"{source}: holds {len(prefixes)} encoders, under {names}; keep one of them.")
    prefix = prefixes[0] if prefixes else ""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def load(module: nn.Module, state: State, source: str, unused: Collection[str] = ()) -> None:
    """Loads an encoder strictly, except for parts that dense models do not have. `unused`: more names that the file may
    have, of blocks that were dropped. Raises CheckpointError if it does not fit; see `load_strict`."""
    load_strict(
        module, state, source, what="this encoder", ignore=lambda name: name in unused or name.startswith(UNUSED)
    )
