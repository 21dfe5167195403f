"""The checkpoints of one run: saved whole, pruned without losing the best, resumed from the newest that verifies."""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import rmtree as remove
from typing import Any, Literal

from torch import Tensor

from densevit import files
from densevit.card import ModelCard
from densevit.errors import CheckpointError, StorageError
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest


class Checkpoints:
    """`folder/step-N`, with the links `last` and `best` beside them.

    Args:
        best: the score that decides, and its direction.
        keep_last: how many of the newest stay, besides the best; 0 keeps all.
    """

    def __init__(self, folder: Path, best: tuple[str, Literal["min", "max"]], keep_last: int) -> None:
        self.folder = folder
        self.score, self.direction = best
        self.keep_last = keep_last

    def save(
        self, weights: Mapping[str, Tensor], card: ModelCard, config: str, state: Mapping[str, Any], manifest: Manifest
    ) -> Path:
        """Writes a checkpoint, reads it back, moves the links, then prunes: a crash or a bad disk costs no good one.

        Raises:
            CheckpointError: a weight is not finite, or what came back from the disk is not what was written.
            StorageError: the disk is full or read-only.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{manifest.step:08d}"
        checkpoint.write(path, weights, replace(card, scores=manifest.scores), config, state, manifest)
        checkpoint.verify(path)
        self._link("last", path)
        if self._is_best(manifest):
            self._link("best", path)
        self._prune(path)
        return path

    def best(self) -> Path | None:
        link = self.folder / "best"
        return link.resolve() if link.is_dir() else None

    def _is_best(self, manifest: Manifest) -> bool:
        new = manifest.scores.get(self.score, math.nan)
        if math.isnan(new):
            return False
        best = self.best()
        if best is None:
            return True
        try:
            old = checkpoint.verify(best).scores.get(self.score, math.nan)
        except CheckpointError:
            return True
        return math.isnan(old) or (new < old if self.direction == "min" else new > old)

    def _link(self, name: str, target: Path) -> None:
        temporary = self.folder / f".{name}.{os.getpid()}{files.SUFFIX}"
        try:
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(target.name, target_is_directory=True)
            temporary.replace(self.folder / name)
        except OSError as error:
            raise StorageError(
                f"{self.folder / name}: cannot be linked to {target.name} ({error.strerror})."
            ) from error

    def _prune(self, newest: Path) -> None:
        found = checkpoint.steps(self.folder)
        spared = {newest.resolve(), self.best()}
        for path in found[: max(0, len(found) - self.keep_last)] if self.keep_last else []:
            if path.resolve() not in spared:
                try:
                    # Renamed first: a folder that is half gone must not pass for a checkpoint.
                    gone = path.rename(path.with_name(f".{path.name}.{os.getpid()}{files.SUFFIX}"))
                    remove(gone)
                except OSError as error:
                    print(f"warning: {path}: old checkpoint could not be removed ({error.strerror}).", file=sys.stderr)


def newest_good(folder: Path) -> tuple[Path, Manifest] | None:
    """The newest checkpoint that verifies, or None where there is none at all.

    Each one passed over is set aside as `damaged-step-N`, and a warning names both.

    Raises:
        CheckpointError: there are some, and none of them verifies.
    """
    damaged: list[tuple[Path, CheckpointError]] = []
    for path in reversed(checkpoint.steps(folder)):
        try:
            manifest = checkpoint.verify(path)
        except CheckpointError as error:
            damaged.append((path, error))
            continue
        for other, fault in damaged:  # or the run would meet them again, and could not tell them from its own
            aside = other.with_name(f"damaged-{other.name}")
            print(f"warning: {fault} Set aside as {aside.name}; going on from {path.name}.", file=sys.stderr)
            files.remove(aside)
            other.rename(aside)
        return path, manifest
    if damaged:
        raise CheckpointError(
            f"{folder}: none of its {len(damaged)} checkpoints is whole; move it away to start anew. "
            f"The newest: {damaged[0][1]}"
        )
    return None
