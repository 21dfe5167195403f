"""Classes of pixels as files: ids, colours over the image, probabilities, and the legend of the classes.

k classes, h x w pixels.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
from jaxtyping import Int64, UInt8
from pydantic import Field

from densevit.data.io.writers import encode, encode_npz, encode_palette
from densevit.errors import ConfigError
from densevit.inference.writers.base import MapWriter, PredictedMap
from densevit.model_card import HeadSpec, Palette
from densevit.ops.colors import BACKGROUND, draw_text, overlay, palette_for, text_width
from densevit.registry import Registry
from densevit.structures import IGNORE
from densevit.utils.atomic_io import write_bytes, write_text

LABEL_FORMATS = Registry[MapWriter]("format")

CLASSES, LEGEND = "classes.json", "legend.png"


class LabelWriter(MapWriter):
    """A format for the logits of a head that classifies pixels; `classes.json` and `legend.png` come with it."""

    kinds = ("labels",)

    def check(self, spec: HeadSpec) -> None:
        if spec.kind != "labels":
            raise ConfigError(f"format {self.suffix[1:]}: needs classes of pixels, but this model gives {spec.kind}.")

    def write_shared(self, folder: Path, spec: HeadSpec) -> None:
        colours = palette_for(spec)
        rows = [
            {"id": i, "name": name, "color": list(colour)}
            for i, (name, colour) in enumerate(zip(spec.classes, colours, strict=True))
            if i != IGNORE  # no class has this id
        ]
        none = {"id": none_of(spec), "name": "none", "ignore": True}
        lines = ",\n ".join(json.dumps(row) for row in [*rows, none])
        write_text(folder / CLASSES, f"[{lines}]\n")  # as the data set `folder` reads lists of classes
        pixels = legend(spec.classes, colours)
        write_bytes(folder / LEGEND, encode(".png", pixels))


def none_of(spec: HeadSpec) -> int:
    """Return the id of pixels without a class in files: the largest that fits."""
    return IGNORE if len(spec.classes) <= IGNORE else 65535


def classes_of(frame: PredictedMap) -> Int64[np.ndarray, "h w"]:
    """Return the class of the largest logit; `none_of` where they are not finite."""
    return np.where(frame.valid(), frame.values.argmax(0), none_of(frame.spec))


@LABEL_FORMATS.register("labels")
class Labels(LabelWriter):
    """Class ids as PNG, of 8 bits up to 255 classes, else of 16; the largest number where there is no class."""

    suffix = ".labels.png"

    def __init__(self, *, palette: bool = False) -> None:
        """
        Args:
            palette: a PNG with colours, which viewers show and Pillow reads as ids; 8 bits only.
        """
        self.palette = palette

    def check(self, spec: HeadSpec) -> None:
        super().check(spec)
        if self.palette and none_of(spec) > IGNORE:
            raise ConfigError(
                f"format labels: a palette has 256 colours at most, this model {len(spec.classes)} classes."
            )

    def encode(self, frame: PredictedMap) -> bytes:
        spec = frame.spec
        ids = classes_of(frame).astype(np.uint8 if none_of(spec) == IGNORE else np.uint16)
        # Colours of all 256 ids: those beyond the classes are the background's.
        colours = (*palette_for(spec), *[BACKGROUND] * 256)[:256]
        return encode_palette(ids, colours) if self.palette else encode(".png", ids)


@LABEL_FORMATS.register("overlay")
class Overlay(LabelWriter):
    """The colours of the classes over the image, as 8-bit RGB PNG."""

    suffix = ".overlay.png"

    def __init__(self, *, opacity: Annotated[float, Field(gt=0, le=1)] = 0.6) -> None:
        self.opacity = opacity

    def encode(self, frame: PredictedMap) -> bytes:
        return encode(".png", overlay(frame.image, classes_of(frame), palette_for(frame.spec), self.opacity))


@LABEL_FORMATS.register("probabilities")
class Probabilities(LabelWriter):
    """Compressed NumPy archive: `probabilities`, float16 k h w, NaN where there are none, and the names, `classes`."""

    suffix = ".probabilities.npz"

    def encode(self, frame: PredictedMap) -> bytes:
        shares = np.exp(frame.values - frame.values.max(0))
        shares /= shares.sum(0)
        return encode_npz(probabilities=shares.astype(np.float16), classes=np.array(frame.spec.classes))


ROW, SWATCH, GAP, MAX_ROWS = 22, 16, 8, 40  # pixels of a row, of its square and between them; rows of a column
SIZE, INK = 14, (28, 36, 48)


def legend(names: Sequence[str], palette: Palette) -> UInt8[np.ndarray, "h w 3"]:
    """Return an image with the colour and the name of each class, in columns of equal length, on white."""
    lines = [f"{i} {name}" for i, name in enumerate(names)]
    columns = -(-len(lines) // MAX_ROWS)
    length = -(-len(lines) // columns)
    texts = [max(text_width(line, SIZE) for line in lines[i * length : (i + 1) * length]) for i in range(columns)]
    widths = [text + SWATCH + 3 * GAP for text in texts]
    canvas = np.full((length * ROW + GAP, sum(widths) + GAP, 3), 255, np.uint8)
    for i, (line, colour) in enumerate(zip(lines, palette, strict=True)):
        x, y = GAP + sum(widths[: i // length]), GAP + i % length * ROW
        cv2.rectangle(canvas, (x, y), (x + SWATCH, y + SWATCH - 2), colour, cv2.FILLED)
        draw_text(canvas, line, (x + SWATCH + GAP, y + SWATCH - 4), SIZE, INK)
    return canvas
