"""Runs `densevit inspect`; --help lists its options. A file named `inspect.py` would hide Python's own module."""

from densevit.cli.main import tool

tool("inspect")
