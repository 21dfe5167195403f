"""Runs `densevit export-depth`; --help lists its options."""

from densevit.cli.main import tool

tool("export-depth")
