"""Writes the `rooms` data set, scene by scene; the layout is densevit.data.datasets.rooms'."""

import json
import multiprocessing
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np

from densevit.data.datasets.rooms import CLASSES, DEPTH_SCALE, VERSION, Meta, read_meta, scene_name
from densevit.data.io.normals import encode_normals
from densevit.data.io.writers import encode, encode_depth, encode_flow
from densevit.errors import DataError
from densevit.utils.atomic_io import atomic_folder, remove_stale_temporaries, write_text
from densevit.utils.json_files import checked
from densevit.utils.output import tqdm
from densevit_rooms.ray_tracer import require_embree
from densevit_rooms.renderer import BASELINE, Frame, render_scene
from densevit_rooms.variety import VARIETIES, VarietyName
from densevit_rooms.walk import WalkFrame, render_walk

SPLITS = ("train", "val", "test")
FOV = (5, 150)  # degrees; at 150 the outermost pixel of a pinhole image covers a fifteenth of the middle one's angle


@dataclass(frozen=True)
class RenderConfig:
    """What a frame of the data set depends on, but for its split, scene and number."""

    root: Path
    frames: int
    size: tuple[int, int]  # h, w
    seed: int
    mount: str
    fov: tuple[float, float] | None = None  # degrees; None: the mount's
    views: int = 1
    baseline: tuple[float, float] | None = None  # metres; None: the renderer's
    normals: bool = False
    fps: float | None = None  # of walks; None: single frames
    movers: int = 2
    variety: VarietyName = "demo"


def generate(
    root: Path,
    scenes: Mapping[str, int],
    frames: int = 4,
    size: tuple[int, int] = (192, 256),
    seed: int = 0,
    workers: int = 1,
    overwrite: bool = False,
    progress: bool = True,
    mount: Literal["hand", "robot", "level", "any"] | None = None,
    fov: tuple[float, float] | None = None,
    views: int = 1,
    baseline: tuple[float, float] | None = None,
    normals: bool = False,
    fps: float | None = None,
    movers: int = 2,
    variety: VarietyName = "demo",
) -> None:
    """Make the scenes that `root` does not hold yet; what comes out does not depend on the number of workers.

    So an interrupted call is resumed by the same call, and one for more scenes adds them. Raises DataError if `root`
    holds something else, the numbers make no sense, or embreex is not installed. Raises StorageError if the disk is
    full or read-only.

    Args:
        scenes: how many for each of train, val, test.
        frames: per scene.
        size: (h, w) in pixels.
        workers: processes; 1 renders in this one.
        overwrite: replaces another `rooms` data set that stands at `root`.
        mount: how cameras are held (densevit_rooms.camera.MOUNTS); None takes the variety's: hand, or any for
            wide.
        fov: range in degrees that horizontal fields of view are drawn from; None is the mount's.
        views: camera poses of the place that each frame shows; with more than one, poses are written.
        baseline: range in metres that their distances from the first are drawn from; None is 0.3 to 1.2.
        normals: write exact surface normals, too.
        fps: each scene is a walk of a camera, at this frame rate, with poses and optical flow (walk.py).
        movers: things that move in a walk, at most.
        variety: how much rooms, light and cameras differ (densevit_rooms.variety); not of walks.
    """
    require_embree()
    check_numbers(scenes, frames, size, seed, views)
    check_fov(fov)
    check_baseline(baseline, views)
    check_walk(fps, movers, views, variety)
    if workers < 1:
        raise DataError(f"{workers} workers; there is at least one.")
    held = mount or VARIETIES[variety].mount
    config = RenderConfig(Path(root), frames, size, seed, held, fov, views, baseline, normals, fps, movers, variety)
    meta = dataset_json(config, scenes)
    _prepare_root(config.root, meta, overwrite)
    write_text(config.root / "dataset.json", json.dumps(meta, indent=1) + "\n")
    jobs = [(config, split, scene) for split in SPLITS for scene in range(scenes.get(split, 0))]
    missing = [job for job in jobs if not _folder(*job).is_dir()]
    with _mapper(min(workers, len(missing))) as run:
        bar = tqdm(run(missing), total=len(missing), desc="rooms", unit="scene", disable=not progress)
        for _ in bar:
            pass


def dataset_json(config: RenderConfig, scenes: Mapping[str, int]) -> dict[str, Any]:
    """Return the content of `dataset.json`."""
    # Only what was chosen, so that data sets made without these options stay what they were.
    chosen: dict[str, Any] = {} if config.fov is None else {"fov": list(config.fov)}
    chosen |= {"views": config.views} if config.views > 1 else {}
    chosen |= {} if config.baseline is None else {"baseline": list(config.baseline)}
    chosen |= {"normals": True} if config.normals else {}
    chosen |= {} if config.variety == "demo" else {"variety": config.variety}
    chosen |= {} if config.fps is None else {"fps": config.fps, "movers": config.movers}
    return {
        "version": VERSION,
        "seed": config.seed,
        "size": list(config.size),
        "frames": config.frames,
        "mount": config.mount,
        **chosen,
        "depth_scale": DEPTH_SCALE,
        "classes": list(CLASSES),
        "scenes": {split: scenes.get(split, 0) for split in SPLITS},
    }


def write_scene(config: RenderConfig, split: str, scene: int) -> None:
    """Render one scene into its folder, which appears when it is complete."""
    options: dict[str, Any] = {"mount": config.mount, "fov": config.fov}
    place = (config.seed, split, scene, config.frames, config.size)
    walk: list[WalkFrame] = []
    if config.fps is None:
        options |= {"views": config.views, "baseline": config.baseline or BASELINE, "variety": config.variety}
        frames = list(render_scene(*place, **options))
    else:
        walk = list(render_walk(*place, config.fps, movers=config.movers, **options))
        frames = [part.frame for part in walk]
    with atomic_folder(_folder(config, split, scene)) as folder:
        for number, part in enumerate(walk):
            if part.flow is not None:
                (folder / f"flow_{number:02d}.png").write_bytes(encode_flow(part.flow))
        for number, frame in enumerate(frames):
            for name, data in encode_frame(frame, normals=config.normals).items():
                stem, suffix = name.split(".")
                (folder / f"{stem}_{number:02d}.{suffix}").write_bytes(data)
        intrinsics = [frame.sample.intrinsics.tolist() for frame in frames if frame.sample.intrinsics is not None]
        (folder / "intrinsics.json").write_text(json.dumps(intrinsics) + "\n", encoding="utf-8")
        if config.views > 1 or walk:
            poses = [frame.sample.pose.tolist() for frame in frames if frame.sample.pose is not None]
            (folder / "poses.json").write_text(json.dumps(poses) + "\n", encoding="utf-8")


def encode_frame(frame: Frame, *, normals: bool = False) -> dict[str, bytes]:
    sample = frame.sample
    assert sample.depth is not None and sample.labels is not None and sample.normals is not None
    return {
        "rgb.jpg": encode(".jpg", sample.image),
        "depth.png": encode_depth(sample.depth, DEPTH_SCALE),
        "labels.png": encode(".png", sample.labels.astype(np.uint8)),
        "instances.png": encode(".png", frame.instances),
        **({"normals.png": encode_normals(sample.normals)} if normals else {}),
    }


def check_numbers(scenes: Mapping[str, int], frames: int, size: tuple[int, int], seed: int, views: int = 1) -> None:
    unknown = set(scenes) - set(SPLITS)
    if unknown:
        raise DataError(f"no split {', '.join(sorted(unknown))}; there are {', '.join(SPLITS)}.")
    if min(scenes.values(), default=0) < 0 or max(scenes.values(), default=0) < 1:
        raise DataError(f"{dict(scenes)} scenes; at least one split needs one or more, and none less than 0.")
    if views < 1:
        raise DataError(f"{views} views of each place; there is at least one.")
    if not 1 <= frames * views <= 100:
        times = f" of {views} views each" if views > 1 else ""
        raise DataError(f"{frames} frames per scene{times}; 1 to 100 images fit the names of the files.")
    if min(size) < 8:
        raise DataError(f"images of {size[0]}x{size[1]} (h x w); each side needs 8 pixels or more.")
    if seed < 0:
        raise DataError(f"seed {seed}; a seed is 0 or more.")


def check_fov(fov: tuple[float, float] | None) -> None:
    if fov is not None and not FOV[0] <= fov[0] <= fov[1] <= FOV[1]:
        raise DataError(
            f"fov {fov[0]:g} to {fov[1]:g}: horizontal fields of view lie between {FOV[0]} and {FOV[1]} degrees, the "
            "smaller one first."
        )


def check_baseline(baseline: tuple[float, float] | None, views: int) -> None:
    if baseline is not None and views < 2:
        raise DataError("a baseline lies between two views or more; give --views 2.")
    if baseline is not None and not 0 < baseline[0] <= baseline[1] <= 10:
        raise DataError(
            f"baseline {baseline[0]:g} to {baseline[1]:g}: views of a room lie over 0 and up to 10 metres apart, the "
            "smaller one first."
        )


def check_walk(fps: float | None, movers: int, views: int, variety: str = "demo") -> None:
    if fps is not None and not 1 <= fps <= 240:
        raise DataError(f"{fps} frames per second; a walk has 1 to 240.")
    if fps is not None and views > 1:
        raise DataError("a walk shows each place many times; views are for single frames.")
    if fps is not None and variety != "demo":
        raise DataError(f"variety '{variety}' is for single frames; a walk shows demo rooms.")
    if movers < 0:
        raise DataError(f"{movers} things that move; there are 0 or more.")


def _prepare_root(root: Path, meta: dict[str, Any], overwrite: bool) -> None:
    """Check that `root` is empty or holds a part of the same data set, and make its folders."""
    if root.exists() and not root.is_dir():
        raise DataError(f"{root}: is a file; a data set needs a folder.")
    if root.is_dir() and any(root.iterdir()):
        if not (root / "dataset.json").is_file():
            raise DataError(f"{root}: holds files, but no `rooms` data set. Choose another folder, or empty this one.")
        differs = _difference(root, meta)
        if differs and not overwrite:
            raise DataError(f"{root}: holds another data set ({differs}). Choose another folder, or pass --overwrite.")
        if differs:
            _remove(root)
    for split, count in meta["scenes"].items():
        if count:
            (root / split).mkdir(parents=True, exist_ok=True)
            remove_stale_temporaries(root / split)


def _difference(root: Path, meta: dict[str, Any]) -> str:
    """Return how the data set at `root` differs from a part of the one that `meta` describes; empty if it does not."""
    try:
        there = read_meta(root)
        scenes = checked(Meta, there, root).scenes
    except DataError as error:
        return str(error)
    keys = dict.fromkeys([*meta, *there])
    differs = [f"{key} {there.get(key)}, not {meta.get(key)}" for key in keys if there.get(key) != meta.get(key)]
    grown = all(scenes.get(split, 0) <= count for split, count in meta["scenes"].items())
    return "; ".join(text for text in differs if not (grown and text.startswith("scenes ")))


def _remove(root: Path) -> None:
    """Remove the files of a `rooms` data set and no others."""
    (root / "dataset.json").unlink()
    for split in SPLITS:
        for folder in (root / split).glob("scene_*"):
            shutil.rmtree(folder)


def _folder(config: RenderConfig, split: str, scene: int) -> Path:
    return config.root / split / scene_name(scene)


@contextmanager
def _mapper(workers: int) -> Iterator[Any]:
    """A function that runs `write_scene` over jobs, here or in processes, and yields as they are done."""
    if workers <= 1:
        yield lambda jobs: map(_run, jobs)
        return
    # Spawned, not forked: the threads of embree and OpenCV do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(workers, initializer=cv2.setNumThreads, initargs=(1,)) as pool:
        yield lambda jobs: pool.imap_unordered(_run, jobs)


def _run(job: tuple[RenderConfig, str, int]) -> None:
    write_scene(*job)
