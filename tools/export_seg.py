"""The door to `densevit export-seg`; run it with --help."""

from densevit.cli.main import tool

tool("export-seg")
