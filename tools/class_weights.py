"""Runs `densevit class-weights`; --help lists its options."""

from densevit.cli.main import tool

tool("class-weights")
