"""The door to `densevit replay`; run it with --help."""

from densevit.cli.main import tool

tool("replay")
