"""What stands behind `load` and `inspect`: checkpoints and ONNX files as predictors, and descriptions of them."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from densevit import api
from densevit.builder.checkpoint import describe, is_ours, restore
from densevit.config import plugins as plugin_files
from densevit.errors import CheckpointError, ConfigError
from densevit.inference.attention import compute_attention, write_attention_page
from densevit.inference.backends.auto import resolve_device_and_precision
from densevit.inference.camera import CameraNumbers, Lens, assumed_fov
from densevit.inference.onnx.load import load_onnx
from densevit.inference.onnx.metadata import as_text as onnx_as_text
from densevit.inference.onnx.metadata import read_metadata
from densevit.inference.predictor import Predictor, checked
from densevit.inference.tiling import Tiling
from densevit.model_card import ModelCard
from densevit.ops.crops import kb_box
from densevit.reporting.tables import finite
from densevit.utils.docstrings import flag
from densevit.utils.network import PACKAGED, PUBLISHED, is_address
from densevit.weights.checkpoint import read_card
from densevit.weights.describe import as_text

log = logging.getLogger(__name__)
T = TypeVar("T")


def packaged_model() -> str:
    """Name the model that comes with the package, and log what it is and what it does not replace."""
    log.warning(
        "No model was named, so this uses %s: it is small, was trained on rendered rooms only, and does not replace "
        "published weights, which load by name: %s",
        PACKAGED,
        PUBLISHED,
    )
    return PACKAGED


def load_plugins(files: Sequence[str | Path]) -> None:
    """Run Python files that register components, and those of the environment. Raises ConfigError: no such file, or
    what went wrong in it."""
    if files or plugin_files.TRUSTED in os.environ:
        plugin_files.load(files)


def load_file(path: Path, checkpoints: Mapping[str, Any], **options: Any) -> Predictor:
    """Load an ONNX file. `checkpoints`: options of checkpoints, which a file refuses."""
    if refused := [name for name, value in checkpoints.items() if value]:
        raise ConfigError(f"{refused[0]}: of a checkpoint; {path} is an ONNX file, which says what it is.")
    predictor = load_onnx(path, **predictor_options(**options))
    if predictor.cameras.override is not None:
        log.warning(
            "focal: ignored for depth, since %s takes none (export --focal); clouds, TAE and --stabilize use it.", path
        )
    return predictor


def load_checkpoint(
    path: str | Path,
    family: str | None,
    family_options: Mapping[str, Any],
    encoder: nn.Module | None,
    plugins: Sequence[str | Path],
    window_size: int | None,
    stride: int | None,
    **options: Any,
) -> Predictor:
    """Load a checkpoint; see `densevit.load`."""
    kwargs = predictor_options(**options)
    # Before the weights are read.
    resolve_device_and_precision(kwargs["runtime"], kwargs["device"], kwargs["precision"], compiled=kwargs["compile"])
    load_plugins(plugins)
    model, card = restore(path, family, encoder, **family_options)
    if kwargs["camera"] is not None and not card.needs_camera:
        log.warning("focal: ignored for depth, since this model knows no lens; clouds, TAE and --stabilize use it.")
    predictor = Predictor(model, with_window(card, window_size, stride), **kwargs)
    return predictor.with_options(assumed_fov=assumed_fov(card)) if path == PACKAGED else predictor


def predictor_options(
    *,
    focal: CameraNumbers | None = None,
    fov: float | None = None,
    tile_size: int | None = None,
    tile_overlap: float | None = None,
    crop: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the options of `load` as those of `Predictor`. Raises ConfigError: an overlap without tiles, numbers that
    make none, or two cameras."""
    if focal is not None and fov is not None:
        raise ConfigError("--fov: give the camera as one of --focal and --fov.")
    if tile_size is None and tile_overlap is not None:
        raise ConfigError("--tile-overlap: belongs to --tile-size.")
    if crop not in (None, "kb"):
        raise ConfigError(f"--crop: kb, got {crop!r}.")
    options = checked(options)
    tiling = None if tile_size is None else Tiling(tile_size, 0.25 if tile_overlap is None else tile_overlap)
    window = None if crop is None else lambda h, w: kb_box((h, w))
    camera = focal if fov is None else make_lens(fov=fov)
    return {**options, "camera": camera, "tiling": tiling, "window": window}


def make_lens(focal: float | None = None, fov: float | None = None) -> Lens:
    """Return a camera of one of the numbers. Raises ConfigError: it makes none."""
    try:
        return Lens(focal, fov)
    except (TypeError, ValueError):
        name, value = ("fov", fov) if focal is None else ("focal", focal)
        given = f"{value:g}" if isinstance(value, Real) else repr(value)
        raise ConfigError(f"--{name}: {given}; would fit: {Lens.fits[name]}.") from None


def with_window(card: ModelCard, size: int | None, stride: int | None) -> ModelCard:
    """Return the card with a sliding window; without a size the checkpoint's own window stays. Raises ConfigError: a
    window smaller than a patch; a stride without one, or larger than it."""
    resize = card.resize
    if size is not None:
        step = max(1, 2 * size // 3) if stride is None and isinstance(size, Integral) else stride
        if not (isinstance(size, Integral) and isinstance(step, Integral) and step > 0):
            raise ConfigError(f"--window-size, --stride: whole numbers of pixels, got {size!r} and {stride!r}.")
        if size < card.multiple:
            raise ConfigError(f"--window-size: {size} pixels are less than one patch, {card.multiple}.")
        resize = replace(resize, window=(size, size), stride=(step, step))
    elif stride is not None:
        raise ConfigError("--stride: belongs to --window-size.")
    if resize.window and resize.stride and max(resize.stride) > max(resize.window):
        raise ConfigError(f"--stride: {max(resize.stride)} pixels leave gaps between windows of {max(resize.window)}.")
    return replace(card, resize=resize)


def card_before_loading(model: Any) -> ModelCard | None:
    """Return the card of a predictor or of a checkpoint of densevit's, without its weights; None for all others."""
    if isinstance(model, Predictor):
        return model.card
    if not isinstance(model, str | Path) or is_address(model) or str(model).lower().endswith(".onnx"):
        return None
    try:
        return read_card(model) if Path(model).exists() and is_ours(model) else None
    except CheckpointError:
        return None  # `load` says why


def as_names(names: str | T) -> list[str] | T:
    """Return one name that is given by itself as a list, anything else as it is."""
    return [names] if isinstance(names, str) else names


def refuse(options: Mapping[str, Any], owner: str) -> None:
    """Raise ConfigError if some of the options are given, and what they belong to is not."""
    if stray := [name for name, value in options.items() if value not in (None, False, ())]:
        names = " and ".join(map(flag, stray))
        raise ConfigError(f"{names}: {'belongs' if len(stray) == 1 else 'belong'} to {owner}.")


def description(model: str | Path, *, as_json: bool) -> str:
    """Return what a checkpoint or ONNX file is, as text or JSON."""
    if str(model).lower().endswith(".onnx"):
        about: Any = read_metadata(Path(model))
        return json.dumps(about, indent=2) if as_json else onnx_as_text(about)
    facts = describe(model)
    if not as_json:
        return as_text(facts)
    if "card" in facts:
        facts["card"]["scores"] = finite(facts["card"]["scores"])
    return json.dumps(facts, indent=2)


def show_attention(
    model: str | Path,
    image: Path,
    at: tuple[float, float] | None,
    output: str | Path | None,
    options: Mapping[str, Any],
) -> str:
    """Write images and a page of the attention in an image."""
    if output is None:
        raise ConfigError("--attention: name the folder to write to by --output.")
    predictor = api.load(model, precision="fp32", **options)
    attention = compute_attention(predictor, image, at)
    page, *images = write_attention_page(Path(output), attention, title=f"Attention: {model}, {image.name}")
    return f"written: {page} and {len(images)} images"
