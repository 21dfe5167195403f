"""Runs `densevit protocols`; --help lists its options."""

from densevit.cli.main import tool

tool("protocols")
