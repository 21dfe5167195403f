"""The options and the result of an export, ONNX or PT2, and the metadata of its file.

b images, h x w pixels, k numbers per pixel.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from densevit.errors import CheckpointError, ConfigError, StorageError, first_line
from densevit.inference.camera import CameraNumbers
from densevit.inference.onnx.graph import BATCH
from densevit.model_card import HeadSpec, ModelCard
from densevit.model_inputs import INPUT_KINDS, InputKind
from densevit.models.conditioning.base import input_names
from densevit.structures import IGNORE, Box, Size
from densevit.utils.packages import require_packages

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, kw_only=True)
class OnnxExportOptions:
    size: Size | None  # (h, w) of all images; with `network` None takes the one that the network is made for
    any_size: bool = False  # images of any size, in place of `size`
    batch: int | None = 1  # number of images at once; None for any
    heads: tuple[str, ...] = ()  # empty for all
    argmax: bool = False  # ids of classes, where a head gives logits for each pixel
    floats: bool = False  # images are b 3 h w in [0, 1], not bytes b h w 3
    network: bool = False  # only the network, for images that are already resized; these are floats
    flip: bool = False  # as in `forward` and `Predictor`
    box: Box | None = None  # as in `forward` and `Predictor`
    # of the network; preprocessing, postprocessing, input and outputs are fp32 in any case
    precision: Literal["fp32", "fp16"] = "fp32"
    camera: CameraNumbers | None = None  # of all images; None makes it an input of a model whose metres depend on it

    @property
    def sides(self) -> tuple[object, object]:
        """Height and width, in words where they are any."""
        if self.any_size:
            return "height", "width"
        assert self.size is not None
        return self.size


def metadata(card: ModelCard, options: OnnxExportOptions) -> dict[str, str]:
    """Return the metadata of the file: in words and, under `card`, as JSON."""
    (h, w), b = options.sides, options.batch or BATCH
    shape = f"float32 {b} x 3 x {h} x {w}, RGB in [0, 1]" if options.floats else f"uint8 {b} x {h} x {w} x 3, RGB"
    flip = options.flip or card.resize.flip
    notes = {INPUT_KINDS["camera"].exported: options.camera, "window": options.box, "flip": flip}
    return {
        "input image": shape + (", resized as the network wants it" if options.network else ", as decoded from a file"),
        **{f"input {kind.exported}": kind.describe(b, h, w) for kind in file_inputs(card, options)},
        **{f"output {name}": describe_output(spec, options) for name, spec in card.outputs.items()},
        "image_size": f"{h},{w}",
        "precision": options.precision,
        **{name: str(value) for name, value in notes.items() if value},
        "licence": card.licence,
        "source": card.source,
        "card": json.dumps({**card.to_dict(), "config": {}}),  # which holds paths of the machine that trained
    }


def file_inputs(card: ModelCard, options: OnnxExportOptions) -> list[InputKind]:
    """Return what the file takes beside images: not the camera where it is fixed."""
    kinds = [INPUT_KINDS[name] for name in input_names(card)]
    fixed = {"camera"} if options.camera is not None else set()
    return [kind for kind in kinds if kind.exported and kind.name not in fixed]


def describe_output(spec: HeadSpec, options: OnnxExportOptions) -> str:
    (h, w), b, kind = options.sides, options.batch or BATCH, spec.output_kind
    k = len(spec.classes) if kind.has_classes else kind.channels
    what = f"logits: {kind.meaning}" if kind.has_classes else kind.meaning
    if kind.image_level:
        return f"float32 {b} x {k or 'k'}, {what}"
    if kind.has_classes and options.argmax:
        return f"{'uint8' if k <= IGNORE else 'int64'} {b} x {h} x {w}, ids: {kind.meaning}, {IGNORE} for none"
    span = f", {spec.metres[0]:g} to {spec.metres[1]:g}" if spec.metres else ""
    return f"float32 {b} x {k or 'k'} x {h} x {w}, {what}{f' in {spec.unit}' if spec.unit else ''}{span}"


def as_text(about: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in about.items() if name != "card")


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a file that densevit wrote. Raises CheckpointError if it is missing, no ONNX file, or not
    written by densevit."""
    return metadata_of(open_graph(path))


def open_graph(path: Path) -> "onnx.ModelProto":
    """Return a file that densevit wrote, without weights that lie in a second file. Raises CheckpointError: see
    `read_metadata`."""
    require_packages("onnx", extra="onnxruntime")
    import onnx

    if not path.is_file():  # to open a pipe would wait for a writer for ever
        raise CheckpointError(f"{path}: no such file.")
    try:
        graph = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf has its own error classes
        raise CheckpointError(f"{path}: cannot be read as ONNX ({first_line(error)}).") from error
    if graph.producer_name != "densevit":
        raise CheckpointError(
            f"{path}: an ONNX file of {graph.producer_name or 'an unnamed program'}, not of densevit."
        )
    return graph


def metadata_of(graph: "onnx.ModelProto") -> dict[str, str]:
    return {entry.key: entry.value for entry in graph.metadata_props}


@dataclass(frozen=True)
class ExportedModel:
    """An ONNX file or a compiled package."""

    paths: tuple[Path, ...]  # the file, and the one beside it that holds weights of over 2 GB
    errors: Mapping[str, float]  # by head, the largest difference from torch as a share of the largest value
    metadata: Mapping[str, str]  # of the file

    def __str__(self) -> str:
        lines = [f"{path}: {path.stat().st_size / 1e6:.1f} MB" for path in self.paths]
        lines += [f"  {name}: {text}" for name, text in self.metadata.items() if name.startswith("input ")]
        for name, error in self.errors.items():
            about = self.metadata[f"output {name}"]
            lines.append(f"  output {name}: {about}; max. difference from PyTorch {error:.1e} (relative)")
        return "\n".join(lines)


def check_path(path: Path, suffix: str, *, others: Sequence[Path] = (), overwrite: bool = False) -> None:
    """Raise ConfigError: a name of another suffix or not in UTF-8, or the file or one of `others` exists. Raises
    StorageError: no such folder."""
    if path.suffix.lower() != suffix:
        raise ConfigError(f"--output: {path} does not end in {suffix}.")
    if str(path).encode(errors="ignore").decode() != str(path):
        raise ConfigError(f"--output: {path} is not UTF-8, in which the runtimes open files.")
    if not path.parent.is_dir():
        raise StorageError(f"{path}: its folder does not exist.")
    existing = [str(file) for file in (path, *others) if file.exists()]
    if existing and not overwrite:
        raise ConfigError(f"--output: {' and '.join(existing)} exists already; --overwrite replaces it.")
