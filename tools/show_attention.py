"""The door to `densevit show-attention`; run it with --help."""

from densevit.cli.main import tool

tool("show-attention")
