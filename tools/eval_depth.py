"""The door to `densevit eval-depth`; run it with --help."""

from densevit.cli.main import tool

tool("eval-depth")
