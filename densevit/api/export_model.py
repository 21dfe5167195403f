"""A model as a file for other programs: `export_onnx`, `export_pt2` (compiled), `export_web` (a web page)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from densevit.builder.checkpoint import restore
from densevit.errors import ConfigError
from densevit.inference.onnx import export as onnx
from densevit.inference.onnx.export import ExportedModel
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.predictor import Predictor
from densevit.inference.pt2 import export as pt2
from densevit.inference.pt2.export import ExportedPackage
from densevit.inference.web import export as web
from densevit.inference.web.export import ExportedSite
from densevit.model_card import ModelCard
from densevit.structures import Size


def export_onnx(
    model: Predictor | str | Path,
    output: str | Path,
    size: Size | Literal["dynamic"] | None = None,
    *,
    overwrite: bool = False,
    batch: int | None = 1,
    heads: Sequence[str] = (),
    labels: bool = False,
    floats: bool = False,
    network: bool = False,
    flip: bool = False,
    precision: Literal["fp32", "fp16"] = "fp32",
    family: str | None = None,
    family_options: Mapping[str, Any] | None = None,
) -> ExportedModel:
    """Writes a model as one ONNX file, run by ONNX Runtime and compared with torch before it is kept.

    >>> densevit.export_onnx("runs/mine", "mine.onnx", (480, 640))  # doctest: +SKIP

    Args:
        model: a checkpoint's path, or a `Predictor`.
        output: the file; ends in .onnx.
        size: height and width of the images; "dynamic" for images of any size.
        overwrite: replace a file that is there.
        batch: images at once; None for any number.
        heads: all of them unless given.
        labels: classes of pixels as ids, not logits.
        floats: images b 3 h w in [0, 1], instead of bytes b h w 3.
        network: only the network, for images that are already resized; `size` is theirs.
        flip: average with the mirrored image's prediction.
        precision: of the network; images and maps are fp32 in any case.
        family, family_options: of a published checkpoint; see `densevit.load`.

    Returns:
        paths, metadata, and by head the largest difference from torch as a share of the largest value.

    Raises:
        ConfigError: a package is missing (extra `onnxruntime`), a file is there, or options do not go together.
    """
    path = Path(output)
    onnx.check_output(path, overwrite=overwrite)
    if size is None and not network:
        raise ConfigError("export_onnx: size=(height, width) of the images that the file is for, or 'dynamic'.")
    chosen = OnnxExportOptions(
        size=None if size == "dynamic" else size,
        any_size=size == "dynamic",
        batch=batch,
        heads=tuple(heads),
        labels=labels,
        floats=floats,
        network=network,
        flip=flip,
        precision=precision,
    )
    return onnx.export_onnx(*opened(model, family, family_options), path, chosen)


def export_pt2(
    model: Predictor | str | Path,
    output: str | Path,
    size: Size | None = None,
    *,
    overwrite: bool = False,
    batch: int = 1,
    heads: Sequence[str] = (),
    labels: bool = False,
    floats: bool = False,
    network: bool = False,
    flip: bool = False,
    family: str | None = None,
    family_options: Mapping[str, Any] | None = None,
) -> ExportedPackage:
    """Compiles a model for this machine's processor (AOTInductor), compared with torch before it is kept.

    >>> densevit.export_pt2("runs/mine", "mine.pt2", (480, 640))  # doctest: +SKIP

    Args:
        model: a checkpoint's path, or a `Predictor`.
        output: the file; ends in .pt2.
        size: height and width of the images.
        batch: images at once.
        overwrite, heads, labels, floats, network, flip, family, family_options: as of `export_onnx`.

    Returns:
        path, metadata, and by head the largest difference from torch as a share of the largest value.

    Raises:
        ConfigError: no C++ compiler, a file is there, or options do not go together.
    """
    path = Path(output)
    pt2.check_output(path, overwrite=overwrite)
    if size is None and not network:
        raise ConfigError("export_pt2: size=(height, width) of the images that the file is for.")
    chosen = OnnxExportOptions(
        size=size, batch=batch, heads=tuple(heads), labels=labels, floats=floats, network=network, flip=flip
    )
    return pt2.export_pt2(*opened(model, family, family_options), path, chosen)


def export_web(
    model: Predictor | str | Path,
    output: str | Path,
    size: Size | None = None,
    *,
    overwrite: bool = False,
    heads: Sequence[str] = (),
    title: str = "",
    runtime: str | Path | None = None,
    family: str | None = None,
    family_options: Mapping[str, Any] | None = None,
) -> ExportedSite:
    """Writes a static web page that predicts in the visitor's browser; any static server serves the folder.

    >>> densevit.export_web("runs/mine", "site")  # doctest: +SKIP

    Args:
        model: a checkpoint's path, or a `Predictor`.
        output: the folder to make.
        size: height and width at which the network sees every image; the size that it was trained for unless given.
        overwrite: replace a site that is there.
        heads: all of them unless given.
        title: of the page; the checkpoint's name unless given.
        runtime: the npm package `onnxruntime-web` as a .tgz or a folder; npm fetches it unless given.
        family, family_options: of a published checkpoint; see `densevit.load`.

    Returns:
        folder, size, bytes, and by head the largest difference from torch as a share of the largest value.

    Raises:
        ConfigError: a package is missing (extra `onnxruntime`, or npm), a folder is there, or no size is known.
    """
    folder, package = Path(output), None if runtime is None else Path(runtime)
    web.check_output(folder, package, overwrite=overwrite)
    name = title or ("" if isinstance(model, Predictor) else Path(model).name)
    given = opened(model, family, family_options)
    return web.export_web(*given, folder, size=size, heads=tuple(heads), title=name, runtime=package)


def opened(
    model: Predictor | str | Path, family: str | None, family_options: Mapping[str, Any] | None
) -> tuple[nn.Module, ModelCard]:
    """The network and its card, of a checkpoint that may still have to be read."""
    if isinstance(model, Predictor):
        return model.model, model.card
    return restore(model, family, **(family_options or {}))
