"""What an export will write, checked against what is already there before anything is written."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from densevit.errors import ConfigError, StorageError
from densevit.inference.predict.inputs import Item
from densevit.inference.writers import MapWriter
from densevit.utils.atomic_io import make_folder, place_for, remove_stale_temporaries, write_text

Existing = Literal["refuse", "overwrite", "resume"]
"""What to do where outputs are already there."""

RECORD, FAILED = "export.json", "failed.json"


@dataclass(frozen=True)
class Plan:
    """Which images become which files."""

    items: Sequence[Item]
    outputs: Mapping[str, MapWriter]  # by format
    folder: Path

    def path(self, item: Item, format: str) -> Path:
        return self.folder / (item.name + self.outputs[format].suffix)

    def paths(self, item: Item) -> list[Path]:
        return [self.path(item, format) for format in self.outputs]

    def missing(self, item: Item) -> list[str]:
        """The formats that are still to be written."""
        return [format for format in self.outputs if not self.path(item, format).exists()]

    def check(self, existing: Existing = "refuse") -> None:
        """Raises before any work where writing would fail or destroy something.

        Raises:
            ConfigError: an output would replace an input image, or (`refuse`) an earlier output.
            StorageError: the folder cannot be written to.
        """
        check_writable(self.folder)
        planned = [path for item in self.items for path in self.paths(item)]
        sources = {item.source for item in self.items}
        if replaced := [path for path in planned if path in sources]:
            raise ConfigError(f"output {self.folder}: would replace {amount(replaced, 'input image')}; choose another.")
        if existing == "refuse" and (there := [path for path in planned if path.exists()]):
            raise ConfigError(
                f"output {self.folder}: {amount(there, 'file')} already there. "
                "--resume makes only what is missing, --overwrite makes all anew."
            )

    def begin(self, settings: Mapping[str, Any], existing: Existing) -> None:
        """Makes the folders, clears what killed runs left, and notes the settings.

        Raises:
            ConfigError: resuming an export that was made with other settings; maps would not be comparable.
        """
        text = json.dumps(settings, indent=1)
        record = self.folder / RECORD
        if existing == "resume" and record.exists():
            check_same(record, json.loads(text))
        for folder in sorted({path.parent for item in self.items for path in self.paths(item)} | {self.folder}):
            make_folder(folder)
            remove_stale_temporaries(folder)
        write_text(record, text)
        (self.folder / FAILED).unlink(missing_ok=True)


TOLD = {"no folder": "a file, not a folder", "read-only": "read-only for this user"}


def check_writable(folder: Path) -> None:
    place, unfit = place_for(folder)
    if unfit:
        raise StorageError(f"output {folder}: {place} is {TOLD[unfit]}.")


def check_same(record: Path, settings: Mapping[str, Any]) -> None:
    try:
        before = json.loads(record.read_text())
        if not isinstance(before, dict):
            raise ValueError("no object")
    except ValueError:
        raise ConfigError(f"{record}: damaged, so what it resumes is unknown; use --overwrite.") from None
    differing = [key for key in {**before, **settings} if before.get(key) != settings.get(key)]
    if differing:
        told = "; ".join(f"{key} was {before.get(key)!r}, is {settings.get(key)!r}" for key in differing)
        raise ConfigError(f"{record}: cannot resume with other settings ({told}). Use --overwrite or another folder.")


def amount(paths: Sequence[Path], noun: str) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{len(paths)} {noun}{'s' if len(paths) > 1 else ''} ({paths[0]}{more})"


def fingerprint(model: nn.Module) -> str:
    """A hash of the weights: the same path may hold other weights tomorrow."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]
