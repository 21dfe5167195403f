"""The checkpoints of one run: saved whole, pruned without losing the best, resumed from the newest that verifies."""

import math
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from densevit import files
from densevit.errors import CheckpointError, StorageError
from densevit.structures import ModelCard
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest


class Checkpoints:
    """`folder/step-N`, with the links `last` and `best` beside them.

    Args:
        best: the score that decides, and its direction.
        keep_last: how many of the newest stay, besides the best.
    """

    def __init__(self, folder: Path, best: tuple[str, Literal["min", "max"]], keep_last: int) -> None:
        self.folder = folder
        self.score, self.direction = best
        self.keep_last = keep_last

    def save(
        self, weights: Mapping[str, Tensor], card: ModelCard, config: str, state: Mapping[str, Any], manifest: Manifest
    ) -> Path:
        """Writes a checkpoint, moves the links, then prunes; in this order a crash never costs a good one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{manifest.step:08d}"
        if path.exists():  # a resumed run has come to where an earlier one saved
            shutil.rmtree(path)
        checkpoint.write(path, weights, replace(card, scores=manifest.scores), config, state, manifest)
        self._link("last", path)
        if self._is_best(manifest):
            self._link("best", path)
        self._prune()
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

    def _prune(self) -> None:
        found = checkpoint.steps(self.folder)
        best = self.best()
        for path in found[: max(0, len(found) - self.keep_last)]:
            if best is None or path.resolve() != best:
                try:
                    shutil.rmtree(path)
                except OSError as error:
                    print(f"warning: {path}: old checkpoint could not be removed ({error.strerror}).", file=sys.stderr)


def newest_good(folder: Path) -> tuple[Path, Manifest] | None:
    """The newest checkpoint that verifies; each one passed over is named in a warning."""
    for path in reversed(checkpoint.steps(folder)):
        try:
            return path, checkpoint.verify(path)
        except CheckpointError as error:
            print(f"warning: {error} Looking for an older checkpoint.", file=sys.stderr)
    return None
