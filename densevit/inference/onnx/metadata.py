"""What an ONNX file is asked to be, and what it says of itself. b images, h x w pixels, k numbers per pixel."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from densevit.errors import CheckpointError
from densevit.inference.camera import Focal
from densevit.inference.onnx.graph import BATCH, demand
from densevit.inference.predictor import MEANINGS
from densevit.model_card import HeadSpec, ModelCard
from densevit.structures import IGNORE, Box, Size


@dataclass(frozen=True, kw_only=True)
class OnnxExportOptions:
    """
    Attributes:
        size: (h, w) of all pictures; with `network` None takes the one that the network is made for.
        batch: so many pictures at once; None for any number.
        heads: empty for all.
        labels: ids of classes, where a head gives logits for each pixel.
        floats: pictures are b 3 h w in [0, 1], not bytes b h w 3.
        network: only the network, for pictures that come resized; these are floats.
        flip, box, focal: as of `forward` and `Predictor`.
    """

    size: Size | None
    batch: int | None = 1
    heads: tuple[str, ...] = ()
    labels: bool = False
    floats: bool = False
    network: bool = False
    flip: bool = False
    box: Box | None = None
    focal: Focal | None = None


def described(card: ModelCard, wanted: OnnxExportOptions) -> dict[str, str]:
    """What the file says of itself, in words and, under `card`, as JSON."""
    assert wanted.size is not None
    (h, w), b = wanted.size, wanted.batch or BATCH
    given = f"float32 {b} x 3 x {h} x {w}, RGB in [0, 1]" if wanted.floats else f"uint8 {b} x {h} x {w} x 3, RGB"
    notes = {"focal": str(wanted.focal) if wanted.focal else "", "window": str(wanted.box) if wanted.box else ""}
    return {
        "input image": given + (", resized as the network wants it" if wanted.network else ", as decoded from a file"),
        **{f"output {name}": meaning(spec, wanted) for name, spec in card.outputs.items()},
        "image_size": f"{h},{w}",
        **{name: value for name, value in notes.items() if value},
        "licence": card.licence,
        "source": card.source,
        "card": json.dumps(card.to_dict()),
    }


def meaning(spec: HeadSpec, wanted: OnnxExportOptions) -> str:
    assert wanted.size is not None
    (h, w), b, k = wanted.size, wanted.batch or BATCH, len(spec.classes) or 1
    if spec.kind == "class":
        return f"float32 {b} x {k}, logits: {MEANINGS[spec.kind]}"
    if spec.kind == "labels" and wanted.labels:
        return f"{'uint8' if k <= IGNORE else 'int64'} {b} x {h} x {w}, ids: {MEANINGS[spec.kind]}, {IGNORE} for none"
    span = f", {spec.range[0]:g} to {spec.range[1]:g}" if spec.range else ""
    what = f"logits: {MEANINGS[spec.kind]}" if spec.kind == "labels" else MEANINGS[spec.kind]
    return f"float32 {b} x {k} x {h} x {w}, {what}{f' in {spec.unit}' if spec.unit else ''}{span}"


def as_text(about: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in about.items() if name != "card")


def read_about(path: Path) -> dict[str, str]:
    """What a file of ours says of itself.

    Raises:
        CheckpointError: it is missing, no ONNX file, or not written here.
    """
    demand("onnx", extra="onnxruntime")
    import onnx

    try:
        file = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf has kinds of its own
        raise CheckpointError(f"{path}: cannot be read as ONNX ({str(error).splitlines()[0]}).") from error
    if file.producer_name != "densevit":
        raise CheckpointError(f"{path}: an ONNX file of {file.producer_name or 'an unnamed program'}, not of densevit.")
    return {entry.key: entry.value for entry in file.metadata_props}
