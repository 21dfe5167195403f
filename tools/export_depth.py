"""Runs `densevit predict`; --help lists its options."""

from densevit.cli.main import tool

tool("predict")
