"""Exports a checkpoint to one ONNX file: images in, maps out, without densevit or torch.

Preprocessing and postprocessing are part of the graph, by the code that predicts (forward.py). b images, h x w pixels,
k numbers per pixel.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.inference.backends.onnx_runtimes import OnnxRuntime
from densevit.inference.camera import as_camera, check_camera
from densevit.inference.forward import check_box, check_network_size, forward
from densevit.inference.onnx.dynamic_size import (
    GRID,
    RESIZED,
    NetworkSizes,
    PaddedModel,
    check_any_size,
    with_known_sizes,
)
from densevit.inference.onnx.graph import NamedOutputs, save_graph
from densevit.inference.onnx.metadata import (
    ExportedModel,
    OnnxExportOptions,
    as_text,
    check_path,
    file_inputs,
    metadata,
)
from densevit.inference.onnx.verify import TOLERANCES, check_errors, torch_predictor, verify_onnx
from densevit.model_card import HeadSpec, ModelCard, head_giving
from densevit.model_inputs import INPUT_KINDS, NO_INPUTS
from densevit.models.conditioning.base import input_names
from densevit.ops.resize import network_size
from densevit.output_kinds import argmax_or_ignore
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import IGNORE, Size
from densevit.utils import atomic_io
from densevit.utils.packages import require_packages

NEEDS = OnnxRuntime.needs


class ExportedPipeline(nn.Module):
    """Preprocessing, model and postprocessing for the heads of `card`; b k from a head for whole images."""

    camera: Tensor

    def __init__(self, model: nn.Module, card: ModelCard, options: OnnxExportOptions) -> None:
        super().__init__()
        self.model, self.card, self.options = model, card, options
        self.kinds = file_inputs(card, options)
        if options.camera is not None:
            assert options.size is not None
            self.register_buffer("camera", as_camera(options.camera, options.size).values)

    def forward(self, image: Tensor, tensors: Mapping[str, Tensor] = NO_INPUTS) -> dict[str, Tensor]:
        """Return `tensors`: the further inputs of the file; the shapes of those called `resized` and `grid` are the
        sizes in a graph for images of any size (dynamic_size.py)."""
        x = image if self.options.floats else image.permute(0, 3, 1, 2).float().div(255)
        size = (x.shape[-2], x.shape[-1])
        inputs = {kind.name: kind.from_file(tensors[kind.exported], size) for kind in self.kinds}
        if hasattr(self, "camera"):
            inputs["camera"] = self.camera
        model, config = self.model, self.card.resize
        if GRID in tensors:
            config, padded = with_known_sizes(config, self.card.multiple, tensors[GRID], tensors.get(RESIZED))
            model = PaddedModel(model, padded)
        outputs = forward(
            model,
            x,
            config,
            self.card.multiple,
            inputs,
            box=self.options.box,
            flip=self.options.flip,
            heads=self.card.outputs,
        )
        return {name: self.postprocess(outputs[name], spec) for name, spec in self.card.outputs.items()}

    def postprocess(self, y: Tensor, spec: HeadSpec) -> Tensor:
        if spec.output_kind.image_level:
            return y.flatten(1)
        if spec.output_kind.has_classes and self.options.argmax:
            ids = argmax_or_ignore(y)
            return ids.to(torch.uint8) if y.shape[1] <= IGNORE else ids
        return y


def on_cpu(model: nn.Module) -> nn.Module:
    """Return the model in fp32 on the CPU, as a copy where it is not: a predictor may hold it."""
    tensors = (*model.parameters(), *model.buffers())
    there = all(x.device.type == "cpu" and (x.dtype == torch.float32 or not x.is_floating_point()) for x in tensors)
    return (model if there else deepcopy(model).cpu().float()).eval()


def as_half(model: nn.Module) -> nn.Module:
    """Return a copy that computes in fp16, for images in fp32."""
    half = deepcopy(model).half()
    half.register_forward_pre_hook(lambda _, inputs: (inputs[0].half(), *inputs[1:]))
    return half


def example_inputs(card: ModelCard, options: OnnxExportOptions, count: int, size: Size) -> dict[str, Tensor]:
    """Return the inputs of the graph by name, `image` first: `count` images of one size."""
    h, w = size
    image = torch.zeros(count, 3, h, w) if options.floats else torch.zeros(count, h, w, 3, dtype=torch.uint8)
    return {"image": image, **{kind.exported: kind.example(count, size) for kind in file_inputs(card, options)}}


def check_output(path: Path, *, overwrite: bool = False) -> None:
    """Raise before a checkpoint is read where the export would fail. Raises ConfigError: packages that are not
    installed. Raises ConfigError, StorageError: see `check_path`."""
    require_packages(*NEEDS, extra="onnxruntime")
    check_path(path, ".onnx", others=[weights_file(path)], overwrite=overwrite)


def export_onnx(model: nn.Module, card: ModelCard, path: Path, options: OnnxExportOptions) -> ExportedModel:
    """Write the file, run it in ONNX Runtime, and keep it only if its outputs are those of torch. Raises
    ConfigError, DataError: no such head, a size that does not fit, or a network that ONNX cannot express; nothing is
    written. Raises StorageError if the disk is full."""
    card, options = check_options(card, options)
    if options.any_size:
        check_any_size(model, card)
    sizes = NetworkSizes(card.resize, card.multiple, rows=2 if options.floats else 1) if options.any_size else None
    size, shapes = (options.size, ()) if sizes is None else sizes.examples()
    assert size is not None
    examples = example_inputs(card, options, options.batch or 2, size)
    more = [*list(examples)[1:], *(() if sizes is None else sizes.names)]
    model = on_cpu(model)
    network = model if options.precision == "fp32" else as_half(model)
    pipeline = NamedOutputs(ExportedPipeline(network, card, options), list(card.outputs), more)
    about = metadata(card, options)
    atomic_io.remove_stale_temporaries(path.parent)
    with atomic_io.temporary_folder(path) as folder:
        made = folder / path.name
        save_graph(
            pipeline,
            (*examples.values(), *shapes),
            made,
            any_batch=options.batch is None,
            sizes=sizes,
            metadata=about,
            text=as_text(about),
        )
        predictor, tried = torch_predictor(model, card, options), [size] if sizes is None else sizes_to_try(card)
        errors = verify_onnx(made, predictor, tried, options)
        whole = "--no-preprocessing exports the network without resizing."
        advice = whole if options.precision == "fp32" else "Export it in fp32."
        check_errors(errors, TOLERANCES[options.precision], "exported graph", advice)
        return ExportedModel(move_into_place(made, path), errors, about)


def check_options(card: ModelCard, options: OnnxExportOptions) -> tuple[ModelCard, OnnxExportOptions]:
    """Return the card and the options of the file: its heads, its preprocessing and its size, all checked. Raises
    ConfigError, DataError: see `export_onnx`."""
    kinds = {name: spec.output_kind for name, spec in card.outputs.items()}
    names = options.heads or tuple(name for name, kind in kinds.items() if not kind.estimates_camera)
    for name in names:
        if name not in card.outputs:
            raise ConfigError(f"--heads: this model has no head '{name}'. It has: {', '.join(card.outputs)}.")
    # Masks of queries are segments only with the classes of these queries; uncertainty is calibrated with its depth, by
    # whose camera and calibration measurements beside the image are brought to what the network knows.
    measured = any(name != "camera" for name in input_names(card))
    scaled = [name for name, spec in card.outputs.items() if measured and spec != spec.transformed()]
    names = tuple(dict.fromkeys([*names, *map(head_giving, names), *scaled]))
    classes = (other for other, spec in card.outputs.items() if spec.kind == "query_classes")
    names = tuple(dict.fromkeys([*names, *(other for other in classes if head_giving(other) in names)]))
    card = replace(card, outputs={name: card.outputs[name] for name in names})
    if clash := [name for name in names if name in ("image", *(kind.exported for kind in file_inputs(card, options)))]:
        raise ConfigError(f"--heads: '{clash[0]}' is the name of an input of the file, too; leave this head out.")
    if options.argmax and not any(kinds[name].has_classes and not kinds[name].image_level for name in names):
        raise ConfigError("--argmax: no head here classifies pixels.")
    size = options.size
    if options.network:
        size = size or size_of_network(card)
        same = PreprocessConfig(padding=card.resize.padding, single_resize=card.resize.single_resize)
        card, options = replace(card, resize=same), replace(options, floats=True)
    if options.camera is not None and not card.needs_camera:
        raise ConfigError(f"--{INPUT_KINDS['camera'].exported}: no output of this file depends on it; leave it out.")
    if options.any_size:
        assert options.box is None, "a window of images of any size"
        if options.camera is not None:
            name = INPUT_KINDS["camera"].exported
            raise ConfigError(f"--{name}: with --image-size dynamic that of each image is an input of the file.")
        return card, replace(options, size=None)
    if size is None:
        raise ConfigError("--image-size: give height and width of the images that the file is for, as 480,640.")
    if card.resize.window is not None and options.batch is None:
        raise ConfigError("--batch-size: this model uses a sliding window; give a number of images.")
    y0, y1, x0, x1 = (0, size[0], 0, size[1]) if options.box is None else check_box(options.box, size)
    check_network_size((y1 - y0, x1 - x0), card.resize, card.multiple)
    if options.camera is not None:
        check_camera(options.camera)
    return card, replace(options, size=size)


def size_of_network(card: ModelCard) -> Size | None:
    """Return the size at which the network is made to see images; None where it takes them as they come."""
    resize = card.resize
    return resize.window or (None if resize.size is None else network_size(resize.size, resize, card.multiple))


def sizes_to_try(card: ModelCard) -> list[Size]:
    """Return the sizes of images that a file for any size is checked on: the size that the network is made for, one and
    its transpose, a smaller and a larger one."""
    h, w = card.resize.size or (8 * card.multiple, 10 * card.multiple)
    return [(h, w), (h, w * 5 // 4), (w * 5 // 4, h), (h * 3 // 4 + 1, w // 2 + 3), (h * 5 // 4, w * 4 // 3 + 1)]


def refuse_inputs(card: ModelCard, what: str) -> None:
    """Raise ConfigError if the model takes inputs beside images and cameras, and `what` gives none to it."""
    if names := [name for name in input_names(card) if name != "camera" and INPUT_KINDS[name].exported]:
        raise ConfigError(
            f"{what}: not for a model that takes {', '.join(names)} (`model.conditioning`). Give the model that this "
            "one was trained from, or one trained without."
        )


def weights_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


def move_into_place(made: Path, path: Path) -> tuple[Path, ...]:
    """Move the verified file, its weights first; the weights of a replaced file are deleted."""
    if not weights_file(made).exists():
        with atomic_io.atomic_path(path) as target:
            made.replace(target)
        atomic_io.remove(weights_file(path))
        return (path,)
    with atomic_io.atomic_path(path) as target, atomic_io.atomic_path(weights_file(path)) as weights:
        weights_file(made).replace(weights)
        made.replace(target)
    return path, weights_file(path)
