"""Runs `densevit eval-video`; --help lists its options."""

from densevit.cli.main import tool

tool("eval-video")
