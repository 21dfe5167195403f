"""A file of `densevit export` in place of a checkpoint: a predictor that ONNX Runtime or OpenVINO computes.

b images, h x w pixels, k numbers per pixel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import CheckpointError, ConfigError, DataError, first_line
from densevit.inference.backends.auto import resolve_device_and_precision
from densevit.inference.backends.onnx_runtimes import RUNTIMES, ConvertedNetwork, Run
from densevit.inference.forward import check_box
from densevit.inference.onnx.graph import INPUT
from densevit.inference.onnx.metadata import metadata_of, open_graph
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, ModelCard
from densevit.model_inputs import INPUT_KINDS, NO_INPUTS, InputKind, ModelInputs
from densevit.models.conditioning.base import CONDITIONINGS
from densevit.ops.calibration import corrects_the_mean
from densevit.ops.geometry import field_of_view
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Box, Size
from densevit.utils.atomic_io import sha256
from densevit.utils.packages import is_installed
from densevit.weights.checkpoint import parse_card

if TYPE_CHECKING:
    import onnx

PREFERRED = ("openvino", "onnxruntime")  # the faster one first (benchmarks/2026-11-22-cpu.md)


class OnnxInput(NamedTuple):
    """What a file takes."""

    floats: bool  # b 3 h w in [0, 1]; else bytes b h w 3
    batch: int | None  # images at once; None: any
    size: Size | None  # None: any
    more: tuple[InputKind, ...] = ()  # what it takes beside the image, in this order


class OnnxModule(nn.Module):
    """The graph as a network for images as they are: preprocessing and resizing back are part of it."""

    def __init__(
        self, run: Run, takes: OnnxInput, names: list[str], digest: bytes, box: Box | None = None, no_flip: str = ""
    ) -> None:
        """
        Args:
            box: the window of images that the graph shows the network; outside it, outputs are NaN.
            names: of the heads.
            digest: of the file; a resumed export asks whether it is the same model.
            no_flip: see `reason_against_flip`.
        """
        super().__init__()
        self.run, self.takes, self.names, self.box, self.no_flip = run, takes, names, box, no_flip
        self.register_buffer("sha256", torch.frombuffer(bytearray(digest), dtype=torch.uint8))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs beside images."""
        return tuple(kind.name for kind in self.takes.more)

    def forward(
        self, image: Float[Tensor, "b 3 h w"], inputs: ModelInputs = NO_INPUTS
    ) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """Raise DataError: images of a size that the file is not for."""
        size = (image.shape[-2], image.shape[-1])
        if self.takes.size not in (None, size):
            (h, w), (height, width) = size, self.takes.size or size
            raise DataError(
                f"an image of {h}x{w}, and this ONNX file is for {height}x{width}; "
                "export --image-size dynamic writes one for all sizes."
            )
        pixels = image if self.takes.floats else image.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1)
        more = [
            kind.to_file(inputs[kind.name]) if kind.name in inputs else kind.example(len(image), size)
            for kind in self.takes.more
        ]
        outputs = ConvertedNetwork(self.run, self.takes.batch or len(image))(pixels, *more)
        return {name: y if y.ndim == 4 else y[:, :, None, None] for name, y in zip(self.names, outputs, strict=True)}


class OnnxPredictor(Predictor):
    """A predictor whose network is a file; it refuses options that the file cannot serve."""

    model: OnnxModule

    def with_options(self, **options: Any) -> Predictor:
        """See `Predictor.with_options`. Raises ConfigError: scales, another runtime, or `flip` of a file whose maps
        cannot be averaged with those of mirror images."""
        if "runtime" in options:
            raise ConfigError(f"runtime: {self.runtime} computes this file; load it again by another one.")
        check_options(options, "this file", self.model.no_flip)
        return super().with_options(**options)


def check_options(options: Mapping[str, Any], file: object, no_flip: str) -> None:
    """Raise ConfigError: options of a predictor that a file cannot serve."""
    if any(scale != 1 for scale in options.get("scales", ())):
        raise ConfigError(f"--scales: {file} itself resizes images, all to one scale; take the checkpoint.")
    if options.get("flip") and no_flip:
        raise ConfigError(f"--flip: {file} {no_flip}; export it with --flip.")


def reason_against_flip(card: ModelCard, size: Size | None, box: Box | None, camera: Sequence[float]) -> str:
    """Return why maps of a file are not those to average with their mirror images', or "". `camera`: that of the file,
    its focal length or fx, fy, cx, cy; empty for none."""
    if size is not None and box is not None and box[2] + box[3] != size[1]:
        return f"sees columns {box[2]} to {box[3]} of {size[1]}, which are others in the mirror image"
    components: Mapping[str, Any] = CONDITIONINGS.components
    network_sees = any(components[name].input == "camera" for name in card.conditioning)
    if network_sees and size is not None and camera[2:] and abs(2 * camera[2] - (size[1] - 1)) > 1e-3:
        return f"holds a camera with its centre at column {camera[2]:g} of {size[1]}, another in the mirror image"
    for name, spec in card.outputs.items():
        if spec.calibration is not None and corrects_the_mean(name, card.outputs, spec.calibration):
            return f"corrects '{name}' by {spec.calibration.describe()}, which a checkpoint does after averaging"
    return ""


def load_onnx(
    path: Path, *, runtime: str = "torch", device: str | torch.device = "auto", precision: str = "auto", **options: Any
) -> Predictor:
    """Return a predictor that gives what the file gives, for images of the size that it is for. Raises CheckpointError:
    missing, or no file of `export`. Raises ConfigError: made with `--argmax` or with a focal length as an input; int8
    is asked for and the file is not; `flip` of a file that has it; bf16 or fp16 for a file for any size; tiles for one
    with a focal length; see also `check_options`, `resolve_device_and_precision`.

    Args:
        runtime: openvino or onnxruntime; any other word takes OpenVINO, or ONNX Runtime where that is not installed.
        precision: of what is not int8 in the file; a file for any size is computed in fp32 only.
        options: of `Predictor`.
    """
    name = runtime if runtime in RUNTIMES else next(filter(is_installed, PREFERRED), PREFERRED[-1])
    int8 = precision == "int8"
    target, resolved = resolve_device_and_precision(name, device, "auto" if int8 else precision, compiled=False)
    if options.pop("compile", False):
        raise ConfigError(f"runtime: {name} computes {path} in place of torch; leave out `compile`.")
    graph = open_graph(path)
    about = metadata_of(graph)
    if options.get("flip") and about.get("flip"):  # the views of a teacher would be the same
        raise ConfigError(
            f"--flip: {path} itself averages with the mirror image; leave it out, of pseudo-label by --no-flip."
        )
    stored = about.get("precision", "fp32")
    if int8 and not stored.startswith("int8"):
        raise ConfigError(
            f"precision: {path} is in {stored}; export --precision int8 --max-drop d1=0.005 --data ... writes int8."
        )
    takes, original = image_input(graph, path), parse_card(about.get("card", ""), path)
    if missing := original.outputs.keys() - {output.name for output in graph.graph.output}:
        raise CheckpointError(f"{path}: its card names outputs that it does not have: {', '.join(sorted(missing))}.")
    fixed = about.get(INPUT_KINDS["camera"].exported) if original.needs_camera else None
    card = card_of_images(original, takes)
    camera: list[float] = []
    if fixed is not None and takes.size is not None:
        if options.get("tiling") is not None:
            raise ConfigError(f"--tile-size: {path} holds the camera of whole images; tiles need the checkpoint.")
        try:
            camera = [float(number) for number in fixed.strip("()").split(",")]
            card = replace(card, fov=(field_of_view(takes.size[1], camera[0]),) * 2)
        except (ArithmeticError, ValueError):
            raise CheckpointError(f"{path}: damaged; its camera is {fixed!r}.") from None
    window = about.get("window")
    try:
        box = check_box(map(int, window.strip("()").split(",")), takes.size or (0, 0)) if window else None
    except (DataError, ValueError):
        raise CheckpointError(f"{path}: damaged; its window is {window!r}.") from None
    check_options(options, path, no_flip := reason_against_flip(original, takes.size, box, camera))
    if takes.size is None and resolved in ("bf16", "fp16"):  # where to sample is computed in it, too
        if precision not in ("auto", "int8"):
            raise ConfigError(
                f"precision: {path} computes where to sample images of any size, which {resolved} is too coarse for; "
                "take fp32, or a file for one size."
            )
        resolved = "fp32"
    try:
        run = RUNTIMES[name].open(path, resolved)
    except Exception as error:  # each runtime has its own classes
        if resolved != "fp32" and precision in (
            "auto",
            "int8",
        ):  # OpenVINO with AMX lacks bf16 between some int8 layers
            return load_onnx(path, runtime=runtime, device=device, precision="fp32", **options)
        raise CheckpointError(f"{path}: {name} does not open it ({first_line(error)}).") from error
    module = OnnxModule(run, takes, list(card.outputs), bytes.fromhex(sha256(path)), box, no_flip)
    predictor = OnnxPredictor(module, card, device=target, precision=resolved, **options)
    vars(predictor)["runtime"] = name  # which the module is
    return predictor


def image_input(graph: "onnx.ModelProto", path: Path) -> OnnxInput:
    """Raise ConfigError if the file takes a focal length, or gives ids of classes. Raises CheckpointError if its image
    has not the shape of one."""
    import onnx

    if not graph.graph.input or len(graph.graph.input[0].type.tensor_type.shape.dim) != 4:
        raise CheckpointError(f"{path}: damaged; its first input is no batch of images.")
    image, *more = graph.graph.input
    names, camera = [entry.name for entry in more], INPUT_KINDS["camera"].exported
    kinds = {kind.exported: kind for kind in INPUT_KINDS.values() if kind.exported and kind.name != "camera"}
    if image.name != INPUT or not kinds.keys() >= set(names):
        raise ConfigError(
            f"{path}: takes {', '.join([image.name, *names])}; a file that takes {camera} cannot stand for a "
            f"checkpoint: export it with --{camera} PIXELS (and --image-size HEIGHT,WIDTH)."
        )
    if any(y.type.tensor_type.elem_type != onnx.TensorProto.FLOAT for y in graph.graph.output):
        raise ConfigError(f"{path}: gives ids of classes; export it without --argmax.")
    kind = image.type.tensor_type
    floats = kind.elem_type == onnx.TensorProto.FLOAT
    batch, *sides = [side.dim_value or None for side in kind.shape.dim]
    h, w = sides[1:] if floats else sides[:2]
    return OnnxInput(floats, batch, None if h is None or w is None else (h, w), tuple(kinds[name] for name in names))


def card_of_images(card: ModelCard, takes: OnnxInput) -> ModelCard:
    """Return the card without what the graph has done: preprocessing, metres by the camera, calibration."""
    outputs: dict[str, HeadSpec] = {name: spec.transformed() for name, spec in card.outputs.items()}
    components: Mapping[str, Any] = CONDITIONINGS.components
    names = {kind.name for kind in takes.more}
    taken = {name: options for name, options in card.conditioning.items() if components[name].input in names}
    model = {key: value for key, value in card.model.items() if key != "camera"} | {"conditioning": taken}
    return replace(card, outputs=outputs, model=model, resize=PreprocessConfig(), multiple=1)
