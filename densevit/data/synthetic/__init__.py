"""Renders the `rooms` data set: rooms, furniture, cameras and light from random numbers (extra `densevit[rooms]`)."""

from densevit.data.synthetic.generate import generate
from densevit.data.synthetic.renderer import Frame, render_scene

__all__ = ["Frame", "generate", "render_scene"]
