"""Runs `densevit eval-class`; --help lists its options."""

from densevit.cli.main import tool

tool("eval-class")
