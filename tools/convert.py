"""Runs `densevit convert`; --help lists its options."""

from densevit.cli.main import tool

tool("convert")
