"""The door to `densevit check-data`; run it with --help."""

from densevit.cli.main import tool

tool("check-data")
