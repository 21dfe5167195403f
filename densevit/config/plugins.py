"""Plugins: a user's own Python files that register components."""

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from densevit.errors import ConfigError


def load(paths: Sequence[Path], folder: Path = Path()) -> list[Path]:
    """Runs Python files that register components, each once; relative paths are of `folder`, or of the working folder.

    Returns:
        the absolute paths.

    Raises:
        ConfigError: no such file, no Python file, or what went wrong in it and where.
    """
    loaded = []
    for path in paths:
        found = next((p.resolve() for p in (folder / path, path) if p.is_file()), None)
        if found is None:
            raise ConfigError(f"plugins: no such file, got '{path}'.")
        loaded.append(found)
        name = f"densevit_plugin_{found.stem}"
        if getattr(sys.modules.get(name), "__file__", None) == str(found):
            continue
        spec = importlib.util.spec_from_file_location(name, found)
        if spec is None or spec.loader is None:
            raise ConfigError(f"plugins: {found} is no Python file (.py).")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except Exception as error:
            del sys.modules[name]
            raise ConfigError(f"plugins: {blamed(error, found)}: {type(error).__name__}: {error}") from error
    return loaded


def blamed(error: Exception, plugin: Path) -> str:
    """The plugin and its line that failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(plugin)]
    return f"{plugin}:{lines[-1]}" if lines else str(plugin)
