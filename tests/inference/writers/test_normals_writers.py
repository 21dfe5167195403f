"""Normals as files: of a head, or of metric depth; in the axes of others."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from densevit.data.io.normals import read_normals
from densevit.errors import DataError
from densevit.inference.camera import Intrinsics
from densevit.inference.writers import DEPTH_FORMATS, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.geometry import backproject, pinhole

SIZE = (24, 32)
CAMERA = Intrinsics(30.0, 31.0, 15.0, 12.0)
NORMAL = np.array([0.3, -0.2, -1]) / np.linalg.norm([0.3, -0.2, -1])


def frame(values: np.ndarray, spec: HeadSpec) -> PredictedMap:
    values[..., :2, :] = np.nan
    image = np.zeros((*SIZE, 3), np.uint8)
    return PredictedMap(values=values.astype(np.float32), image=image, spec=spec, camera=CAMERA)


def depth() -> PredictedMap:
    rays = backproject(np.ones(SIZE), pinhole(30.0, 31.0, 15.0, 12.0))
    return frame(-2 / (rays @ NORMAL), HeadSpec(kind="metric"))


def normals() -> PredictedMap:
    return frame(np.tile(NORMAL[:, None, None], (1, *SIZE)), HeadSpec(kind="normals", unit=""))


@pytest.mark.parametrize("name", ["normals", "normals_npy", "normals_exr"])
def test_normals_come_back(tmp_path: Path, name: str) -> None:
    for map_, axes in product((depth(), normals()), ("opencv", "dsine")):
        writer = DEPTH_FORMATS.check({"type": name, "axes": axes}, "format").build()
        path = tmp_path / f"a{writer.suffix}"
        writer.write(path, map_)
        read = read_normals(path, axes)
        assert not read[:2].any()
        np.testing.assert_allclose(read[2:].reshape(-1, 3), np.tile(NORMAL, (22 * 32, 1)), atol=2e-4)
        if axes == "dsine":
            with pytest.raises(DataError, match="point away from the camera if its axes are opencv"):
                read_normals(path)
