"""Files of a part of a model: an encoder alone, or an adapter, all but the frozen weights of the encoder."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from densevit.builder.model import build_component
from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.models.encoders.base import ENCODERS, Encoder
from densevit.models.timm_adapters import beit
from densevit.utils.state_dict import fingerprint
from densevit.weights import checkpoint, tensor_files
from densevit.weights.external import ConvertedCheckpoint
from densevit.weights.lora import is_update, lora_of, merged_checkpoint
from densevit.weights.readers import read_tensors

ENCODER = "encoder."
KEPT = ("encoder.mean", "encoder.std")  # of an encoder, besides its updates
HINT = "Name the file of its encoder by the option base: --family-options base=FILE, family_options={'base': 'FILE'}."


def write_adapter(path: Path, opened: ConvertedCheckpoint) -> None:
    """Write a checkpoint without the frozen weights of its encoder. Raises CheckpointError if it has no low-rank
    updates, or its encoder began with random weights. Raises StorageError if the disk is full or read-only."""
    if opened.card is None or lora_of(opened.model) is None:
        raise CheckpointError(f"{opened.path}: its encoder has no low-rank updates (model.encoder.lora) to write.")
    frozen = frozen_tensors(opened.tensors)
    base = {**_source(opened.card, opened.path), "fingerprint": fingerprint(frozen)}
    trained = {name: tensor for name, tensor in opened.tensors.items() if name not in frozen}
    checkpoint.write_weights(path, trained, replace(opened.card, base=base))


def write_encoder(path: Path, opened: ConvertedCheckpoint) -> None:
    """Write the encoder alone, under the names of the model in it (timm's, for ViT and Swin), updates merged. Raises
    StorageError if the disk is full or read-only."""
    tensors = merged_checkpoint(opened).tensors
    state = {name: tensor for name, tensor in tensors.items() if name.startswith(ENCODER) and name not in KEPT}
    inner = {name.split(".")[1] for name in state}
    prefix = f"{ENCODER}{inner.pop()}." if len(inner) == 1 else ENCODER
    renamed = {beit.timm_name(name.removeprefix(prefix)): tensor for name, tensor in state.items()}
    tensor_files.write(path, renamed, {"format": "pt"})


def frozen_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the encoder's weights apart from its updates."""
    return {
        name: tensor
        for name, tensor in tensors.items()
        if name.startswith(ENCODER) and name not in KEPT and not is_update(name)
    }


def _source(card: ModelCard, path: str) -> dict[str, Any]:
    """Return where the encoder's weights were before the training, by the keys of its config."""
    model = card.config.get("model", {})
    encoder = model.get("encoder") or {}
    if model.get("init_from"):
        return {"init_from": model["init_from"], "init_family": model.get("init_family")}
    if encoder.get("weights"):
        return {"weights": encoder["weights"]}
    if encoder.get("pretrained"):
        return {"pretrained": True}
    raise CheckpointError(f"{path}: its encoder began with random weights, which no file has; keep the checkpoint.")


def complete(
    adapter: ConvertedCheckpoint, initial: ConvertedCheckpoint | None, weights: Path | None
) -> ConvertedCheckpoint:
    """Return an adapter with the weights of its encoder. Raises CheckpointError if these are not the weights that it
    was trained on.

    Args:
        initial: the checkpoint that the encoder is from, without updates; None where it is from a file of its own.
        weights: that file; None: the published weights.
    """
    assert adapter.card is not None
    if initial is not None:
        frozen, source = frozen_tensors(initial.tensors), initial.path
    else:
        frozen, source = frozen_tensors(_encoder_tensors(adapter, weights)), str(weights or "the published weights")
    if fingerprint(frozen) != adapter.card.base["fingerprint"]:
        raise CheckpointError(f"{adapter.path}: it was trained on other weights than those of {source}. {HINT}")
    return replace(adapter, tensors={**frozen, **adapter.tensors}, card=replace(adapter.card, base={}))


def _encoder_tensors(adapter: ConvertedCheckpoint, weights: Path | None) -> dict[str, Tensor]:
    options = {**adapter.model["encoder"], "lora": None, "weights": None}
    if "pretrained" in options:
        options["pretrained"] = weights is None
    encoder: Encoder = build_component("encoder", ENCODERS.check(options, "model.encoder"), "model.encoder")
    if weights is not None:
        if not weights.is_file():
            raise CheckpointError(f"{adapter.path}: the weights of its encoder are not at {weights}. {HINT}")
        encoder.load_weights(read_tensors(weights), str(weights))
    return {ENCODER + name: tensor for name, tensor in encoder.state_dict().items()}
