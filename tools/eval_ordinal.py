"""Runs `densevit eval-ordinal`; --help lists its options."""

from densevit.cli.main import tool

tool("eval-ordinal")
