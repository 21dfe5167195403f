"""Runs `densevit export-seg`; --help lists its options."""

from densevit.cli.main import tool

tool("export-seg")
