"""Indoor data sets to evaluate on, on disk: iBims-1, SUN RGB-D, Hypersim, DIML, TUM RGB-D, ScanNet."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
from jaxtyping import UInt16

from densevit.data.datasets.depth import hypersim, ibims, tum
from densevit.data.io.writers import encode, encode_depth
from densevit.structures import Sample
from layouts.common import lines_of, matrix_text, measured, number, parted, put
from layouts.encoders import mat


def write_ibims(root: Path, samples: Iterable[Sample]) -> None:
    """`rgb/`, `depth/`, `calib/`, `imagelist.txt`, and both masks, of which `mask_invalid` has the holes."""
    names = []
    for sample in samples:
        names.append(sample.name)
        put(root / f"rgb/{sample.name}.png", encode(".png", sample.image))
        put(root / f"depth/{sample.name}.png", encode_depth(measured(sample), ibims.Ibims.depth_scale))
        valid = (measured(sample) > 0).astype(np.uint8) * 255
        put(root / f"mask_invalid/{sample.name}.png", encode(".png", valid))
        put(root / f"mask_transp/{sample.name}.png", encode(".png", np.full_like(valid, 255)))
        if sample.intrinsics is not None:
            (fx, _, cx), (_, fy, cy), _ = sample.intrinsics
            put(root / f"calib/{sample.name}.txt", f"{fx},{fy},{cx},{cy}\n".encode())
    put(root / "imagelist.txt", lines_of(names))


def write_sunrgbd(root: Path, samples: Iterable[Sample], split: Literal["train", "test"] = "test") -> None:
    """One folder a sample under `SUNRGBD/kv1/NYUdata/`, and the toolbox's list of the split."""
    folders = []
    for i, sample in enumerate(samples):
        name = f"kv1/NYUdata/NYU{number(sample.name, i):04d}"
        folders.append(f"/n/fs/sun3d/data/SUNRGBD/{name}")
        folder, file = root / "SUNRGBD" / name, parted(sample.name)[1]
        depth = encode(".png", turn(np.rint(measured(sample) * 1000).astype(np.uint16)))
        put(folder / f"image/{file}.jpg", encode(".jpg", sample.image))
        put(folder / f"depth/{file}.png", depth)
        put(folder / f"depth_bfx/{file}.png", depth)
        if sample.intrinsics is not None:
            put(folder / "intrinsics.txt", matrix_text(sample))
    cells = np.array([[*folders]], dtype=object)
    other = "test" if split == "train" else "train"
    lists = mat(**{f"all{split}": cells, f"all{other}": np.empty((1, 0), object)})
    put(root / "SUNRGBDtoolbox/traintestSUNRGBD/allsplit.mat", lists)


def turn(millimetres: UInt16[np.ndarray, "h w"]) -> UInt16[np.ndarray, "h w"]:
    """SUN RGB-D's storage: the 16 bits turned left by three."""
    return (millimetres << np.uint16(3)) | (millimetres >> np.uint16(13))


def write_hypersim(root: Path, samples: Iterable[Sample]) -> None:
    """`ai_001_001/images/scene_cam_00_*`; distance along the ray as 16-bit floats, NaN where not valid."""
    for i, sample in enumerate(samples):
        home, frame = root / "ai_001_001/images", f"frame.{number(sample.name, i):04d}"
        depth = measured(sample)
        distance = np.where(depth > 0, depth / hypersim.cosines(*depth.shape), np.nan)
        content = BytesIO()
        with h5py.File(content, "w") as file:
            file.create_dataset("dataset", data=distance.astype(np.float16), compression="gzip")
        put(home / f"scene_cam_00_final_preview/{frame}.tonemap.jpg", encode(".jpg", sample.image))
        put(home / f"scene_cam_00_geometry_hdf5/{frame}.depth_meters.hdf5", content.getvalue())


def write_diml(root: Path, samples: Iterable[Sample], part: Literal["indoor", "outdoor"] = "indoor") -> None:
    """`LR/SCENE/{color,depth_filled}/` or `SCENE/{outleft,depthmap}/`."""
    for sample in samples:
        scene, file = parted(sample.name)
        image, depth = encode(".png", sample.image), encode_depth(measured(sample), 1000.0)
        if part == "indoor":
            put(root / f"LR/{scene}/color/{file}_c.png", image)
            put(root / f"LR/{scene}/depth_filled/{file}_depth_filled.png", depth)
        else:
            put(root / f"{scene}/outleft/{file}.png", image)
            put(root / f"{scene}/depthmap/{file}.png", depth)


def write_tum(root: Path, samples: Iterable[Sample], *, gap: float = 0.01) -> None:
    """One sequence, 30 images a second, each depth map `gap` seconds after its image."""
    lines: dict[str, list[str]] = {"rgb": ["# color images"], "depth": ["# depth maps"]}
    for i, sample in enumerate(samples):
        files = {"rgb": encode(".png", sample.image), "depth": encode_depth(measured(sample), tum.Tum.depth_scale)}
        for kind, data in files.items():
            time = f"{1305031452.0 + i / 30 + (gap if kind == 'depth' else 0):.6f}"
            put(root / f"{kind}/{time}.png", data)
            lines[kind].append(f"{time} {kind}/{time}.png")
    for kind, text in lines.items():
        put(root / f"{kind}.txt", lines_of(text))


def write_scannet(root: Path, samples: Iterable[Sample]) -> None:
    """`scans/SCENE/{color,depth,intrinsic}/`; colour has the depth map's size, unlike the original's 968 x 1296."""
    for i, sample in enumerate(samples):
        scene, frame = parted(sample.name)[0], number(sample.name, i)
        home = root / "scans" / scene
        put(home / f"color/{frame}.jpg", encode(".jpg", sample.image))
        put(home / f"depth/{frame}.png", encode_depth(measured(sample), 1000.0))
        if sample.intrinsics is not None:
            matrix = np.eye(4)
            matrix[:3, :3] = sample.intrinsics
            text = "\n".join(" ".join(f"{x:.6f}" for x in row) for row in matrix)
            put(home / "intrinsic/intrinsic_depth.txt", text.encode())
