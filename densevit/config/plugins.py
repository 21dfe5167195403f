"""Plugins: a user's own Python files that register components.

A plugin runs where the user names it: in the config given to a command, by `--plugins` or `plugins=`, or in the
environment variable `DENSEVIT_PLUGINS`. What a checkpoint names is never run because the checkpoint names it.
"""

import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from densevit.errors import ConfigError

TRUSTED = "DENSEVIT_PLUGINS"
"""The environment variable with plugins that the user trusts, separated as in PATH."""


def trusted() -> list[Path]:
    """Return the existing files of `DENSEVIT_PLUGINS`, as absolute paths without links."""
    names = os.environ.get(TRUSTED, "").split(os.pathsep)
    return [path.resolve() for path in map(Path, filter(None, names)) if path.is_absolute() and path.is_file()]


def load(paths: str | Path | Sequence[str | Path] = (), folder: Path = Path()) -> list[Path]:
    """Run Python files that register components, one or several, and those that are `trusted`, each once; relative
    paths are of `folder`, or of the working folder. Raises ConfigError: no such file, no Python file, or what went
    wrong in it and where. Returns the absolute paths."""
    loaded, files = [], [paths] if isinstance(paths, str | Path) else paths
    for path in (*map(Path, files), *trusted()):
        file = next((p.resolve() for p in (folder / path, path) if p.is_file()), None)
        if file is None:
            raise ConfigError(f"plugins: no such file, got '{path}'.")
        loaded.append(file)
        name = f"densevit_plugin_{file.stem}"
        if getattr(sys.modules.get(name), "__file__", None) == str(file):
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ConfigError(f"plugins: {file} is no Python file (.py).")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except Exception as error:
            del sys.modules[name]
            raise ConfigError(f"plugins: {blamed(error, file)}: {type(error).__name__}: {error}") from error
    return list(dict.fromkeys(loaded))


def blamed(error: Exception, plugin: Path) -> str:
    """Return the plugin and its line that failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(plugin)]
    return f"{plugin}:{lines[-1]}" if lines else str(plugin)
