"""The door to `densevit train`; run it with --help."""

from densevit.cli.main import tool

tool("train")
