"""Models as files: load one to predict, describe it, convert it, export it for other programs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from densevit.api.types import Count, ImageSize, Precision, Runtime
from densevit.utils.docstrings import defaults

if TYPE_CHECKING:
    from torch import nn

    from densevit.api.export_model import ExportedFile
    from densevit.inference.predictor import Predictor


def load(
    path: str | Path | None = None,
    /,
    family: str | None = None,
    *,
    family_options: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    device: str = "auto",
    precision: Precision = "auto",
    runtime: Runtime = "torch",
    flip: bool = False,
    scales: Sequence[float] = (1.0,),
    window_size: Count | None = None,
    stride: Count | None = None,
    tile_size: Count | None = None,
    tile_overlap: float | None = None,
    focal: float | tuple[float, float, float, float] | tuple[float, float] | None = None,
    fov: float | None = None,
    crop: Literal["kb"] | None = None,
    batch_size: Count = 1,
    compile: bool = False,
    cast_weights: bool = False,
    encoder: "nn.Module | None" = None,
) -> "Predictor":
    """Load a trained model, ready to predict: `depth = load("runs/nyu")("photo.jpg")`.

    Args:
        path: a run's folder (its best checkpoint), a step folder, a `model.safetensors`, or a published checkpoint; or
            an ONNX file of `export`, which OpenVINO or ONNX Runtime computes. Default: densevit:rooms, a small model
            of rooms that comes with the package.
        family: family of a published checkpoint whose tensor names fit several.
        family_options: what a published file does not say, as max_depth=20.
        plugins: Python files that register components of your own. A checkpoint that was trained with some needs them
            named here, or in the environment variable `DENSEVIT_PLUGINS`.
        device: auto, cpu, cuda, cuda:N or mps.
        precision: auto takes bf16 where it is fast; bf16, fp16 and tf32 (GPUs) change the last digits; int8 is for an
            ONNX file that is.
        runtime: what computes on a CPU: torch, openvino (the fastest for many images of few sizes, ten seconds first)
            or onnxruntime; auto takes what is fastest for these images. On an NVIDIA GPU cuda_graphs records the
            kernels of torch for each of the first sizes and replays them, for small models; with cast_weights. ONNX
            files take what is installed, unless one of the two is named.
        flip: average with the mirrored image's prediction; twice the time.
        scales: average over these scales of the image, as 0.5,1,1.5.
        window_size: side of a sliding window in pixels.
        stride: step of the window in pixels; default: two thirds of it.
        tile_size: predict larger images in overlapping tiles of this side in pixels, aligned to a prediction of the
            whole image.
        tile_overlap: fraction of a tile that it shares with its neighbour; default: 0.25.
        focal: focal length in pixels of the images, in place of what the data or EXIF says; or fx,fy or fx,fy,cx,cy.
        fov: horizontal field of view of the images in degrees, in place of `focal`.
        crop: show the model only this part of the image, and score that; kb: KITTI's 352x1216.
        batch_size: neighbouring images of one size that go through the model together.
        compile: compile by torch.compile, at the first image of each size; it takes half a minute.
        cast_weights: keep the weights in `precision`, which halves their memory and changes no number; then the model
            cannot be saved. On a CPU they are kept so anyway.
        encoder: the module of a model that was trained with an object as its encoder; a copy of it takes the weights.

    Raises:
        CheckpointError: missing, damaged, of components that are not registered, or of several possible families.
        ConfigError: no such family, option, device, precision, runtime or plugin.
    """
    from densevit.api.checkpoint import load_checkpoint, load_file, packaged_model

    path = packaged_model() if path is None else path
    options: dict[str, Any] = {"flip": flip, "scales": scales, "focal": focal, "batch_size": batch_size}
    options |= {"tile_size": tile_size, "tile_overlap": tile_overlap, "crop": crop, "fov": fov}
    backend: dict[str, Any] = {"device": device, "precision": precision, "runtime": runtime, "compile": compile}
    if str(path).lower().endswith(".onnx"):
        checkpoints: dict[str, Any] = {"family": family, "family_options": family_options, "encoder": encoder}
        checkpoints |= {"window_size": window_size, "stride": stride, "cast_weights": cast_weights}
        return load_file(Path(path), checkpoints, **backend, **options)
    return load_checkpoint(
        path, family, family_options or {}, encoder, plugins, window_size, stride, cast_weights=cast_weights,
        **backend, **options,
    )  # fmt: skip


def export(
    model: "Predictor | str | Path",
    output: str | Path,
    /,
    *,
    format: Literal["onnx", "pt2", "web"] | None = None,
    image_size: ImageSize | Literal["dynamic"] | None = None,
    batch_size: Count | Literal["dynamic"] = 1,
    heads: Sequence[str] = (),
    argmax: bool = False,
    floats: bool = False,
    preprocessing: bool = True,
    flip: bool = False,
    crop: Literal["kb"] | None = None,
    focal: float | None = None,
    precision: Literal["fp32", "fp16", "int8"] = "fp32",
    max_drop: Mapping[str, float] | None = None,
    data: str | None = None,
    root: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    split: str | None = None,
    protocol: str | None = None,
    title: str = "",
    web_runtime: str | Path | None = None,
    overwrite: bool = False,
    family: str | None = None,
    family_options: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
) -> "ExportedFile":
    """Export a model for other programs: one ONNX file, a compiled package for C++, or a web page.

    FILE.onnx is run by ONNX Runtime and other programs without densevit or torch. FILE.pt2 is compiled for this
    machine's processor (AOTInductor) and run by libtorch. A folder is a static web page that predicts in the visitor's
    browser. Files take images as they are decoded and give maps of their size: resizing and normalisation are inside.
    Each is compared with torch before it is kept.

    >>> densevit.export("runs/mine", "mine.onnx", image_size=(480, 640))  # doctest: +SKIP
    >>> densevit.export("runs/mine", "site")  # doctest: +SKIP

    Args:
        model: a checkpoint's path, or a `Predictor`.
        output: FILE.onnx, FILE.pt2, or the folder of a web page.
        format: what to write; default: by the suffix of the output.
        image_size: height and width of the images, as 480,640; of a web page the size at which the network sees every
            image, default: that of its training. dynamic: images of any size (ONNX).
        batch_size: images at once; dynamic: any number (ONNX).
        heads: the heads to export; default: all.
        argmax: give class indices of pixels, not logits.
        floats: take images b x 3 x h x w in [0, 1], instead of bytes b x h x w x 3.
        preprocessing: include resizing and normalisation; without, `image_size` is that of the network's input.
        flip: average with the mirrored image's prediction.
        crop: show the model only this part of the image; kb: KITTI's 352x1216.
        focal: focal length in pixels of the images, for models whose metres depend on it.
        precision: number format of the network in ONNX; fp16 halves the file, for GPUs; int8 is for CPUs and needs
            `max_drop`.
        max_drop: how much worse the int8 file may score than fp32, as d1=0.005,miou=0.01.
        data: data set that calibrates and scores int8: its name, or a folder; default: what the training validated on.
        root: folder of the data set.
        data_options: options of the data set.
        split: split of the data set.
        protocol: protocol that scores depth for int8; default: by the data.
        title: title of the web page; default: the checkpoint's name.
        web_runtime: the npm package onnxruntime-web as a .tgz or a folder; default: npm fetches it.
        overwrite: replace what is there.
        family: family of a published checkpoint whose tensor names fit several.
        family_options: what a published file does not say, as max_depth=20.
        plugins: Python files that register components of your own.

    Returns:
        paths, metadata, and by head the largest difference from torch, relative to the largest value; `print` shows
        them.

    Raises:
        ConfigError: a package is missing, a file is there, or options do not go together.
    """
    arguments = dict(locals())
    from densevit.api import export_model

    return export_model.export(defaults(export), **arguments)


def inspect(
    model: str | Path,
    /,
    *,
    json: bool = False,
    attention: str | Path | None = None,
    at: tuple[float, float] | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    family: str | None = None,
    family_options: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
) -> str:
    """Describe a model: outputs, components, source, licence, scores; of a third-party file the matching families.

    With `--attention IMAGE` show its attention in one image, per layer and head, mean and rollout, as PNGs and one
    HTML page.

    Args:
        model: a run, a step folder, a file, a folder, or hf:owner/name.
        json: everything, as JSON.
        attention: show the attention in this image, instead of describing the model.
        at: pixel x,y whose patch's attention is shown; default: the class token's.
        output: folder of the attention's images and page.
        device: device that computes the attention.
        family: family of a published checkpoint whose tensor names fit several.
        family_options: what a published file does not say, as max_depth=20.
        plugins: Python files that register components of your own.
    """
    from densevit.api import checkpoint

    checkpoint.load_plugins(plugins)
    if attention is None:
        checkpoint.refuse({"at": at, "output": output}, "--attention")
        return checkpoint.description(model, as_json=json)
    options = {"family": family, "family_options": family_options, "device": device}
    return checkpoint.show_attention(model, Path(attention), at, output, options)


def convert(
    source: str,
    target: str | Path,
    /,
    to: str,
    *,
    family: str | None = None,
    family_options: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
) -> str:
    """Write a checkpoint in another layout: densevit, huggingface, depth-anything-v2, ... Nothing is overwritten.

    Of a model with low-rank updates (model.encoder.lora) `adapter` has these and all but the encoder's own weights;
    every other layout has them merged into the weights. `encoder` has the encoder alone, for `model.encoder.weights`
    and timm.

    Every tensor that runs is equal bit by bit; what is written is read back before the command says so.

    Args:
        source: a checkpoint, densevit's own or published; or hf:owner/name.
        target: a file, or a folder for layouts that are one.
        to: layout: densevit, adapter, encoder, huggingface, ...
        family: family of a published checkpoint whose tensor names fit several.
        family_options: what a published file does not say, as max_depth=20.
        plugins: Python files that register components of your own.
    """
    from densevit.api.checkpoint import load_plugins
    from densevit.builder import convert as builder

    load_plugins(plugins)
    notes = builder.convert(source, Path(target), to, family, **(family_options or {}))
    return "\n".join([f"written: {target}", *(f"note: {note}" for note in notes)])
