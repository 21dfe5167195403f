"""The gallery: renders rooms, trains a small model on them in a minute, and runs the commands that the page shows."""

import contextlib
import io
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

import densevit
from densevit.cli.main import main as command
from densevit.data.datasets.base import open_dataset
from densevit.ops.colors import colorize, colorize_normals, paint, percentile_range
from densevit_rooms import generate

STEPS = 240
SCENES, FRAMES, SIZE = {"train": 4, "val": 1}, 6, (192, 256)
SHOWN = ("scene_00000", "scene_00002")

PAGE = """# Gallery

Every picture here was made by the commands beside it when this site was built: rooms from the built-in renderer, and
a model of {parameters:.1f} million parameters that was trained **on these {images} images for {steps} steps on a CPU**.
They show what densevit writes, not how good a model is; for scores see [Evaluation](evaluation.md) and the reports
under *Measured*.

## Synthetic rooms

```sh
{generate}
```

Images with exact depth, classes and surface normals, rendered on a CPU ([Data](data.md#rooms)).

{truth}

## Depth and classes from one pass

```sh
{train}
{export}
```

{predicted}

## A point cloud to turn

Drag to orbit, wheel or pinch to zoom; one file, which fetches nothing
([Geometry](geometry.md#point-clouds-and-meshes)).

<iframe src="gallery/cloud.html" title="point cloud" class="cloud" loading="lazy"></iframe>

## Where the model looks

```sh
{attention}
```

Attention of the last layer, mean of its heads, and the same rolled out over all layers.

{looks}

## Reports

```sh
{evaluate}
```

- <a href="gallery/train.html">The training's report</a>: curves, scores, the best and worst images
- <a href="gallery/depth.html">The evaluation's report</a>: the protocol in words, scores with intervals
"""


def write(pages: Path, work: Path, *, steps: int = STEPS) -> None:
    """Writes gallery.md and its pictures into `pages`; everything is made anew in `work`."""
    shutil.rmtree(work, ignore_errors=True)
    rooms, run, maps, scores, attention = (work / name for name in ("rooms", "run", "maps", "scores", "attention"))
    folder = pages / "gallery"
    folder.mkdir()
    generate(rooms, SCENES, frames=FRAMES, size=SIZE, mount="robot", fov=(60, 60), normals=True, progress=False)
    roots = f"data.train.root={rooms} data.val.root={rooms} data.val.split=train"
    shown = [rooms / "train" / scene / "rgb_00.jpg" for scene in SHOWN]
    commands = {
        "train": f"densevit train multitask/rooms {roots} steps={steps} batch_size=8 "
        f"validate_every={steps} output={run}",
        "export": f"densevit predict {run} {shlex.join(map(str, shown))} --output {maps} --fov 60 "
        "--formats color,labels,overlay,viewer",
        "attention": f"densevit inspect {run} --attention {shown[0]} --output {attention}",
        "evaluate": f"densevit eval {run} --data rooms --root {rooms} --split train --output {scores}",
    }
    for line in commands.values():
        call(line)
    for name, report in {"train": run, "depth": scores}.items():
        shutil.copyfile(report / "report.html", folder / f"{name}.html")
    (viewer,) = sorted(maps.rglob("*.html"))[:1]
    shutil.copyfile(viewer, folder / "cloud.html")
    last = sorted(attention.glob("layer*_mean.png"))[-1]
    looks = {"image": attention / "image.png", "mean": last}
    looks["rollout"] = last.with_name(last.name.replace("mean", "rollout"))
    scenes = " ".join(f"--{split}-scenes {count}" for split, count in SCENES.items())
    commands["generate"] = (
        f"python datasets/prepare_rooms.py --root rooms {scenes} --frames {FRAMES} --size {SIZE[0]}x{SIZE[1]} "
        "--mount robot --fov 60 60 --normals"
    )
    text = PAGE.format(
        images=SCENES["train"] * FRAMES,
        steps=steps,
        parameters=sum(p.numel() for p in densevit.load(run).model.parameters()) / 1e6,
        truth="\n\n".join(row(folder, f"truth-{i}", dict(truth(rooms, i * FRAMES * 2))) for i in range(2)),
        predicted="\n\n".join(row(folder, f"maps-{i}", dict(predicted(image, maps))) for i, image in enumerate(shown)),
        looks=row(folder, "attention", {name: np.asarray(Image.open(path)) for name, path in looks.items()}),
        **{name: folded(line.replace(f"{work}/", "")) for name, line in commands.items()},
    )
    (pages / "gallery.md").write_text(text, encoding="utf-8")


def call(line: str) -> None:
    """
    Raises:
        RuntimeError: the command failed; with what it printed.
    """
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command(shlex.split(line)[1:])
    if code:
        raise RuntimeError(f"{line}\n{said.getvalue()}")


def folded(line: str) -> str:
    """A command in lines of at most 84 characters."""
    return " \\\n    ".join(textwrap.wrap(line, 80, break_long_words=False, break_on_hyphens=False))


def truth(rooms: Path, index: int) -> Iterator[tuple[str, np.ndarray]]:
    """Caption and pixels of what a sample knows."""
    data = open_dataset({"type": "rooms", "root": str(rooms), "split": "train"})
    sample = data.read(index)
    assert sample.depth is not None and sample.labels is not None and sample.normals is not None
    yield "image", sample.image
    yield "depth", colorize(sample.depth, *percentile_range(sample.depth), "turbo")
    yield "normals", colorize_normals(sample.normals)
    yield "classes", paint(sample.labels, data.palette)


def predicted(image: Path, maps: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Caption and pixels of what the export wrote for an image."""
    yield "image", np.asarray(Image.open(image))
    for caption, suffix in {"depth": ".color", "classes": ".overlay"}.items():
        (path,) = maps.rglob(f"{image.parent.name}/{image.stem}{suffix}.png")
        yield caption, np.asarray(Image.open(path))


def row(folder: Path, name: str, panels: dict[str, np.ndarray]) -> str:
    """Pictures side by side, each with its caption, as HTML inside Markdown."""
    lines = ['<div class="row">']
    for number, (caption, pixels) in enumerate(panels.items()):
        path = folder / f"{name}-{number}.jpg"
        Image.fromarray(pixels).convert("RGB").save(path, quality=88)
        height, width = pixels.shape[:2]
        lines.append(
            f'<figure><img src="gallery/{path.name}" alt="{caption}" width="{width}" height="{height}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    return "\n".join([*lines, "</div>"])
