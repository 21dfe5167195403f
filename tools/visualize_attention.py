"""The door to `densevit visualize-attention`; run it with --help."""

from densevit.cli.main import tool

tool("visualize-attention")
