"""The door to `densevit eval-pairs`; run it with --help."""

from densevit.cli.main import tool

tool("eval-pairs")
