"""`sintel`: MPI Sintel, 1,064 frames of 23 scenes of an animated film, 436 x 1024, rendered depth.

    [training/]{final,clean}/alley_1/frame_0001.png
    [training/]depth/alley_1/frame_0001.dpt            tag 202021.25, width, height, then h x w floats (metres)
    [training/]camdata_left/alley_1/frame_0001.cam     the tag, 3 x 3 intrinsics, 3 x 4 extrinsics (doubles)

Butler et al. 2012. The sky lies very far away; depth beyond `max_depth` is not valid.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float32, Float64
from pydantic import Field

from densevit.data.datasets.base import DATASETS, FileDataset, Root, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, find_files, first_folder
from densevit.data.io.images import read_bytes
from densevit.data.io.samples import valid_depth
from densevit.errors import DataError

TAG = 202021.25  # first in every .dpt and .cam


@DATASETS.register("sintel")
class Sintel(FileDataset):
    """MPI Sintel, training, left eye."""

    sizes = frozenset([(436, 1024)])
    video = True

    def __init__(
        self,
        *,
        root: Root = None,
        pass_name: Literal["final", "clean"] = "final",
        max_depth: Annotated[float, Field(gt=0)] = 72.0,
        subset: Subset = "full",
    ) -> None:
        """List the frames.

        Args:
            pass_name: final has fog and motion blur, clean has not.
            max_depth: metres beyond which depth is not valid; 72 is what zero-shot papers since MiDaS evaluate to.
        """
        self.root = resolve_root(root, "sintel")
        self.depth_range = (1e-3, max_depth)
        folder = first_folder(self.root, ("", "training", "MPI-Sintel-complete/training"), "depth")
        images = find_files(folder, [f"{pass_name}/*/frame_*.png"], "MPI-Sintel's complete archive has them.")
        super().__init__([_files(folder, path) for path in images], subset, f"sintel '{pass_name}' in {folder}")

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"]:
        assert files.depth is not None
        depth = read_dpt(files.depth)
        return valid_depth(depth, depth <= self.depth_range[1])

    def decode_intrinsics(self, files: SampleFiles) -> Float64[np.ndarray, "3 3"] | None:
        path = files.intrinsics
        return read_cam(path) if isinstance(path, Path) and path.is_file() else None


def read_dpt(path: Path) -> Float32[np.ndarray, "h w"]:
    """Return a depth map of Sintel's own format. Raises DataError if it is damaged, truncated, or something else."""
    data = _tagged(path)
    width, height = (int(n) for n in np.frombuffer(data, "<i4", 2, 4)) if len(data) >= 12 else (0, 0)
    expected = 12 + 4 * width * height
    if width < 1 or height < 1 or len(data) != expected:
        raise DataError(f"{path}: {len(data):,} bytes; a depth map of {height} x {width} has {expected:,}.")
    return np.frombuffer(data, "<f4", offset=12).reshape(height, width).astype(np.float32)


def read_cam(path: Path) -> Float64[np.ndarray, "3 3"]:
    """Return the intrinsics of Sintel's camera files. Raises DataError if it is damaged, truncated, or something
    else."""
    data = _tagged(path)
    if len(data) < 4 + 9 * 8:
        raise DataError(f"{path}: {len(data)} bytes; the intrinsics alone are 76.")
    return np.frombuffer(data, "<f8", 9, 4).reshape(3, 3).copy()


def _tagged(path: Path) -> bytes:
    data = read_bytes(path)
    if len(data) < 4 or np.frombuffer(data, "<f4", 1)[0] != TAG:
        raise DataError(f"{path}: does not begin with {TAG}, as Sintel's files do.")
    return data


def _files(folder: Path, image: Path) -> SampleFiles:
    name = f"{image.parent.name}/{image.stem}"
    return SampleFiles(name, image, folder / f"depth/{name}.dpt", intrinsics=folder / f"camdata_left/{name}.cam")
