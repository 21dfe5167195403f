"""Runs `densevit export-web`; --help lists its options."""

from densevit.cli.main import tool

tool("export-web")
