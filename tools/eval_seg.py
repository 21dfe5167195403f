"""The door to `densevit eval-seg`; run it with --help."""

from densevit.cli.main import tool

tool("eval-seg")
