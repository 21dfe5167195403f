"""Fits a state dict found somewhere to the module that wants it, or says exactly why it does not fit."""

from collections.abc import Collection, Mapping

from torch import Tensor, nn

from densevit.errors import CheckpointError

State = Mapping[str, Tensor]

ANCHOR = "blocks.0.norm1.weight"  # a name that every ViT here has, whatever its wrapper put in front
# Parts of published files that a dense model never has: classifiers, poolings, and what pre-training leaves behind.
UNUSED = (
    "head.", "head_dist.", "heads.", "classifier.", "fc.", "fc_norm.", "attn_pool.", "pre_logits.", "mask_token",
    "decoder_", "dino_head.", "ibot_head.",
)  # fmt: skip


def unwrap(state: State, source: str) -> dict[str, Tensor]:
    """The ViT within a larger model's state: what stands behind `module.`, `backbone.`, `pretrained.`, ...

    Raises:
        CheckpointError: the file holds several ViTs (a teacher and a student, say).
    """
    prefixes = sorted(name.removesuffix(ANCHOR) for name in state if name == ANCHOR or name.endswith("." + ANCHOR))
    if len(prefixes) > 1:
        found = ", ".join(f"'{prefix}'" for prefix in prefixes)
        raise CheckpointError(f"{source}: holds {len(prefixes)} encoders, under {found}; keep one of them.")
    prefix = prefixes[0] if prefixes else ""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def load(module: nn.Module, state: State, source: str, spare: Collection[str] = ()) -> None:
    """Loads strictly.

    Args:
        spare: names that may stand in the file without a place in the module (of blocks it does without).

    Raises:
        CheckpointError: with the counts and the first five of what is missing, left over and of another shape.
    """
    own = module.state_dict()
    useful = {name: tensor for name, tensor in state.items() if name in own}
    misfits = [
        f"{name} (file {tuple(tensor.shape)}, model {tuple(own[name].shape)})"
        for name, tensor in useful.items()
        if tensor.shape != own[name].shape
    ]
    faults = {
        "missing": [name for name in own if name not in state],
        "unexpected": [name for name in state if not (name in own or name in spare or name.startswith(UNUSED))],
        "of another shape": misfits,
    }
    if any(faults.values()):
        raise CheckpointError(f"{source}: does not fit this encoder: {_explain(faults)}.")
    module.load_state_dict(useful)


def _explain(faults: Mapping[str, list[str]]) -> str:
    return "; ".join(
        f"{len(names)} {what}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
        for what, names in faults.items()
        if names
    )
