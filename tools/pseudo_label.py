"""Runs `densevit pseudo-label`; --help lists its options."""

from densevit.cli.main import tool

tool("pseudo-label")
