"""Make the pictures of the README by the model in the box (maps, a turning cloud): python docs/pictures.py"""

import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from PIL import Image

import densevit
from densevit.ops.colors import colorize, overlay, palette_for, percentile_range
from densevit.utils.network import PACKAGED

EXAMPLES = ("lounge", "desk", "shelf")
SIZE = (240, 320)  # of a cell
GAP = 6
TURNED, VIEWS, SWING = "desk", 40, 0.45  # the example of the cloud, frames of a round, and radians to each side
EDGE, COLOURS = 0.05, 96  # change of log depth in a pixel, above which it lies on an edge; colours of the GIF


def row(predictor: densevit.Predictor, photo: Path) -> Sequence[np.ndarray]:
    maps = predictor.predict_all(photo)
    image = np.asarray(Image.open(photo).convert("RGB"))
    low, high = percentile_range(maps["depth"])
    classes = overlay(image, maps["labels"].argmax(0), palette_for(predictor.card.outputs["labels"]))
    return [image, colorize(maps["depth"], low, high, "turbo"), classes]


def turning_cloud(predictor: densevit.Predictor, photo: Path) -> list[Image.Image]:
    """Return views of the predicted points, coloured by the photo, from a camera that swings to both sides."""
    colours, depth = np.asarray(Image.open(photo).convert("RGB")), predictor(photo, head="depth")
    (h, w), (rows, columns) = depth.shape, SIZE
    focal = float(predictor.cameras.of_file(photo))
    y, x = np.mgrid[:h, :w]
    rays = np.stack([(x + 0.5 - w / 2) / focal, (y + 0.5 - h / 2) / focal, np.ones_like(depth)], axis=-1)
    edges = np.hypot(*np.gradient(np.log(depth))) > EDGE
    points, colours = (rays * depth[..., None])[~edges], colours[~edges]
    centre = np.array([0, 0, np.median(depth)])
    views = []
    for turn in np.sin(np.linspace(0, 2 * np.pi, VIEWS, endpoint=False)) * SWING:
        cos, sin = np.cos(turn), np.sin(turn)
        turned = (points - centre) @ np.array([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]]) + centre * [1, 1, 1.25]
        far_first = np.argsort(-turned[:, 2])
        at = turned[far_first, :2] / turned[far_first, 2:] * focal * columns / w + [columns / 2, rows / 2]
        u, v = np.floor(at).astype(int).T
        inside = (u >= 0) & (u < columns) & (v >= 0) & (v < rows)
        view = np.full((rows, columns, 3), 255, np.uint8)
        view[v[inside], u[inside]] = colours[far_first[inside]]
        views.append(Image.fromarray(view).quantize(COLOURS))
    return views


def main(folder: str = "docs/images") -> None:
    predictor = densevit.load(PACKAGED, precision="fp32")
    output, cloud = Path(folder, "room_model.jpg"), Path(folder, "room_cloud.gif")
    h, w = SIZE
    sheet = Image.new("RGB", (3 * (w + GAP) - GAP, len(EXAMPLES) * (h + GAP) - GAP), "white")
    with as_file(files("densevit.app") / "examples") as examples:
        for i, name in enumerate(EXAMPLES):
            for j, cell in enumerate(row(predictor, examples / f"{name}.jpg")):
                sheet.paste(Image.fromarray(np.asarray(cell)).resize((w, h)), (j * (w + GAP), i * (h + GAP)))
        first, *views = turning_cloud(predictor, examples / f"{TURNED}.jpg")
    sheet.save(output, quality=85, optimize=True)
    first.save(cloud, save_all=True, append_images=views, duration=80, loop=0, optimize=True)
    for path in (output, cloud):
        print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
