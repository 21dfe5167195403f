"""What was seen of which bytes, kept between runs, so that a second look at 24,000 pairs takes only their hashing.

One file per data set and options, below `$XDG_CACHE_HOME/densevit/doctor` (`~/.cache/...`); never beside the data.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from densevit import __version__
from densevit.data.labels.class_table import ClassTable
from densevit.data.validation.sample_stats import Look
from densevit.errors import StorageError
from densevit.utils.atomic_io import write_text

log = logging.getLogger(__name__)

SCHEMA = 3  # a new number when a look means something else


class StatsCache:
    """Looks by the sums of the files that they were taken at."""

    def __init__(self, path: Path | None, table: ClassTable | None = None) -> None:
        """Opens a memory; None forgets at once.

        Args:
            table: of the classes; what was seen under another one does not count.
        """
        self.path = path
        self.meaning = repr((table.names, table.places, table.palette)) if table is not None else ""
        self.known = _read(path) if path else {}
        self.new: dict[str, Any] = {}

    def key(self, sums: Mapping[str, str]) -> str:
        """Empty where there is nothing to know a sample by."""
        if not sums:
            return ""
        return hashlib.sha256(json.dumps([self.meaning, *sorted(sums.items())]).encode()).hexdigest()[:32]

    def get(self, key: str) -> Look | None:
        try:
            return Look.from_tree(self.known[key])
        except (KeyError, TypeError):  # not there, or no longer what was written
            return None

    def put(self, key: str, look: Look) -> None:
        self.new[key] = vars(look)

    def save(self) -> None:
        """Writes what is new; a memory that cannot be written costs time only, and is said."""
        if self.path is None or not self.new:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps({**self.known, **self.new}))
        except (OSError, StorageError) as error:
            log.warning("%s: what was seen is not kept (%s).", self.path, error)


def place(spec: Mapping[str, Any]) -> Path:
    """The file of a data set with these options."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    told = json.dumps([SCHEMA, __version__, dict(spec)], sort_keys=True, default=str)
    return base / "densevit/doctor" / f"{hashlib.sha256(told.encode()).hexdigest()[:24]}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}  # none yet, or damaged: then it is made anew
    return tree if isinstance(tree, dict) else {}
