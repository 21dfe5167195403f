"""Converts checkpoints between layouts; what is written is read back and compared first."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from densevit.builder.adapter import write_adapter, write_encoder
from densevit.builder.checkpoint import build_and_load, open_checkpoint, parse_model
from densevit.config.yaml_document import flat
from densevit.errors import CheckpointError, ConfigError
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.registry import did_you_mean
from densevit.utils import atomic_io
from densevit.weights import checkpoint, detect, tensor_files
from densevit.weights.external import FAMILIES, RawCheckpoint, WritableFamily, family_class
from densevit.weights.key_mapping import num_blocks
from densevit.weights.readers import PICKLED, SAFETENSORS

OURS = "densevit"
PARTS = {"adapter": write_adapter, "encoder": write_encoder}  # of a model
# Options that a trained model no longer depends on, or that follow from the names and shapes of its tensors.
IGNORED_OPTIONS = frozenset(
    ["size", "weights", "pretrained", "init", "fix_init", "positions", "layer_scale", "mlp_ratio", "initial_depth",
     "pos_drop", "attn_drop", "proj_drop", "drop_path"]
)  # fmt: skip
# Options that may differ between layouts: the weights fit, predictions differ a little.
HARMLESS = {
    "encoder.pos_embed_interpolation": "positions are resampled differently: maps differ by percents at other sizes",
    "encoder.eps": "LayerNorms have another epsilon",
}


# The prediction covers the padded input: one layout crops it, the other resizes it.
PADDED_NOTE = "maps differ where sides are no multiples of the patch"
SAME_SCALE_NOTES = {"heads.depth.scale": PADDED_NOTE, "heads.depth.interpolation": PADDED_NOTE}


def convert(source: str, target: Path, to: str, family: str | None = None, **options: Any) -> list[str]:
    """Write a checkpoint in another layout. Raises CheckpointError if the layout cannot hold this model, or something
    stands at `target`. Raises ConfigError: no such layout, or a target with a suffix that is not written. Returns what
    will differ, one sentence each; the tensors are always equal.

    Args:
        target: a file, or a folder where the layout is one (huggingface; densevit where the name has no suffix).
        to: `densevit`, `adapter`, `encoder` or a family's name.
        family, options: of the source, where its keys cannot tell.
    """
    if to not in (OURS, *PARTS, *FAMILIES.components):
        raise ConfigError(f"--to: no layout '{to}'.{did_you_mean(to, [OURS, *PARTS, *FAMILIES.components])}")
    if target.exists():
        raise CheckpointError(f"{target}: exists already; conversions replace nothing.")
    if to in PARTS and target.suffix not in SAFETENSORS:
        raise ConfigError(f"{target}: an {to} is a {' or '.join(SAFETENSORS)} file.")
    if target.suffix not in ("", *SAFETENSORS, *PICKLED) or (to == OURS and target.suffix not in ("", *SAFETENSORS)):
        kinds = " or ".join(SAFETENSORS if to == OURS else (*SAFETENSORS, *PICKLED[:2]))
        raise ConfigError(f"{target}: written are {kinds} files, and folders, which have no suffix.")
    opened = open_checkpoint(source, family, **options)
    if to in PARTS:
        PARTS[to](target, opened)
        return []
    model, card = build_and_load(opened)
    if to == OURS:
        weights = {**model.state_dict(), **{checkpoint.UNUSED + name: tensor for name, tensor in opened.unused.items()}}
        save(target, lambda path: checkpoint.write_weights(path, weights, card), {})
        return []
    model_card = with_published_head(with_resolved_options(model, card, opened.unused))
    tensors = {published_name(name, card): tensor for name, tensor in model.state_dict().items() if name not in BUFFERS}
    try:
        target_class = family_class(to)
        if not issubclass(target_class, WritableFamily):
            raise CheckpointError(f"weights are not written back to the layout of {target_class.__name__}.")
        layout = target_class.writer(model_card)
        written = layout.write({**tensors, **opened.unused}, model_card)
        configs = layout.describe(model_card)
        notes = verify(layout, RawCheckpoint(target, written, *_config_files(configs)), tensors, model_card)
    except CheckpointError as error:
        raise CheckpointError(f"{source}: cannot become {to}: {error}") from None
    if configs and target.suffix:
        raise ConfigError(
            f"{target}: {to} is a folder of {', '.join(configs)} and {detect.IN_FOLDER[0]}; give no suffix."
        )
    save(target, lambda path: write_tensors(path, written), configs)
    return notes


BUFFERS = ("encoder.mean", "encoder.std")


def verify(layout: WritableFamily, raw: RawCheckpoint, tensors: Mapping[str, Tensor], card: ModelCard) -> list[str]:
    """Check that the layout, read again, gives the same model with the same tensors. Raises CheckpointError if it
    cannot hold this model; naming every option. Returns harmless differences, one sentence each."""
    again = layout.read(raw)
    mine = flat(card.model)
    other = flat(parse_model(again.model, raw.path).spec())
    for key in {*BUFFERS} & mine.keys() & other.keys():  # float32 in files; options have more digits
        if torch.allclose(torch.tensor(mine[key]), torch.tensor(other[key]), atol=0):
            mine[key] = other[key]
    differing = [key for key in mine if key.rpartition(".")[2] not in IGNORED_OPTIONS and mine[key] != other.get(key)]
    harmless = HARMLESS | (SAME_SCALE_NOTES if dpt_output_scale(mine) == dpt_output_scale(other) else {})
    wrong = [f"{key} is {mine[key]!r}, there {other.get(key)!r}" for key in differing if key not in harmless]
    lost = [
        name for name in tensors if name not in again.tensors or not torch.equal(again.tensors[name], tensors[name])
    ]
    wrong += [f"{len(lost)} tensors have no place there: {', '.join(lost[:5])}"] if lost else []
    if wrong:
        raise CheckpointError(f"it would be another model: {'; '.join(wrong)}.")
    notes = [f"{key} is {mine[key]!r}, there {other[key]!r}: {harmless[key]}." for key in differing]
    here, there = asdict(card.resize), asdict(again.resize)
    moved = [f"{key} {here[key]}, there {there[key]}" for key in here if here[key] != there[key]]
    if moved:
        notes.append(f"images are preprocessed differently: here {'; '.join(moved)}.")
    for name, spec in card.outputs.items():
        if spec.calibration is not None:
            notes.append(f"{name} is calibrated ({spec.calibration.describe()}), which has no place there.")
        if spec.palette:
            notes.append(f"the colours of {name}'s classes have no place there.")
    return notes + layout.unsaid(raw)


def dpt_output_scale(spec: Mapping[str, Any]) -> float | None:
    """Return how much the depth head enlarges the map of decoder `dpt`, which has 8 pixels a patch."""
    to_network = spec.get("encoder.patch_size", 0) / 8
    scale: float | None = spec.get("heads.depth.scale")
    return to_network if scale is None else scale


def with_resolved_options(model: DenseModel, card: ModelCard, unused: Mapping[str, Tensor]) -> ModelCard:
    """Return the card with the values that presets and defaults stand for, for layouts without them."""
    encoder, decoder = dict(card.model["encoder"]), dict(card.model["decoder"])
    if encoder["type"] == "vit":
        vit: Any = model.encoder.vit
        sides = {side * model.encoder.patch_size for side in vit.grid}
        blocks = max(len(vit.blocks), num_blocks(unused))  # some may lie behind the last out index
        encoder |= {"dim": vit.dim, "depth": blocks, "heads": vit.blocks[0].attn.heads}
        encoder |= {"image_size": sides.pop() if len(sides) == 1 else encoder["image_size"]}
        encoder |= {"out_indices": list(card.out_indices)}
    if decoder["type"] == "dpt":
        levels: Any = model.decoder.reassemble
        decoder["hidden"] = [level.conv.in_channels for level in levels]
    return replace(card, model={**card.model, "encoder": encoder, "decoder": decoder})


def with_published_head(card: ModelCard) -> ModelCard:
    """Return the card of a model with one head, which published layouts call `depth`, or by its kind."""
    if len(card.model["heads"]) != 1:
        return card  # the families themselves refuse it
    ((name, head),), published = card.model["heads"].items(), published_head(card)
    outputs = {published + key.removeprefix(name): spec for key, spec in card.outputs.items()}
    return replace(card, outputs=outputs, model={**card.model, "heads": {published: head}})


def published_head(card: ModelCard) -> str:
    output = next(iter(card.outputs.values()))
    return "depth" if output.output_kind.is_depth else output.kind


def published_name(name: str, card: ModelCard) -> str:
    head = next(iter(card.outputs))
    start = f"heads.{head}."
    return f"heads.{published_head(card)}.{name.removeprefix(start)}" if name.startswith(start) else name


def _config_files(configs: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return configs.get("config.json", {}), configs.get("preprocessor_config.json", {})


def save(target: Path, write: Any, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a file, or a folder with its configs; whole or not at all."""
    if target.suffix:
        write(target)
        return
    with atomic_io.atomic_folder(target) as folder:
        write(folder / detect.IN_FOLDER[0])
        for name, content in configs.items():
            atomic_io.write_text(folder / name, json.dumps(content, indent=2) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    if path.suffix in SAFETENSORS:
        tensor_files.write(path, tensors, {"format": "pt"})
    else:
        dense = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        atomic_io.atomic_write(path, lambda file: torch.save(dense, file))
