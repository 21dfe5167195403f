"""The door to `densevit eval-ordinal`; run it with --help."""

from densevit.cli.main import tool

tool("eval-ordinal")
