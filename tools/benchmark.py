"""The door to `densevit benchmark`; run it with --help."""

from densevit.cli.main import tool

tool("benchmark")
