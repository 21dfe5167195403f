"""The door to `densevit inspect`; run it with --help. A tool named `inspect.py` would hide Python's own module."""

from densevit.cli.main import tool

tool("inspect")
