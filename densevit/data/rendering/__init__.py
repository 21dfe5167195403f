"""Renders the `rooms` data set: rooms, furniture, cameras and light from random numbers (extra `densevit[rooms]`)."""

from densevit.data.rendering.frames import Frame, render_frames, render_scene
from densevit.data.rendering.generate import generate

__all__ = ["Frame", "generate", "render_frames", "render_scene"]
