"""The door to `densevit inspect`; run it with --help. (`inspect.py` would hide the module of Python from its neighbours.)"""

from densevit.cli.main import tool

tool("inspect")
