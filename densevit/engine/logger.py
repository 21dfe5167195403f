"""The logs of a run: CSV files, TensorBoard, other trackers (`trackers: [wandb]`), and a progress bar or plain lines.

The package of a tracker is imported when a run begins, and needs no network unless options name a server.
"""

import csv
import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import UInt8
from torch.utils.tensorboard import SummaryWriter

from densevit.config import parser
from densevit.config.schema import TrainConfig
from densevit.config.yaml_document import flat
from densevit.engine.monitors import format_speed
from densevit.engine.train_state import TrainState
from densevit.errors import ConfigError, first_line
from densevit.registry import ComponentConfig, Registry
from densevit.utils import atomic_io
from densevit.utils.output import shows_bars, tqdm
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
            folder: folder of the run.
            name: name of the run.
            config: the config with every default, by dotted key.
        """

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log values by name, as `train/loss`."""

    @abstractmethod
    def finish(self) -> None:
        """End the run."""


TRACKERS = Registry[Tracker]("tracker")


@TRACKERS.register("mlflow")
class MlflowTracker(Tracker):
    """MLflow."""

    package = "mlflow"

    def __init__(self, *, experiment: str = PROJECT, uri: str | None = None) -> None:
        """
        Args:
            experiment: name of the experiment.
            uri: tracking server; default: $MLFLOW_TRACKING_URI, else the database `mlflow.db` in the run's
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
            project: see `trackio.init`.
            space: Hugging Face space to log to instead of the run's folder.
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
            project, entity, tags: as in `wandb.init`.
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
        """Raise ConfigError: no such tracker or option, or its package is not installed."""
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
                reason = first_line(error)
                log.warning("tracker %s could not %s (%s); the run continues without it.", name, what, reason)


def start_trackers(run: TrainConfig, folder: Path | None) -> Trackers | None:
    """Return the trackers of a run, started; None where there are none, and on the processes that write nothing."""
    if folder is None or not run.trackers:
        return None
    trackers = Trackers(run.trackers)
    trackers.start(folder, flat(parser.to_dict(run)))
    return trackers


WIDTH = 100  # of a terminal
LINE_EVERY = 10.0  # seconds between two lines at least


class MetricLogger:
    """Writes `train.csv`, `val.csv` and `tensorboard/` in a folder, and to trackers; with `folder=None` (other ranks)
    nothing.

    On resuming at step n, rows that an interrupted run logged after n are dropped, so that no step comes twice.

    Args:
        start: the step that the run resumes from.
        steps: its last step.
        trackers: that were started.
    """

    def __init__(self, folder: Path | None, start: int = 0, steps: int = 0, trackers: Trackers | None = None) -> None:
        self.folder, self.start, self.steps = folder, start, steps
        self.board: SummaryWriter | None = None
        self.trackers = trackers
        self.shows_bar = folder is not None and sys.stderr is not None and shows_bars()
        self.bar = tqdm(total=steps, initial=start, desc="train", unit="step", disable=not self.shows_bar)
        self._began, self._last_line = time.monotonic(), -LINE_EVERY
        if folder is not None:
            for name in ("train", "val"):
                _cut(folder / f"{name}.csv", start)
            purge = start + 1 if start else None
            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def advance(self) -> None:
        """Count a step."""
        self.bar.update()

    def train(self, step: int, values: Mapping[str, float | None], scores: Mapping[str, float]) -> None:
        """Log the values of a step, and shows its loss; on a terminal beside the first score of the last validation.

        A value is None where the step had no image that it is of; its cell stays empty.
        """
        self.scalars("train", step, values)
        shown = {"loss": values["loss"], **{f"val {name}": score for name, score in list(scores.items())[:1]}}
        texts = {name: f"{value:.4f}" for name, value in shown.items()}
        if (rate := values.get("images_per_s")) is not None:
            texts["images/s"] = f"{rate:.3g}"
        self.bar.set_postfix(texts)
        passed = time.monotonic() - self._began
        if not self.shows_bar and (passed - self._last_line >= LINE_EVERY or step == self.steps):
            self._last_line = passed
            pace = passed / max(1, step - self.start)
            left = timedelta(seconds=round(pace * (self.steps - step)))
            loss, lr = f"loss {values['loss']:.4f}", f"lr {values['lr']:.2e}"
            self.print(
                f"step {step}/{self.steps}  {loss}  {lr}  {pace:.3g} s/step  {format_speed(values)}  {left} left"
            )

    def scalars(self, name: str, step: int, values: Mapping[str, float | None]) -> None:
        """Add a row to `name.csv` and points to the curves `name/...`."""
        if self.folder is None or self.board is None:
            return
        _append(self.folder / f"{name}.csv", {"step": step, **values})
        for key, value in values.items():
            if value is not None:
                self.board.add_scalar(f"{name}/{key}", value, step)
        self.board.flush()
        if self.trackers is not None:
            logged = {f"{name}/{key}": value for key, value in values.items() if value is not None}
            self.trackers.log(step, logged)

    def image(self, name: str, step: int, image: UInt8[np.ndarray, "h w 3"]) -> None:
        if self.board is not None:
            self.board.add_image(name, image, step, dataformats="HWC")

    def print(self, text: str) -> None:
        """Write a line to stdout, above the progress bar."""
        if self.folder is not None:
            tqdm.write(text)
            sys.stdout.flush()

    def close(self) -> None:
        self.bar.close()
        if self.board is not None:
            self.board.close()
        if self.trackers is not None:
            self.trackers.finish()


def format_scores(scores: Mapping[str, float]) -> str:
    """Return scores as a line; as tables, with a row for each head and source, where it is wider than a terminal."""
    line = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
    if len(line) <= WIDTH:
        return line
    rows: dict[str, dict[str, float]] = {}
    for name, value in scores.items():
        prefix, _, metric = name.rpartition("/")
        rows.setdefault(prefix, {})[metric] = value
    widest = max(map(len, rows))
    tables: dict[tuple[str, ...], list[str]] = {}
    for prefix, row in rows.items():
        widths = {metric: max(8, len(metric)) + 2 for metric in row}
        heading = " " * (widest + 2) + "".join(f"{metric:>{width}}" for metric, width in widths.items())
        lines = tables.setdefault(tuple(row), [heading])
        lines.append(f"  {prefix:{widest}}" + "".join(f"{row[metric]:>{width}.4f}" for metric, width in widths.items()))
    return "\n".join(["", *(line for lines in tables.values() for line in lines)])


def describe_run(run: TrainConfig, state: TrainState, precision: str, train_images: int, val_images: int) -> str:
    """Return what is about to run, and where to look at it."""
    world, parameters = state.world, list(state.model.parameters())
    total, trainable = sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad)
    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else str(world.device)
    processes = f", {world.size} processes ({run.parallel})" if world.size > 1 else ""
    micro = f", {run.grad_accum_steps} micro-batches a step" if run.grad_accum_steps > 1 else ""
    resumed = f"; going on from step {state.step:,}" if state.step else ""
    return "\n".join(
        [
            f"device      {device}, {precision}{processes}",
            f"parameters  {total / 1e6:.1f} M, of which {trainable / 1e6:.1f} M are trained",
            f"images      {train_images:,} for training, {val_images:,} for validation",
            f"steps       {run.steps:,} of {run.batch_size} images{micro}{resumed}",
            f"output      {run.output}  (curves: tensorboard --logdir {run.output})",
        ]
    )


def read_csv(path: Path) -> list[dict[str, float]]:
    """Return the rows of a log, as numbers; also while it is being written."""
    return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(_lines(path))]


def _lines(path: Path) -> list[str]:
    """Return the complete lines of a log that may still be growing."""
    return path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines() if path.is_file() else []


def _append(path: Path, row: Mapping[str, float | None]) -> None:
    """Add a row, and to the file the columns that it lacks, as after a resume on another device."""
    head: list[str] = []
    if path.exists():
        with open(path, newline="") as file:
            head = next(csv.reader(file), [])
    columns = list(dict.fromkeys([*head, *row]))
    if columns != head:
        _, *rows = list(csv.reader(_lines(path))) or [[]]
        _rewrite(path, [columns, *([*old, *[""] * (len(columns) - len(old))] for old in rows)])
    with open(path, "a", newline="") as file:
        values = (row.get(name) for name in columns)
        csv.writer(file).writerow("" if value is None else f"{value:.8g}" for value in values)


def _cut(path: Path, step: int) -> None:
    """Keep the rows up to `step`."""
    if path.exists():
        head, *rows = list(csv.reader(_lines(path))) or [[]]
        if remaining := [row for row in rows if row and float(row[0]) <= step]:
            _rewrite(path, [head, *remaining])
        else:
            path.unlink()


def _rewrite(path: Path, rows: Iterable[Sequence[str]]) -> None:
    text = StringIO(newline="")
    csv.writer(text).writerows(rows)
    atomic_io.write_text(path, text.getvalue())
