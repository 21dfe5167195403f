"""The door to `densevit eval-class`; run it with --help."""

from densevit.cli.main import tool

tool("eval-class")
