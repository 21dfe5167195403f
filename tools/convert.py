"""The door to `densevit convert`; run it with --help."""

from densevit.cli.main import tool

tool("convert")
