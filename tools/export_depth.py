"""The door to `densevit export-depth`; run it with --help."""

from densevit.cli.main import tool

tool("export-depth")
