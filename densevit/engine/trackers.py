"""Experiment trackers beside CSV and TensorBoard: `trackers: [wandb]`.

Each package is imported when a run begins, and needs no network unless options name a server.
"""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from densevit.config import parser
from densevit.config.schema import Run
from densevit.config.yaml_document import flat
from densevit.errors import ConfigError
from densevit.registry import ComponentConfig, Registry
from densevit.utils.packages import require_packages

PROJECT = "densevit"


class Tracker(ABC):
    """Takes the config of a run and its scalars, in the order of the steps.

    A subclass imports its package in `start`; the keyword-only parameters of its `__init__` are its options.
    """

    package: str

    @abstractmethod
    def start(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        """
        Args:
            folder: of the run.
            name: of the run.
            config: with every default, by dotted key.
        """

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values by name, as `train/loss`."""

    @abstractmethod
    def finish(self) -> None:
        """Ends the run."""


TRACKERS = Registry[Tracker]("tracker")


@TRACKERS.register("mlflow")
class MlflowTracker(Tracker):
    """MLflow."""

    package = "mlflow"

    def __init__(self, *, experiment: str = PROJECT, uri: str | None = None) -> None:
        """
        Args:
            experiment: its name.
            uri: of the tracking server; default: $MLFLOW_TRACKING_URI, else the database `mlflow.db` in the run's
                folder (`mlflow ui --backend-store-uri sqlite:///runs/mine/mlflow.db`).
        """
        self.experiment, self.uri = experiment, uri

    def start(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        tracking: Any = import_module("mlflow.tracking")
        local = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self.client = tracking.MlflowClient(self.uri or os.environ.get("MLFLOW_TRACKING_URI") or local)
        experiment = self.client.get_experiment_by_name(self.experiment)
        artifacts = (folder / "mlflow").resolve().as_uri()
        number = experiment.experiment_id if experiment else self.client.create_experiment(self.experiment, artifacts)
        self.run = self.client.create_run(number, run_name=name).info.run_id
        entities: Any = import_module("mlflow.entities")
        params = [entities.Param(key, str(value)[:500]) for key, value in config.items()]
        for start in range(0, len(params), 100):  # as many as a request holds
            self.client.log_batch(self.run, params=params[start : start + 100])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=step)

    def finish(self) -> None:
        self.client.set_terminated(self.run)


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


log = logging.getLogger(__name__)


class Trackers:
    """All trackers of a run. One that fails is left out from then on, with a warning."""

    def __init__(self, choices: Iterable[str | ComponentConfig]) -> None:
        """Raises ConfigError: no such tracker or option, or its package is not installed."""
        named = [{"type": choice} if isinstance(choice, str) else choice for choice in choices]
        specs = [TRACKERS.check(choice, f"trackers.{i}") for i, choice in enumerate(named)]
        self.active = {spec.name: spec.build() for spec in specs}
        for i, (name, tracker) in enumerate(self.active.items()):
            try:
                require_packages(tracker.package, extra=name)
            except ConfigError as error:
                raise ConfigError(f"trackers.{i}: {error}") from None

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        plain = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in config.items()}
        self._each(lambda tracker: tracker.start(folder, folder.resolve().name, plain), "start")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._each(lambda tracker: tracker.log(step, values), "take values")

    def finish(self) -> None:
        self._each(lambda tracker: tracker.finish(), "finish")
        self.active = {}

    def _each(self, action: Callable[[Tracker], object], what: str) -> None:
        for name, tracker in list(self.active.items()):
            try:
                action(tracker)
            except Exception as error:  # a network, a quota, a full disk: the training goes on
                del self.active[name]
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                log.warning("tracker %s could not %s (%s); the run continues without it.", name, what, reason)


def start_trackers(run: Run, folder: Path | None) -> Trackers | None:
    """The trackers of a run, started; None where there are none, and on the processes that write nothing."""
    if folder is None or not run.trackers:
        return None
    trackers = Trackers(run.trackers)
    trackers.start(folder, flat(parser.to_dict(run)))
    return trackers
