"""The door to `densevit protocols`; run it with --help."""

from densevit.cli.main import tool

tool("protocols")
