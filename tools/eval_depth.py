"""Runs `densevit eval-depth`; --help lists its options."""

from densevit.cli.main import tool

tool("eval-depth")
