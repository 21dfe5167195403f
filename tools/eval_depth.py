"""Runs `densevit eval --task depth`; --help lists its options."""

from densevit.cli.main import tool

tool("eval", "--task", "depth")
