"""Describes a checkpoint, densevit's or third-party, without building the model: as plain values and as text."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from densevit.depth_corrections import Calibration
from densevit.model_card import HeadSpec, ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.utils.device import choose_device, resolve
from densevit.weights import checkpoint, detect
from densevit.weights.external import FAMILIES, RawCheckpoint, family_class

Description = dict[str, Any]

# Tensors whose shapes identify a model; the first of each kind is shown.
KEY_TENSORS = {
    "patch embedding": r"(patch_embed\.proj|patch_embeddings\.projection|backbone\.stem\.conv|conv1)\.weight$",
    "positions": r"(pos_embed|position_embeddings|position_embedding\.weight|relative_position_bias_table)$",
    "class token": r"(cls_token|class_embedding)$",
    "registers": r"(reg_token|register_tokens|storage_tokens)$",
}
BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers?|resblocks)\.(\d+)\.")


def in_brief(card: ModelCard) -> tuple[str, str, str]:
    """Return the training data without what follows in brackets, the first sentence of the limitations, and what is
    left of both in sentences."""
    data = re.sub(r" \([^()]*\)$", "", card.trained_on)
    first, *others = re.split(r"(?<=[.]) ", card.limitations)
    details = [f"Trained on {card.trained_on}."] if data != card.trained_on else []
    return data, first, " ".join([*details, *others])


def describe_densevit(path: Path) -> Description:
    """Raise CheckpointError: missing, or damaged."""
    tensors, unused, card = checkpoint.read_whole(path)
    source = checkpoint.locate(path)
    manifest = checkpoint.read_manifest(source) if (source / checkpoint.MANIFEST).is_file() else None
    beside = (
        {"step": manifest.step, "samples": manifest.samples, "versions": dict(manifest.versions)} if manifest else {}
    )
    weights = source if not source.is_dir() or checkpoint.is_sharded(source) else source / checkpoint.WEIGHTS
    return {
        "path": str(source),
        "made_by": "densevit",
        **tensor_summary(tensors, weights),
        "stored_unused": len(unused),
        **beside,
        "card": card.to_dict(),
    }


def describe_third_party(raw: RawCheckpoint) -> Description:
    """Describe a third-party file."""
    families = {name: family_class(name) for name in detect.matching_families(raw)}
    kinds = [{"family": name, "means": one.description, "licence": one.licence} for name, one in families.items()]
    return {
        "path": str(raw.path),
        "made_by": "others",
        **tensor_summary(raw.tensors, raw.path),
        "config": {key: raw.config[key] for key in ("model_type", "architectures") if key in raw.config},
        "families": kinds,
        "within": raw.within,
        "aside": ignored_tensors(raw),
        "blocks": num_blocks(raw.tensors),
        "shapes": dict(key_shapes(raw.tensors)),
        "first": list(raw.tensors)[:5],
        "last": {name: list(raw.tensors[name].shape) for name in list(raw.tensors)[-2:]},
    }


def tensor_summary(tensors: Mapping[str, Tensor], path: Path) -> Description:
    held = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
    return {
        "tensors": len(tensors),
        "parameters": sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point()),
        "types": dict(Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())),
        "bytes": sum(file.stat().st_size for file in held),
    }


def num_blocks(tensors: Mapping[str, Tensor]) -> int:
    matches = (BLOCK.search(name) for name in tensors)
    return 1 + max((int(match[1]) for match in matches if match), default=-1)


def key_shapes(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Any]]:
    for what, pattern in KEY_TENSORS.items():
        name = next((name for name in tensors if re.search(pattern, name)), None)
        if name is not None:
            yield what, {"name": name, "shape": list(tensors[name].shape)}


def as_text(facts: Description) -> str:
    lines = [*(_ours(facts) if facts["made_by"] == "densevit" else _others(facts))]
    computed = resolve("auto", choose_device("auto"))
    return "\n".join([*lines, _row("precision", f"auto computes in {computed} here; fp32 to compare with an original")])


def _ours(facts: Description) -> Iterator[str]:
    card = ModelCard.from_dict(facts["card"])
    yield f"{facts['path']}: densevit, {_size(facts)}"
    for name, output in card.outputs.items():
        yield _row(f"head {name}", f"{_meaning(output)}; {_options(card.model.get('heads', {}).get(name, {}))}")
    yield _row("images", f"{_rule(card.resize)}, multiples of {card.multiple}, mean {card.mean}, std {card.std}")
    yield _row("encoder", _options(card.model.get("encoder", {})))
    yield _row("out_indices", ", ".join(map(str, card.out_indices)))
    yield _row("decoder", _options(card.model.get("decoder", {})))
    for name, decoder in card.model.get("decoders", {}).items():
        yield _row(f"decoder of {name}", _options(decoder))
    for name, options in card.conditioning.items():
        yield _row("conditioning", _options({"type": name, **options}))
    if card.base:
        source = card.base.get("init_from") or card.base.get("weights") or "the published weights"
        yield _row("adapter of", f"{source}; the encoder's weights are there")
    yield _row("source", card.source)
    yield _row("licence", card.licence)
    for name, licence in card.teachers.items():
        yield _row("teacher", f"{name}, licence {licence}")
    yield _row("trained on", card.trained_on or "not recorded")
    if card.fov:
        yield _row("fov", f"{card.fov[0]:g} to {card.fov[1]:g} degrees horizontally, of the training images")
    if card.limitations:
        yield _row("limitations", card.limitations)
    if "step" in facts:
        yield _row("step", f"{facts['step']}, {facts['samples']} images seen")
    yield _row("scores", ", ".join(f"{key} {value:.4g}" for key, value in card.scores.items()) or "not recorded")
    yield _row("config", f"{len(card.config)} sections (--json shows them)" if card.config else "not recorded")


def _others(facts: Description) -> Iterator[str]:
    yield f"{facts['path']}: not written by densevit, {_size(facts)}"
    if facts["families"]:
        unique = len(facts["families"]) == 1
        yield "  this is" if unique else "  these have the same names and shapes; give --family NAME"
        for row in facts["families"]:
            yield f"    {row['family']}: {row['means']}. Licence: {row['licence']}."
    else:
        yield f"  of no family known here ({', '.join(sorted(FAMILIES.components))})"
    for key, value in facts["config"].items():
        yield _row(key, str(value))
    if facts["within"]:
        yield _row("its model", f"under '{facts['within']}'{facts['aside']}")
    yield _row("blocks", str(facts["blocks"]))
    for what, row in facts["shapes"].items():
        yield _row(what, f"{row['name']} {row['shape']}")
    yield _row("first", ", ".join(facts["first"]))
    yield _row("last", ", ".join(f"{name} {shape}" for name, shape in facts["last"].items()))


def ignored_tensors(raw: RawCheckpoint) -> str:
    """Return a note on the number of ignored tensors."""
    return f"; {raw.others} other tensors are ignored" if raw.others else ""


def _row(name: str, value: str) -> str:
    return f"  {name + ':':<17} {value}"


def _size(facts: Description) -> str:
    types = ", ".join(f"{count} {name}" for name, count in facts["types"].items())
    parameters, megabytes = facts["parameters"] / 1e6, facts["bytes"] / 1e6
    return f"{parameters:.2f} M parameters in {facts['tensors']} tensors ({types}), {megabytes:.1f} MB"


def _meaning(output: HeadSpec) -> str:
    what = f"{output.kind}{f' in {output.unit}' if output.unit else ' without unit'}"
    span = f", {output.range[0]:g} to {output.range[1]:g}" if output.range else ""
    span += f" for a focal length of {output.focal:g} pixels of the network's input" if output.focal else ""
    classes = f", {len(output.classes)} classes" if output.classes else ""
    calibration = output.calibration
    return what + span + classes + (f", calibrated: {describe_calibration(calibration)}" if calibration else "")


def describe_calibration(result: Calibration) -> str:
    errors = f", AbsRel {result.abs_rel[0]:.4f} before and {result.abs_rel[1]:.4f} after" if result.abs_rel else ""
    return f"{result.describe()}, from {result.source}{errors}"


def _rule(rule: PreprocessConfig) -> str:
    if rule.size is None:
        return "not resized, padded"
    h, w = rule.size
    return f"resized {rule.interpolation}, {rule.mode} {h}x{w}, answers back {rule.output_interpolation}"


def _options(component: Mapping[str, Any]) -> str:
    # Zero and empty options are left out, False is not.
    options = {key: value for key, value in component.items() if key != "type" and (value or value is False)}
    return f"{component.get('type', '?')} ({', '.join(f'{key} {value}' for key, value in options.items())})"
