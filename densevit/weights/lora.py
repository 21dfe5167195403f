"""Low-rank updates in state dicts: merged into the weights, or kept apart from them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from densevit.ops.matrices import merge_lora
from densevit.weights.external import ConvertedCheckpoint

A, B, MAGNITUDE = ".lora_a", ".lora_b", ".lora_magnitude"
Options = Mapping[str, Any]


def lora_of(model: Mapping[str, Any]) -> Options | None:
    """Return the options `lora` of a model's encoder; None where it has no updates."""
    options: Options | None = (model.get("encoder") or {}).get("lora")
    return options


def is_update(name: str) -> bool:
    """Return whether a tensor of this name belongs to an update."""
    return name.endswith((A, B, MAGNITUDE))


def merge(tensors: Mapping[str, Tensor], options: Options) -> dict[str, Tensor]:
    """Return the tensors of the model without updates that predicts the same."""
    scale = (options.get("alpha") or options["rank"]) / options["rank"]
    merged = {name: tensor for name, tensor in tensors.items() if not is_update(name)}
    for name in tensors:
        if name.endswith(A):
            layer = name.removesuffix(A)
            update = (tensors[name], tensors[layer + B], scale, tensors.get(layer + MAGNITUDE))
            merged[f"{layer}.weight"] = merge_lora(tensors[f"{layer}.weight"], *update)
    return merged


def merged_checkpoint(opened: ConvertedCheckpoint) -> ConvertedCheckpoint:
    """Return a checkpoint without updates that predicts the same; the checkpoint itself where it has none."""
    options = lora_of(opened.model)
    if options is None:
        return opened
    model = {**opened.model, "encoder": {**opened.model["encoder"], "lora": None}}
    card = replace(opened.card, model=model) if opened.card else None
    return replace(opened, model=model, tensors=merge(opened.tensors, options), card=card)


def fitted_checkpoint(
    opened: ConvertedCheckpoint, options: Options | None, initial: Mapping[str, Tensor]
) -> ConvertedCheckpoint:
    """Return a checkpoint with the updates that a new model has, which starts from it.

    The checkpoint's updates are kept where they are of the same kind, and merged otherwise; then the new model has the
    `initial` updates, which change nothing yet.
    """
    if _kind(options) == _kind(lora_of(opened.model)):
        return opened
    merged = merged_checkpoint(opened)
    updates = {name: tensor for name, tensor in initial.items() if is_update(name)}
    for name in updates:
        weight = merged.tensors.get(f"{name.removesuffix(MAGNITUDE)}.weight") if name.endswith(MAGNITUDE) else None
        if weight is not None:
            updates[name] = weight.float().norm(dim=1)
    return replace(merged, tensors={**merged.tensors, **updates})


def _kind(options: Options | None) -> Any:
    if options is None:
        return None
    return options["rank"], options.get("alpha") or options["rank"], options["dora"], sorted(options["layers"])
