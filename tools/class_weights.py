"""The door to `densevit class-weights`; run it with --help."""

from densevit.cli.main import tool

tool("class-weights")
