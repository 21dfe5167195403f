"""Runs `densevit visualize-attention`; --help lists its options."""

from densevit.cli.main import tool

tool("visualize-attention")
