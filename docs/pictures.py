"""Make the README's picture, photo | depth | classes by the model in the box: python docs/pictures.py [OUTPUT]"""

import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from PIL import Image

import densevit
from densevit.ops.colormap import colorize, percentile_range
from densevit.ops.palette import overlay, palette_for
from densevit.utils.network import PACKAGED

EXAMPLES = ("corridor", "desk", "shelf")
SIZE = (240, 320)  # of a cell
GAP = 6


def row(predictor: densevit.Predictor, photo: Path) -> Sequence[np.ndarray]:
    maps = predictor.predict_all(photo)
    image = np.asarray(Image.open(photo).convert("RGB"))
    low, high = percentile_range(maps["depth"])
    classes = overlay(image, maps["labels"].argmax(0), palette_for(predictor.card.outputs["labels"]))
    return [image, colorize(maps["depth"], low, high, "turbo"), classes]


def main(output: str = "docs/images/room_model.jpg") -> None:
    predictor = densevit.load(PACKAGED, precision="fp32")
    h, w = SIZE
    sheet = Image.new("RGB", (3 * (w + GAP) - GAP, len(EXAMPLES) * (h + GAP) - GAP), "white")
    with as_file(files("densevit.app") / "examples") as folder:
        for i, name in enumerate(EXAMPLES):
            for j, cell in enumerate(row(predictor, folder / f"{name}.jpg")):
                sheet.paste(Image.fromarray(np.asarray(cell)).resize((w, h)), (j * (w + GAP), i * (h + GAP)))
    sheet.save(output, quality=85, optimize=True)
    print(output, Path(output).stat().st_size, "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
