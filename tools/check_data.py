"""Runs `densevit check-data`; --help lists its options."""

from densevit.cli.main import tool

tool("check-data")
