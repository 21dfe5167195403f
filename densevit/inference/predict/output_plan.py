"""The files that an export will write, checked against what is already there before anything is written."""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from densevit.data.loading.prefetch import prefetch
from densevit.errors import ConfigError, DataError, PartialError, Preempted, StorageError
from densevit.inference.camera import Lens
from densevit.inference.point_fit import FEWEST
from densevit.inference.predict.cameras import size_of
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.point_files import PointFiles
from densevit.inference.predict.summary import Ledger, Rows, Summary, count_images, hash_of
from densevit.inference.predictor import Predictor
from densevit.inference.writers import MapWriter
from densevit.model_card import HeadSpec
from densevit.utils.atomic_io import make_folder, nearest_folder, remove_stale_temporaries, write_text
from densevit.utils.json_files import MALFORMED
from densevit.utils.state_dict import weights_fingerprint

Existing = Literal["refuse", "overwrite", "resume"]
"""What to do where outputs are already there."""

SETTINGS, FAILED = "export.json", "failed.json"


class ExportPlan(ABC):
    """Which inputs become which files: what `refuse`, `overwrite` and `resume` mean for every export.

    Attributes:
        record: name of the file that holds the settings.
        folder: of the files, of their settings and of `failed.json`.
        writers: formats of single maps.
    """

    record: ClassVar[str] = SETTINGS
    folder: Path
    writers: Mapping[str, MapWriter]

    @abstractmethod
    def __str__(self) -> str:
        """Say how much there is to write, as `6 images`."""

    @abstractmethod
    def inputs(self) -> set[Path]:
        """Return the files that are read."""

    @abstractmethod
    def units(self) -> Iterator[tuple[Any, list[Path]]]:
        """Return each image, clip or shard with the files that are there when it is complete."""

    @abstractmethod
    def digest(self, unit: Any) -> Any:
        """Return, as JSON, what changes with the input of an image, clip or shard. Raises DataError, OSError: it cannot
        be read."""

    @abstractmethod
    def settings(self, formats: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
        """Return what decides the bytes of the outputs: formats with their heads and options, and more."""

    @abstractmethod
    def check_cameras(self, format: str) -> None:
        """Raise ConfigError if the camera of an input is not known, which this format needs."""

    def unfinished(self) -> list[Path]:
        """Return the folders of what is under way."""
        return []

    def outputs(self) -> list[Path]:
        """Return the files that are there when the export is complete."""
        return [path for _, paths in self.units() for path in paths]

    def ledger(self) -> Ledger:
        """Return the ledger of the export that has begun."""
        return Ledger(self.folder, hash_of(read_record(self.folder / self.record)))

    @property
    def formats(self) -> Mapping[str, Any]:
        return self.writers

    def spec(self, spec: HeadSpec) -> HeadSpec:
        """Return what the maps of a head are when they are written."""
        return spec

    def check(self, existing: Existing = "refuse") -> None:
        """Raise before any work where writing would fail or destroy something. Raises ConfigError: an output would
        replace an input, or (`refuse`) an earlier output. Raises StorageError: the folder cannot be written to."""
        check_writable(self.folder)
        inputs, planned = self.inputs(), self.outputs()
        if replaced := [path for path in [*planned, *self.folders(planned)] if path.absolute() in inputs]:
            raise ConfigError(f"output {self.folder}: would replace {amount(replaced, 'input')}; choose another.")
        if existing == "overwrite":
            return
        there = [path for path in [*planned, *self.unfinished()] if path.exists()]
        if there and existing == "refuse":
            raise ConfigError(
                f"output {self.folder}: {amount(there, 'file')} already there. "
                "--resume makes only what is missing, --overwrite makes all anew."
            )
        if there and not (self.folder / self.record).exists():
            raise ConfigError(
                f"output {self.folder}: {amount(there, 'file')} already there, and no {self.record} that says what "
                "made it. --overwrite makes all anew."
            )

    def begin(self, settings: Mapping[str, Any], existing: Existing) -> None:
        """Make the folders, remove what is not to stay, and record the settings.

        Planned outputs stay only where this resumes and they were made with these settings from these inputs. All
        others are removed before the first new one is written, so that what is there afterwards is done. Raises
        ConfigError: resuming an export that was made with other settings; maps would not be comparable.
        """
        text = json.dumps(settings, indent=1)
        record, settings = self.folder / self.record, json.loads(text)
        if existing == "resume" and record.exists():
            check_same_settings(record, settings)
        planned = self.outputs()
        for folder in sorted({*self.folders(planned), self.folder}):
            make_folder(folder)
            remove_stale_temporaries(folder)
        ledger = Ledger(self.folder, hash_of(settings))
        rows, done = ledger.read(), set[Path]()
        if existing == "resume":
            done = self.done(ledger, rows)
            self.salvage(settings, rows, done)
        names = {ledger.name(path) for path in planned if path not in done}
        ledger.write({name: row for name, row in rows.items() if name not in names})
        for path in planned if existing != "refuse" else ():
            if path not in done:
                self.discard(path)
        for folder in self.unfinished() if existing == "overwrite" else ():
            shutil.rmtree(folder, ignore_errors=True)
        write_text(record, text)
        (self.folder / FAILED).unlink(missing_ok=True)

    def done(self, ledger: Ledger, rows: Rows) -> set[Path]:
        """Return the outputs that these settings made from these inputs; the inputs of those in question are read."""
        asked = [
            (unit, there)
            for unit, paths in self.units()
            if (there := [p for p in paths if p.exists() and rows.get(ledger.name(p), ("",))[0] == ledger.settings])
        ]

        def check(pair: tuple[Any, list[Path]]) -> list[Path]:
            with suppress(DataError, OSError):
                source = self.digest(pair[0])
                return [path for path in pair[1] if rows[ledger.name(path)][1] == source]
            return []

        return {path for paths in prefetch(check, iter(asked), threads=8, ahead=64) for path in paths}

    def salvage(self, settings: Mapping[str, Any], rows: Rows, done: set[Path]) -> None:  # noqa: B027
        """Take what can be used again out of outputs that will be removed; most exports have nothing of the kind."""

    def discard(self, path: Path) -> None:
        """Remove an earlier output."""
        path.unlink(missing_ok=True)

    def maps(self, format: str) -> Iterator[Path]:
        """Return the files of single maps in a format, in the order of the inputs."""
        return (path for path in self.outputs() if path.name.endswith(self.writers[format].suffix))

    def write_lists(self, specs: Mapping[str, HeadSpec]) -> None:
        """Write the files that join those of all inputs. `specs`: by format, what its maps are when written."""
        for format, writer in self.writers.items():
            writer.write_list(self.folder, specs[format], filter(Path.exists, self.maps(format)))

    def finish(self, summary: Summary, stopped: bool) -> Summary:
        """Write `failed.json` and what lists the outputs, and raise what ends an export that is not complete."""
        ledger = self.ledger()
        ledger.write(ledger.read())
        if summary.failed:
            noun, total = ("image", summary.images) if summary.clips is None else ("clip", summary.clips)
            reasons = [{noun: str(source), "reason": reason} for source, reason in summary.failed.items()]
            write_text(self.folder / FAILED, json.dumps({f"{noun}s": total, "failed": reasons}, indent=1))
        if stopped:
            raise Preempted(f"stopped after {summary.ready}; continue with --resume.")
        self.end()
        if summary.failed:
            broken = "images failed" if summary.clips is None else "clips failed or are incomplete"
            why = f"{len(summary.failed)} of {total} {broken}; {self.folder / FAILED} says why."
            raise PartialError(why, summary)
        return summary

    def end(self) -> None:  # noqa: B027  most need none
        """Write what lists the outputs, once all are there that will be."""

    def folders(self, planned: Sequence[Path]) -> set[Path]:
        """Return the folders of the outputs below that of the export."""
        return {path.parent for path in planned} - {self.folder}

    def recorded(self, key: str, default: str) -> str | None:
        """Return a setting of the export in the folder, `default` if it names none; None without an export."""
        record = self.folder / SETTINGS
        return str(read_record(record).get(key) or default) if record.exists() else None


@dataclass(frozen=True)
class OutputPlan(ExportPlan):
    """Which images become which files.

    Attributes:
        writers: by format.
        unsupported: by suffix, how many files were left out; for the summary.
        points: measured points, which bring depth of any kind to metres.
    """

    items: Sequence[Item]
    writers: Mapping[str, MapWriter]
    folder: Path
    unsupported: Mapping[str, int] = field(default_factory=dict)
    points: PointFiles | None = None

    def path(self, item: Item, format: str) -> Path:
        return self.folder / (item.name + self.writers[format].suffix)

    def spec(self, spec: HeadSpec) -> HeadSpec:
        """Return what the maps of a head are when they are written. Intervals are of maps without measured points."""
        if self.points is None or spec.kind not in FEWEST:
            return spec
        return replace(spec, kind="metric", unit="m", range=None, interval=None)

    def paths(self, item: Item) -> list[Path]:
        return [self.path(item, format) for format in self.writers]

    def missing(self, item: Item) -> list[str]:
        """Return the formats that are still to be written."""
        return [format for format in self.writers if not self.path(item, format).exists()]

    def __str__(self) -> str:
        return count_images(len(self.items))

    def inputs(self) -> set[Path]:
        return {item.source for item in self.items}

    def units(self) -> Iterator[tuple[Any, list[Path]]]:
        return ((item, self.paths(item)) for item in self.items)

    def digest(self, unit: Item) -> Any:
        points = None
        if self.points is not None and (size := size_of(unit)) is not None:
            measured = self.points.read(unit, size, single=len(self.items) == 1)
            points = hash_of([None if column is None else column.tolist() for column in astuple(measured)])
        return hash_of([unit.digest(), unit.intrinsics and astuple(unit.intrinsics), points])

    def settings(self, formats: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
        points = {"points": list(map(str, astuple(self.points)))} if self.points else {}
        cameras = {item.intrinsics for item in self.items if item.camera_source == "given"}
        camera = cameras.pop() if len(cameras) == 1 else None  # `digest` has the cameras of single images
        return {"intrinsics": camera and asdict(camera), **points, "formats": formats}

    def check_cameras(self, format: str) -> None:
        if unknown := [item.source for item in self.items if item.intrinsics is None]:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise ConfigError(
                f"format {format}: {unknown[0]}{more}: no focal length is known, and EXIF has none; give the camera as "
                "--focal PIXELS, --fov DEGREES or --intrinsics."
            )


def settings(predictor: Predictor, plan: ExportPlan, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return what decides the bytes of the outputs, as `export.json` records it."""
    formats = {name: {"head": sources[name], **vars(writer)} for name, writer in plan.formats.items()}
    camera = predictor.cameras.override
    return {
        "weights": weights_fingerprint(predictor.model),
        "source": predictor.card.source,
        "heads": {head: asdict(predictor.card.outputs[head]) for head in sources.values()},
        "resize": asdict(predictor.card.resize),
        "runtime": None if predictor.runtime == "torch" else predictor.runtime,  # older records have none
        "precision": predictor.precision,
        "flip": predictor.flip,
        "scales": list(predictor.scales),
        "focal": vars(camera) if isinstance(camera, Lens) else camera,
        "window": getattr(predictor.window, "__name__", None),
        "tiling": predictor.tiling and vars(predictor.tiling),
        **plan.settings(formats, predictor.batch_size),
    }


def check_writable(folder: Path) -> None:
    existing, unfit = nearest_folder(folder)
    if unfit:
        why = {"no folder": "a file, not a folder", "read-only": "read-only for this user"}[unfit]
        raise StorageError(f"output {folder}: {existing} is {why}.")


def check_same_settings(record: Path, settings: Mapping[str, Any]) -> None:
    before = read_record(record)
    differing = [key for key in {**before, **settings} if before.get(key) != settings.get(key)]
    if differing:
        changes = "; ".join(f"{key} was {before.get(key)!r}, is {settings.get(key)!r}" for key in differing)
        raise ConfigError(
            f"{record}: cannot resume with other settings ({changes}). Use --overwrite or another folder."
        )


def read_record(record: Path) -> dict[str, Any]:
    """Raise ConfigError: it is damaged."""
    try:
        return {**json.loads(record.read_text())}
    except MALFORMED:
        raise ConfigError(f"{record}: damaged, so what it resumes is unknown; use --overwrite.") from None


def amount(paths: Sequence[Path], noun: str) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{len(paths)} {noun}{'s' if len(paths) > 1 else ''} ({paths[0]}{more})"
