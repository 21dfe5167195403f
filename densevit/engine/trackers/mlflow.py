"""MLflow: a database below the run's folder, or a tracking server."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from densevit.engine.trackers.base import PROJECT, TRACKERS, Tracker


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
        found = self.client.get_experiment_by_name(self.experiment)
        artifacts = (folder / "mlflow").resolve().as_uri()
        number = found.experiment_id if found else self.client.create_experiment(self.experiment, artifacts)
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
