"""The ray tracer (embree, through `embreex`) over the triangles of one scene."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from densevit.errors import DataError

Rays = Float32[np.ndarray, "n 3"]


class RayTracer:
    """Intersects rays with the triangles of one scene.

    Raises:
        DataError: embreex is not installed.
    """

    def __init__(self, vertices: Float64[np.ndarray, "v 3"], faces: Int64[np.ndarray, "f 3"]) -> None:
        scene, mesh = require_embree()
        self.scene = scene()
        mesh(self.scene, vertices.astype(np.float32), faces.astype(np.int32))

    def intersect(
        self, origin: Float[np.ndarray, "*n 3"], rays: Rays
    ) -> tuple[Int64[np.ndarray, " n"], Float32[np.ndarray, " n"], Float32[np.ndarray, "n 2"]]:
        """Return the first hit of each ray. Returns the triangle, -1 for none; the distance in lengths of the ray; the
        barycentric coordinates of the triangle's second and third vertex."""
        origins = np.broadcast_to(origin.astype(np.float32), rays.shape).copy()
        hit = self.scene.run(origins, rays, output=1)
        return hit["primID"].astype(np.int64), hit["tfar"], np.stack([hit["u"], hit["v"]], axis=1)

    def occluded(self, origins: Rays, directions: Rays) -> Bool[np.ndarray, " n"]:
        """Return whether a triangle lies between `origin` and `origin + direction`."""
        if not len(origins):  # embreex fails on no rays at all
            return np.zeros(0, dtype=bool)
        limit = np.full(len(origins), 0.999, dtype=np.float32)
        return np.asarray(self.scene.run(origins, directions, limit, query="OCCLUDED") >= 0)


def require_embree() -> tuple[Any, Any]:
    """Return the scene and mesh classes of embreex. Raises DataError if it is not installed."""
    try:
        from embreex.mesh_construction import TriangleMesh  # type: ignore[import-untyped]
        from embreex.rtcore_scene import EmbreeScene  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"rendering rooms needs embreex ({error}). Run: pip install 'densevit[rooms]'") from None
    return EmbreeScene, TriangleMesh
