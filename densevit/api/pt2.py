"""`export_pt2`: a model as a compiled package, which C++ programs load; `load_pt2` runs one in Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from densevit.builder.checkpoint import restore
from densevit.errors import ConfigError
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.predictor import Predictor
from densevit.inference.pt2 import export as pt2
from densevit.inference.pt2.export import ExportedPackage
from densevit.inference.pt2.load import load_pt2
from densevit.structures import Size

__all__ = ["export_pt2", "load_pt2"]


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
    if isinstance(model, Predictor):
        return pt2.export_pt2(model.model, model.card, path, chosen)
    return pt2.export_pt2(*restore(model, family, **(family_options or {})), path, chosen)
