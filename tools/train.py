"""Runs `densevit train`; --help lists its options."""

from densevit.cli.main import tool

tool("train")
