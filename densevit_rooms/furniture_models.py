"""The furniture library that ships with densevit: CC0 models with their sizes in metres (../furniture/LICENSE.txt).

A model stands on z = 0, its bounding box centred on x = y = 0, its front towards +y.
"""

import io
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import cv2
import numpy as np

from densevit_rooms.mesh import Mesh
from densevit_rooms.textures import Image, plain


@dataclass(frozen=True)
class Model:
    """What a planner must know of a piece before its triangles are needed."""

    name: str
    label: str  # one of densevit.data.datasets.rooms.CLASSES
    size: tuple[float, float, float]  # width, depth, height in metres
    surface: float | None  # the height in metres at which things can stand on it


@cache
def models() -> dict[str, Model]:
    entries = json.loads((files("densevit_rooms") / "furniture" / "index.json").read_text(encoding="utf-8"))
    return {e["name"]: Model(e["name"], e["label"], tuple(e["size"]), e["surface"]) for e in entries}


@cache
def load(name: str) -> tuple[Mesh, tuple[Image, ...]]:
    """Return a model's mesh and the textures that its `texture` counts; the format is datasets/rooms_furniture.py's."""
    data = (files("densevit_rooms") / "furniture" / f"{name}.npz").read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    jpegs = [cv2.imdecode(arrays[f"jpeg_{i}"], cv2.IMREAD_COLOR_RGB) for i in range(arrays["textures"].max() + 1)]
    size = np.array(models()[name].size)
    # A texture is shown as it is; a material without one has a texture of one white texel, and its colour as tint.
    texture = np.where(arrays["textures"] < 0, len(jpegs), arrays["textures"]).astype(np.int64)
    tint = np.where(arrays["textures"][:, None] < 0, linear(arrays["colours"]), 1.0).astype(np.float32)
    mesh = Mesh(
        vertices=(arrays["vertices"] / 65535 - (0.5, 0.5, 0.0)) * size,
        normals=arrays["normals"].astype(np.float32) / 127,
        uv=arrays["uv"] * np.array([1, -1], dtype=np.float32),  # OBJ counts v from the bottom
        faces=arrays["faces"].astype(np.int64),
        texture=texture[arrays["material"]],
        tint=tint[arrays["material"]],
    )
    return mesh, (*map(np.asarray, jpegs), plain((255, 255, 255)))


def linear(
    srgb: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]",
) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Return the light from sRGB bytes, by the power 2.2 that stands for its curve; no material reflects less than 2
    %."""
    return np.maximum((srgb / 255) ** 2.2, 0.02).astype(np.float32)
