"""Writes rendered rooms in the file layouts of real data sets, to test their readers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from densevit.data.datasets.rooms import CLASSES
from densevit.data.synthetic import layouts
from densevit.data.synthetic.generate import check_numbers
from densevit.data.synthetic.renderer import render_scene
from densevit.errors import DataError
from densevit.structures import Sample
from densevit.utils.progress import tqdm

Layout = Literal["nyu", "nyu_labeled", "kitti"]

# Horizontal fields of view in degrees: 2 atan(w / 2f), f = 518.86 of 640 pixels and 721.54 of 1242.
FOV: dict[str, float] = {"nyu": 63.32, "nyu_labeled": 63.32, "kitti": 81.43}
SIZES: dict[str, tuple[int, int]] = {"nyu": (480, 640), "nyu_labeled": (480, 640), "kitti": (375, 1242)}


@dataclass(frozen=True)
class Rendering:
    """Parameters of the rendering of all splits."""

    scenes: Mapping[str, int]
    frames: int
    size: tuple[int, int]  # h, w
    seed: int
    fov: float  # degrees
    progress: bool

    def scene(self, split: str, scene: int) -> Iterator[Sample]:
        frames = render_scene(self.seed, split, scene, self.frames, self.size, fov=self.fov)
        return (frame.sample for frame in frames)

    def split(self, split: str) -> Iterator[Sample]:
        bar = tqdm(range(self.scenes.get(split, 0)), desc=split, unit="scene", disable=not self.progress)
        for scene in bar:
            yield from self.scene(split, scene)


def write_as(
    layout: Layout,
    root: Path,
    scenes: Mapping[str, int],
    frames: int = 4,
    size: tuple[int, int] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> None:
    """Renders into another data set's layout: one camera for all frames, and val written where that set keeps its test.

    Args:
        layout: nyu (the "sync" folders), nyu_labeled (the .mat file, val after train), kitti (one drive per scene).
        scenes: how many for each of train and val.
        size: (h, w) in pixels; None is the data set's own.

    Raises:
        DataError: `root` is not empty, the numbers make no sense, or embreex is not installed.
    """
    size = size or SIZES[layout]
    check_numbers(scenes, frames, size, seed)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DataError(f"{root}: is not an empty folder. Choose another; nothing is overwritten.")
    root.mkdir(parents=True, exist_ok=True)
    WRITERS[layout](root, Rendering(scenes, frames, size, seed, FOV[layout], progress))


def _nyu(root: Path, rendering: Rendering) -> None:
    layouts.write_nyu_sync(root, rendering.split("train"), "train")
    layouts.write_nyu_sync(root, rendering.split("val"), "test")


def _nyu_labeled(root: Path, rendering: Rendering) -> None:
    samples = [*rendering.split("train"), *rendering.split("val")]
    layouts.write_nyu_labeled(root / "nyu_depth_v2_labeled.mat", samples, classes=CLASSES)


def _kitti(root: Path, rendering: Rendering) -> None:
    drive = 1
    for split, part in (("train", "train"), ("val", "val")):
        for scene in tqdm(range(rendering.scenes.get(split, 0)), desc=split, disable=not rendering.progress):
            layouts.write_kitti(root, rendering.scene(split, scene), drive=drive, part=part)  # type: ignore[arg-type]
            drive += 1


WRITERS = {"nyu": _nyu, "nyu_labeled": _nyu_labeled, "kitti": _kitti}
