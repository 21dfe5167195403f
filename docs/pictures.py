"""Make the pictures of the README by the model in the box: python docs/pictures.py [FOLDER] [STEPS]

Its maps and a turning cloud, then a picture for each section: a rendered room stands for the reader's own data, and two
models are trained on it, from the model in the box and from random weights.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import yaml
from PIL import Image, ImageDraw, ImageFont

import densevit
from densevit.data.datasets.base import open_dataset
from densevit.data.datasets.rooms import CLASSES
from densevit.data.io.writers import encode, encode_depth
from densevit.model_card import Palette
from densevit.ops.colors import colorize, colorize_normals, overlay, palette_for, percentile_range
from densevit.reporting.html_page import line_chart
from densevit.utils.network import PACKAGED
from densevit_rooms.renderer import render_scene

EXAMPLES = ("lounge", "desk", "shelf")
SIZE = (240, 320)  # of a cell
GAP = 6
TURNED, VIEWS, SWING = "desk", 40, 0.45  # the example of the cloud, frames of a round, and radians to each side
CELL, CAPTION = (150, 200), 22  # of the sections' pictures, pixels
ROOM, PHOTOS = (5, "train", 5), 80  # seed, split and number of the scene that stands for the reader's room
SHOWN = 6  # the validation image in the pictures
WORST = 0.3  # relative error of the last colour
MODEL = Path(__file__).parents[1] / "configs/multitask/room_model.yaml"
STYLE = """<style>text { font: 11px sans-serif; fill: #5d6878; } .grid { stroke: #e1e5ea; } polyline { fill: none;
stroke: #2563c4; stroke-width: 2; } polyline.raw { stroke: #98a3b3; } circle { fill: #2563c4; }</style>
<rect width="100%" height="100%" fill="#fff"/>"""
EDGE, COLOURS = 0.05, 96  # change of log depth in a pixel, above which it lies on an edge; colours of the GIF


def drawn(image: np.ndarray, maps: Mapping[str, np.ndarray], palette: Palette) -> dict[str, np.ndarray]:
    """Return an image, its predicted depth in a scale of its own, and its predicted classes."""
    depth = colorize(maps["depth"], *percentile_range(maps["depth"]), "turbo")
    return {"image": image, "depth": depth, "classes": overlay(image, maps["labels"].argmax(0), palette)}


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


def write_room(folder: Path) -> None:
    """Write photos of one rendered room, depths in millimetres and classes, in the layout `folder`."""
    for kind in ("images", "depths", "labels"):
        (folder / kind).mkdir(parents=True)
    for i, frame in enumerate(render_scene(*ROOM, PHOTOS, (192, 256))):
        sample = frame.sample
        assert sample.depth is not None and sample.labels is not None
        (folder / f"images/{i:03d}.png").write_bytes(encode(".png", sample.image))
        (folder / f"depths/{i:03d}.png").write_bytes(encode_depth(sample.depth, 1000))
        (folder / f"labels/{i:03d}.png").write_bytes(encode(".png", sample.labels.astype(np.uint8)))
    names = [{"id": i, "name": name} for i, name in enumerate(CLASSES)]
    (folder / "classes.json").write_text(json.dumps([*names, {"id": 255, "name": "unlabelled", "ignore": True}]))


def train(folder: Path, steps: int, output: Path, **more: object) -> densevit.Run:
    options = {"steps": steps, "validate_every": max(1, steps // 10), "schedule": {"type": "constant", "warmup": 0}}
    return densevit.train("multitask/my_room", data={"root": str(folder)}, output=output, **options, **more)


def strip(cells: Mapping[str, np.ndarray]) -> Image.Image:
    """Return images side by side with their captions under them."""
    (h, w), font = CELL, ImageFont.load_default(13)
    sheet = Image.new("RGB", (len(cells) * (w + GAP) - GAP, h + CAPTION), "white")
    for i, (caption, cell) in enumerate(cells.items()):
        sheet.paste(Image.fromarray(np.asarray(cell)).resize((w, h)), (i * (w + GAP), 0))
        ImageDraw.Draw(sheet).text((i * (w + GAP) + 2, h + 3), caption, "#5d6878", font=font)
    return sheet


def drawn_curve(points: Sequence[tuple[float, float]], reference: Sequence[tuple[float, float]]) -> str:
    """Return a line chart as the text of an SVG file."""
    found = re.search("<svg (.*</svg>)", line_chart("", points, reference=reference), re.DOTALL)
    assert found
    head, rest = found[1].split(">", 1)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="460" height="240" {head}>{STYLE}{rest}\n'


def section_pictures(bundled: densevit.Predictor, steps: int) -> dict[str, Image.Image | str]:
    """Return the picture of each section by the name of its file."""
    with TemporaryDirectory() as place:
        room, runs = Path(place, "room"), Path(place, "runs")
        write_room(room)
        config = yaml.safe_load(MODEL.read_text())["model"]
        scratch = {"init_from": None, **{key: config[key] for key in ("encoder", "decoder", "resize")}}
        tuned, fresh = train(room, steps, runs / "tuned"), train(room, steps, runs / "fresh", model=scratch)
        data = {"type": "folder", "root": str(room), "split": "val", "val_fraction": 0.1, "depth_scale": 1000}
        sample = open_dataset(data).read(SHOWN)
        before, after = bundled.predict_all(sample.image), tuned.predictor.predict_all(sample.image)
        curves = [[(row["step"], row["depth/abs_rel"]) for row in run.val_log] for run in (tuned, fresh)]
    assert sample.depth is not None and sample.labels is not None
    image, palette = sample.image, palette_for(bundled.card.outputs["labels"])
    measured, ends = np.where(sample.valid, sample.depth, np.nan), percentile_range(sample.depth)
    truth, at_first, trained = (
        colorize(depth, *ends, "turbo") for depth in (measured, before["depth"], after["depth"])
    )
    error = colorize(np.abs(after["depth"] - measured) / measured, 0, WORST, "magma")
    first, normals = drawn(image, before, palette), colorize_normals(before["normals"].transpose(1, 2, 0))
    classes, true_classes = (overlay(image, labels, palette) for labels in (after["labels"].argmax(0), sample.labels))
    return {
        "predict.jpg": strip({
            "image": image, "depth": first["depth"], "normals": normals, "classes": first["classes"],
        }),
        "train.jpg": strip({
            "image": image, "measured depth": truth, "the bundled model": at_first, "after training": trained,
        }),
        "fine_tune.svg": drawn_curve(*curves),
        "evaluate.jpg": strip({
            "image": image, "ground truth": truth, "prediction": trained, f"error, 0 to {WORST:.0%}": error,
        }),
        "segmentation.jpg": strip({"image": image, "true classes": true_classes, "predicted classes": classes}),
    }  # fmt: skip


def main(folder: str = "docs/images", steps: str = "200") -> None:
    predictor = densevit.load(PACKAGED, precision="fp32")
    output, cloud = Path(folder, "room_model.jpg"), Path(folder, "room_cloud.gif")
    (h, w), palette = SIZE, palette_for(predictor.card.outputs["labels"])
    sheet = Image.new("RGB", (3 * (w + GAP) - GAP, len(EXAMPLES) * (h + GAP) - GAP), "white")
    with as_file(files("densevit.app") / "examples") as examples:
        for i, name in enumerate(EXAMPLES):
            photo = examples / f"{name}.jpg"
            image = np.asarray(Image.open(photo).convert("RGB"))
            for j, cell in enumerate(drawn(image, predictor.predict_all(photo), palette).values()):
                sheet.paste(Image.fromarray(np.asarray(cell)).resize((w, h)), (j * (w + GAP), i * (h + GAP)))
        first, *views = turning_cloud(predictor, examples / f"{TURNED}.jpg")
    sheet.save(output, quality=85, optimize=True)
    first.save(cloud, save_all=True, append_images=views, duration=80, loop=0, optimize=True)
    paths = [output, cloud]
    for name, picture in section_pictures(predictor, int(steps)).items():
        paths.append(Path(folder, name))
        if isinstance(picture, str):
            paths[-1].write_text(picture)
        else:
            picture.save(paths[-1], quality=85, optimize=True)
    for path in paths:
        print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
