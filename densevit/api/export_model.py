"""What stands behind `export`: a model as an ONNX file, a compiled package, or a web page."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from densevit.api import quantize
from densevit.api.checkpoint import as_names, load_plugins
from densevit.api.data_arguments import scored_spec
from densevit.builder.checkpoint import restore
from densevit.data.datasets.base import open_dataset
from densevit.errors import ConfigError
from densevit.inference import pt2
from densevit.inference.onnx import export as onnx
from densevit.inference.onnx.metadata import ExportedModel, OnnxExportOptions
from densevit.inference.predictor import Predictor
from densevit.inference.web import export as web
from densevit.inference.web.export import ExportedSite
from densevit.model_card import ModelCard
from densevit.ops.crops import kb_box
from densevit.structures import Size
from densevit.utils.docstrings import flag

log = logging.getLogger(__name__)

Format = Literal["onnx", "pt2", "web"]
ExportedFile = ExportedModel | ExportedSite | quantize.QuantizedModel

GRAPH = {"image_size", "batch_size", "heads", "argmax", "floats", "preprocessing", "flip", "crop", "focal"}
OF_DATA = {"data", "root", "data_options", "split", "protocol"}  # that calibrates and scores int8
INT8 = {"precision", "max_drop"} | OF_DATA
OPTIONS = {"onnx": GRAPH | INT8, "pt2": GRAPH, "web": {"image_size", "heads", "title", "web_runtime"}}
"""The options of each format, apart from those that all have."""
CHOICES = {"format": (*OPTIONS,), "precision": ("fp32", "fp16", "int8"), "crop": ("kb",)}


def export(
    defaults: Mapping[str, Any],
    model: Predictor | str | Path,
    output: str | Path,
    *,
    format: Format | None,
    overwrite: bool,
    family: str | None,
    family_options: Mapping[str, Any] | None,
    plugins: Sequence[str | Path],
    **options: Any,
) -> ExportedFile:
    """Write a model in a format; see `densevit.export`, whose `defaults` these are."""
    path = Path(output)
    options = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in options.items()}
    options["heads"] = as_names(options["heads"])
    for name, value in {"format": format, **options}.items():
        if value not in (None, *CHOICES.get(name, (value,))):
            raise ConfigError(f"--{name}: {', '.join(CHOICES[name])}, got {value!r}.")
    target = format or format_of(path)
    changed = [name for name, value in options.items() if value != defaults[name]]
    refuse_others(target, changed)
    if options["precision"] != "int8" and (idle := [name for name in changed if name in OF_DATA]):
        raise ConfigError(*(f"{flag(name)}: is for --precision int8." for name in idle))
    size, count = options["image_size"], options["batch_size"]
    sides = size in (None, "dynamic") or (isinstance(size, Sequence) and len(size) == 2 and all(map(is_count, size)))
    if not (sides and (count == "dynamic" or is_count(count))):
        raise ConfigError(
            f"--image-size HEIGHT,WIDTH, --batch-size: 1 or more, or dynamic for ONNX, got {size}, {count!r}."
        )
    load_plugins(plugins)

    def opened() -> tuple[nn.Module, ModelCard]:
        if isinstance(model, Predictor):
            model.check_savable()
            usual = {"flip": False, "scales": (1.0,), "window": None, "tiling": None}
            if given := [name for name, value in usual.items() if getattr(model, name) != value]:
                log.warning("export: %s of the Predictor: no part of what is written.", ", ".join(given))
            return model.model, model.card
        return restore(model, family, **(family_options or {}))

    heads = tuple(options["heads"])
    if target == "web":
        package = None if options["web_runtime"] is None else Path(options["web_runtime"])
        web.check_output(path, package, overwrite=overwrite)
        title = options["title"] or ("" if isinstance(model, Predictor) else Path(model).name)
        return web.export_web(*opened(), path, size=fixed(size, target), heads=heads, title=title, runtime=package)
    if target == "pt2":
        pt2.check_output(path, overwrite=overwrite)
        fixed(size, target)
        fixed(options["batch_size"], target)
        return pt2.export_pt2(*opened(), path, graph_options(**options))
    onnx.check_output(path, overwrite=overwrite)
    graph = graph_options(**options)
    if (options["precision"] == "int8") != (options["max_drop"] is not None):
        raise ConfigError("--precision int8 and --max-drop go together: the budget, as d1=0.005.")
    budgets = (options["max_drop"] or {}).values()
    if not all(isinstance(value, int | float) and 0 <= value < inf for value in budgets):
        raise ConfigError("--max-drop: metrics and how much worse they may be, as d1=0.005,miou=0.01.")
    if options["precision"] != "int8":
        return onnx.export_onnx(*opened(), path, graph)
    quantize.check_int8(path, overwrite=overwrite)
    selection = [options[name] for name in ("data", "root", "split", "data_options")]
    spec = scored_spec(None if isinstance(model, Predictor) else model, *selection)
    data = open_dataset(spec)
    return quantize.export_int8(
        *opened(), path, graph, data, spec["type"], options["max_drop"], protocol=options["protocol"]
    )


def is_count(number: Any) -> bool:
    return isinstance(number, Integral) and int(number) >= 1


def format_of(path: Path) -> Format:
    """Raise ConfigError: a suffix of none."""
    formats: Mapping[str, Format] = {".onnx": "onnx", ".pt2": "pt2", "": "web"}
    if path.suffix.lower() not in formats and not path.is_dir():
        raise ConfigError(f"{path}: FILE.onnx, FILE.pt2 or a folder for a web page; or say which by --format.")
    return formats.get(path.suffix.lower(), "web")


def refuse_others(format: Format, options: Iterable[str]) -> None:
    """Raise ConfigError: options that belong to another format."""
    for name in options:
        if name not in OPTIONS[format]:
            fits = " and ".join(other for other, names in OPTIONS.items() if name in names)
            raise ConfigError(f"{flag(name)}: is for {fits}, not for {format}.")


def fixed(value: Any, format: Format) -> Any:
    """Raise ConfigError: any size or number, which only ONNX files take."""
    if value == "dynamic":
        raise ConfigError(f"dynamic: is for onnx, not for {format}.")
    return value


def graph_options(
    *,
    image_size: Size | Literal["dynamic"] | None,
    batch_size: int | Literal["dynamic"],
    heads: Sequence[str],
    argmax: bool,
    floats: bool,
    preprocessing: bool,
    flip: bool,
    crop: str | None,
    focal: float | None,
    precision: str,
    **_: Any,
) -> OnnxExportOptions:
    """Return the options of a graph. Raises ConfigError: choices that do not go together."""
    if image_size is None and preprocessing:
        advice = "give height and width of the images that the file is for, as 480,640, or for ONNX files dynamic."
        raise ConfigError(f"--image-size: {advice}")
    if not preprocessing and (crop or flip):
        raise ConfigError("--no-preprocessing: needs no --flip and --crop, which are not part of the network.")
    if image_size == "dynamic" and crop is not None:
        raise ConfigError("--crop: the window depends on the size; give height and width by --image-size.")
    size = None if isinstance(image_size, str) else image_size
    return OnnxExportOptions(
        size=size,
        any_size=image_size == "dynamic",
        batch=None if isinstance(batch_size, str) else batch_size,
        heads=tuple(heads),
        argmax=argmax,
        floats=floats,
        network=not preprocessing,
        flip=flip,
        precision="fp16" if precision == "fp16" else "fp32",
        box=None if crop is None or size is None else kb_box(size),
        camera=focal,
    )
