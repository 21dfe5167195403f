"""Runs `densevit calibrate`; --help lists its options."""

from densevit.cli.main import tool

tool("calibrate")
