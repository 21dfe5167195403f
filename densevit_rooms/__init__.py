"""Renders the `rooms` data set: rooms, furniture, cameras and light from random numbers (extra `densevit[rooms]`)."""

from densevit_rooms.generate import generate
from densevit_rooms.renderer import Frame, render_scene

__all__ = ["Frame", "generate", "render_scene"]
