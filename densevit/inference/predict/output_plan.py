"""The files that an export will write, checked against what is already there before anything is written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from densevit.errors import ConfigError, StorageError
from densevit.inference.predict.anchors import AnchorFiles
from densevit.inference.predict.inputs import Item
from densevit.inference.writers import MapWriter
from densevit.model_card import HeadSpec
from densevit.ops.anchors import FEWEST
from densevit.utils.atomic_io import make_folder, place_for, remove_stale_temporaries, write_text

Existing = Literal["refuse", "overwrite", "resume"]
"""What to do where outputs are already there."""

SETTINGS, FAILED = "export.json", "failed.json"


@dataclass(frozen=True)
class OutputPlan:
    """Which images become which files.

    Attributes:
        writers: by format.
        unsupported: by suffix, how many image files were left out; for the summary.
        anchors: measured points, which bring depth of any kind to metres.
    """

    items: Sequence[Item]
    writers: Mapping[str, MapWriter]
    folder: Path
    unsupported: Mapping[str, int] = field(default_factory=dict)
    anchors: AnchorFiles | None = None

    def path(self, item: Item, format: str) -> Path:
        return self.folder / (item.name + self.writers[format].suffix)

    def spec(self, spec: HeadSpec) -> HeadSpec:
        """What the maps of a head are when they are written."""
        if self.anchors is None or spec.kind not in FEWEST:
            return spec
        return replace(spec, kind="metric", unit="m", range=None)

    def paths(self, item: Item) -> list[Path]:
        return [self.path(item, format) for format in self.writers]

    def missing(self, item: Item) -> list[str]:
        """The formats that are still to be written."""
        return [format for format in self.writers if not self.path(item, format).exists()]

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

    def check_cameras(self, format: str) -> None:
        """
        Raises:
            ConfigError: the camera of an image is not known.
        """
        if unknown := [item.source for item in self.items if item.intrinsics is None]:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise ConfigError(
                f"format {format}: {unknown[0]}{more}: no focal length is known, and EXIF has none; give the camera as "
                "--focal PIXELS, --fov DEGREES or --intrinsics."
            )

    def prepare_folder(self, settings: Mapping[str, Any], existing: Existing) -> None:
        """Makes the folders, removes the temporary files of killed runs, and records the settings.

        Raises:
            ConfigError: resuming an export that was made with other settings; maps would not be comparable.
        """
        text = json.dumps(settings, indent=1)
        record = self.folder / SETTINGS
        if existing == "resume" and record.exists():
            check_same_settings(record, json.loads(text))
        for folder in sorted({path.parent for item in self.items for path in self.paths(item)} | {self.folder}):
            make_folder(folder)
            remove_stale_temporaries(folder)
        write_text(record, text)
        (self.folder / FAILED).unlink(missing_ok=True)

    def recorded(self, key: str, default: str) -> str | None:
        """A setting of the export that stands in the folder, `default` where it names none; None without an export."""
        record = self.folder / SETTINGS
        return str(read_record(record).get(key) or default) if record.exists() else None


def check_writable(folder: Path) -> None:
    place, unfit = place_for(folder)
    if unfit:
        why = {"no folder": "a file, not a folder", "read-only": "read-only for this user"}[unfit]
        raise StorageError(f"output {folder}: {place} is {why}.")


def check_same_settings(record: Path, settings: Mapping[str, Any]) -> None:
    before = read_record(record)
    differing = [key for key in {**before, **settings} if before.get(key) != settings.get(key)]
    if differing:
        changes = "; ".join(f"{key} was {before.get(key)!r}, is {settings.get(key)!r}" for key in differing)
        raise ConfigError(
            f"{record}: cannot resume with other settings ({changes}). Use --overwrite or another folder."
        )


def read_record(record: Path) -> dict[str, Any]:
    """
    Raises:
        ConfigError: it is damaged.
    """
    try:
        before = json.loads(record.read_text())
        if not isinstance(before, dict):
            raise ValueError("no object")
    except ValueError:
        raise ConfigError(f"{record}: damaged, so what it resumes is unknown; use --overwrite.") from None
    return before


def amount(paths: Sequence[Path], noun: str) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{len(paths)} {noun}{'s' if len(paths) > 1 else ''} ({paths[0]}{more})"
