"""Runs `densevit compare`; --help lists its options."""

from densevit.cli.main import tool

tool("compare")
