"""Runs `densevit benchmark`; --help lists its options."""

from densevit.cli.main import tool

tool("benchmark")
