"""The door to `densevit inspect`; run it with --help."""

from densevit.cli.main import tool

tool("inspect")
