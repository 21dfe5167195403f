"""Runs `densevit eval-seg`; --help lists its options."""

from densevit.cli.main import tool

tool("eval-seg")
