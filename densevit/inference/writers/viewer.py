"""A point cloud in one HTML file that any browser opens: orbit, pan and zoom, nothing fetched."""

import base64
from pathlib import Path

import numpy as np

from densevit.inference.writers.base import DEPTH_FORMATS, PredictedMap
from densevit.inference.writers.surface import SurfaceWriter
from densevit.reporting.html_page import render
from densevit.utils.atomic_io import write_text

MAX_POINTS = 400_000  # of 9 bytes each, as text a third more: under 5 MB
STEPS = 65535  # of a coordinate between its ends

PAGE = "viewer.html"


@DEPTH_FORMATS.register("viewer")
class Viewer(SurfaceWriter):
    """Self-contained HTML page that shows the point cloud; at most 5 MB, so that large images are thinned out."""

    suffix = ".viewer.html"

    def write(self, path: Path, frame: PredictedMap) -> int:
        surface = self.surface(frame)
        h, w = surface.valid.shape
        stride = max(1, int(np.ceil((np.count_nonzero(surface.valid) / MAX_POINTS) ** 0.5)))
        some = np.s_[::stride, ::stride]
        valid = surface.valid[some]
        points, colors = surface.points[some][valid], frame.image[some][valid]
        low, high = (points.min(0), points.max(0)) if len(points) else (np.zeros(3), np.ones(3))
        scale = np.where(high > low, (high - low) / STEPS, 1)
        stored = np.rint((points - low) / scale).astype("<u2")
        values = {
            "title": path.name.removesuffix(self.suffix),
            "count": len(points),
            "shown": f"{len(points):,} points" + (f", every {stride}. pixel" if stride > 1 else ""),
            "unit": self.unit,
            "low": low.tolist(),
            "scale": scale.tolist(),
            "focal": float(surface.camera[0, 0]) / w,
            "aspect": h / w,
            "spacing": stride / float(surface.camera[0, 0]),
            "middle": float(np.median(points[:, 2])) if len(points) else 1.0,
            "points": base64.b64encode(stored.tobytes()).decode(),
            "colors": base64.b64encode(colors.tobytes()).decode(),
        }
        write_text(path, str(render(PAGE, **values)))
        return 0
