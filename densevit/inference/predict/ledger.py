"""`outputs.jsonl`: the settings and the input that every output of an export was made from, by their hashes.

Only what a row names is taken for done by `--resume`. A row is written after its file, and removed before it, so a row
never outlives the file it is of. Each exporter appends to a journal of its own; journals are merged at the end.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from densevit.errors import StorageError
from densevit.utils.atomic_io import write_text

LEDGER, JOURNALS = "outputs.jsonl", ".outputs-*.jsonl"
Rows = dict[str, tuple[str, Any]]
"""File, relative to the folder -> the hash of the settings, and what tells its input."""


@dataclass(frozen=True)
class Ledger:
    """The outputs in a folder, and the settings of the export that writes there now."""

    folder: Path
    settings: str
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    def name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def read(self) -> Rows:
        """Return all rows; a line that a killed process left half written counts for nothing."""
        rows: Rows = {}
        for path in [self.folder / LEDGER, *sorted(self.folder.glob(JOURNALS))]:
            lines: list[bytes] = []
            with suppress(FileNotFoundError):  # another export may just have joined this journal to the ledger
                lines = path.read_bytes().splitlines()
            for line in lines:
                with suppress(ValueError, TypeError, KeyError):
                    row = json.loads(line)
                    rows[str(row["file"])] = (row["settings"], row["input"])
        return rows

    def write(self, rows: Rows) -> None:
        """Replace all rows, and remove the journals."""
        lines = [json.dumps({"file": f, "settings": s, "input": i}) + "\n" for f, (s, i) in sorted(rows.items())]
        journals = list(self.folder.glob(JOURNALS))
        write_text(self.folder / LEDGER, "".join(lines))
        for path in journals:
            path.unlink(missing_ok=True)

    def add(self, path: Path, source: Any) -> None:
        """Note a file that is complete, and what tells its input."""
        row = {"file": self.name(path), "settings": self.settings, "input": source}
        try:
            with open(self.folder / JOURNALS.replace("*", self.token), "a", encoding="ascii") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot be written ({error.strerror}).") from error

    def is_done(self, path: Path, source: Any, rows: Rows) -> bool:
        return path.exists() and rows.get(self.name(path)) == (self.settings, source)


def hash_of(tree: Mapping[str, Any] | list[Any]) -> str:
    """Return a hash of JSON."""
    return hashlib.sha256(json.dumps(tree).encode()).hexdigest()[:32]
