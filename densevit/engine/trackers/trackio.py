"""Trackio: a local database below the run's folder, or a Space of Hugging Face."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from densevit.engine.trackers.base import PROJECT, TRACKERS, Tracker


@TRACKERS.register("trackio")
class TrackioTracker(Tracker):
    """Trackio, of Hugging Face: a local database; `trackio show --project densevit` opens it."""

    package = "trackio"

    def __init__(self, *, project: str = PROJECT, space: str | None = None) -> None:
        """
        Args:
            project: as of `trackio.init`.
            space: of Hugging Face, to log to instead of the run's folder.
        """
        self.project, self.space = project, space

    def start(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(folder / "trackio"))  # read when the package is imported
        self.trackio = import_module("trackio")
        self.trackio.init(project=self.project, name=name, config=dict(config), space_id=self.space)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.trackio.log(dict(values), step=step)

    def finish(self) -> None:
        self.trackio.finish()
