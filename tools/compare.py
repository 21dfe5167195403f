"""The door to `densevit compare`; run it with --help."""

from densevit.cli.main import tool

tool("compare")
