"""The version of the package; imported by modules that must not import the package root."""

import platform
from importlib.metadata import version

__version__ = "0.2.0"


def versions() -> dict[str, str]:
    others = {name: version(name) for name in ("torch", "numpy")}
    return {"densevit": __version__, "python": platform.python_version(), **others}
