"""Runs `densevit replay`; --help lists its options."""

from densevit.cli.main import tool

tool("replay")
