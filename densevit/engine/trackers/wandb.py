"""Weights & Biases, offline below the run's folder or online."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from densevit.engine.trackers.base import PROJECT, TRACKERS, Tracker


@TRACKERS.register("wandb")
class WandbTracker(Tracker):
    """Weights & Biases."""

    package = "wandb"

    def __init__(
        self,
        *,
        project: str = PROJECT,
        entity: str | None = None,
        mode: Literal["online", "offline"] = "offline",
        tags: tuple[str, ...] = (),
    ) -> None:
        """
        Args:
            project, entity, tags: as of `wandb.init`.
            mode: offline writes below the run's folder, for `wandb sync` later; online needs `wandb login`.
        """
        self.options: dict[str, Any] = {"project": project, "entity": entity, "mode": mode, "tags": list(tags)}

    def start(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        wandb = import_module("wandb")
        settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
        self.run = wandb.init(dir=str(folder), name=name, config=dict(config), settings=settings, **self.options)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def finish(self) -> None:
        self.run.finish()
