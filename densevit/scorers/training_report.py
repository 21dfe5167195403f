"""`report.html` of a training run: its curves and scores, and predictions of its best checkpoint."""

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from densevit.builder.checkpoint import restore
from densevit.builder.plan import Plan
from densevit.config import parser
from densevit.config.parser import OBJECT
from densevit.data.datasets.base import Dataset, Part, evenly_spaced
from densevit.engine.checkpointer import CheckpointFolder
from densevit.engine.logger import read_csv
from densevit.errors import DataError
from densevit.evaluation.depth.published_protocols import find_protocol
from densevit.inference.predictor import Predictor
from densevit.reporting.figures import Figure
from densevit.reporting.html_page import duration, line_chart, write_page
from densevit.scorers.base import Evaluation
from densevit.scorers.classification import evaluate_classification
from densevit.scorers.depth import evaluate_depth
from densevit.scorers.normals import evaluate_normals
from densevit.scorers.segmentation import evaluate_segmentation
from densevit.scorers.segments import evaluate_segments
from densevit.structures import Row
from densevit.weights.checkpoint import step_of

log = logging.getLogger(__name__)

PAGE = "report.html"
MAX_IMAGES = 16  # validation images that are predicted for the page, whatever their number
SHOWN = ("worst", "worst 2", "worst 3", "worst 4", "median")
NO_CURVES = ("step", "seconds", "spikes", "skipped")  # columns of the logs that are counts


def write_training_report(
    plan: Plan, checkpoints: CheckpointFolder, opening: str, device: torch.device | None = None
) -> Path | None:
    """Write the page from the logs of a run. Never raises: what goes wrong is a warning. Returns the page, or None
    where nothing was logged yet or it could not be written.

    Args:
        plan: with its data sets open.
        opening: the first lines of the run, each a key, two spaces or more, and a value.
        device: predicts validation images by the best checkpoint (the last where none is best); None leaves them out.
    """
    try:
        return _write(plan, checkpoints, opening, device)
    except Exception as error:
        log.warning("%s could not be written: %s", plan.run.output / PAGE, error)
        return None


def _write(plan: Plan, checkpoints: CheckpointFolder, opening: str, device: torch.device | None) -> Path | None:
    run = plan.run
    train, val = read_csv(run.output / "train.csv"), read_csv(run.output / "val.csv")
    if not train:
        return None
    best = checkpoints.best()
    scores = _scores(val, None if best is None else step_of(best))
    last = train[-1]
    score = checkpoints.score
    cards = [(score, f"{row[score]:.4f}", column) for column, row in scores.items() if score in row][:1]
    cards.append(("loss", f"{last['loss']:.4f}", f"last, step {last['step']:,.0f}"))
    cards.append(("training time", duration(last["seconds"]), f"{last['step']:,.0f} of {run.steps:,} steps"))
    drawn = _curves(val) if len(val) > 1 else []  # one point is in the table
    return write_page(
        run.output / PAGE,
        "training_report.html",
        title=f"Training of {run.output.resolve().name}",
        cards=cards,
        opening=[(key, value.strip()) for key, _, value in (line.partition("  ") for line in opening.splitlines())],
        columns=list(scores),
        scores=[(name, [row.get(name) for row in scores.values()]) for name in _curves(val)],
        training=_charts(train, _curves(train)),
        validation=_charts(val, [name for name in drawn if name == score]),
        others=_charts(val, [name for name in drawn if name != score]),
        samples=_samples(plan, device) if device is not None and plan.val is not None else {},
        images=min(MAX_IMAGES, len(plan.val)) if plan.val is not None else 0,
        skipped=int(last.get("skipped", 0)),
        config=parser.dump(run),
    )


def _scores(val: Sequence[Row], best: int | None) -> dict[str, Row]:
    """Return the rows of the best checkpoint and of the last validation, each under its heading."""
    last = val[-1:]
    if last and last[0]["step"] == best:
        return {f"best and last, step {best:,}": last[0]}
    rows = {f"best, step {best:,}": row for row in val if row["step"] == best}
    return rows | {f"last, step {row['step']:,.0f}": row for row in last}


def _curves(rows: Sequence[Row]) -> list[str]:
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in NO_CURVES]


def _charts(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    return [line_chart(name, [(row["step"], row[name]) for row in rows if name in row]) for name in names]


def _samples(plan: Plan, device: torch.device) -> Mapping[str, tuple[str, Sequence[Figure]]]:
    """Map each head to the command that scores it; the worst of some validation images, and the median one."""
    assert plan.val is not None
    data = Part(plan.val, evenly_spaced(len(plan.val), MAX_IMAGES))
    try:
        encoder = plan.model.encoder.build() if plan.model.encoder.name == OBJECT else None
        restored = restore(plan.run.output, None, encoder)
        predictor = Predictor(*restored, device=device, precision=plan.run.precision)
        return {head: _figures(plan, predictor, data, head) for head in plan.tasks}
    except Exception as error:
        log.warning("%s has no images: %s", plan.run.output / PAGE, error)
        return {}


EVALUATORS: Mapping[str, Callable[..., Evaluation]] = {
    "classification": evaluate_classification,
    "instances": partial(evaluate_segments, task="instances"),
    "normals": evaluate_normals,
    "panoptic": partial(evaluate_segments, task="panoptic"),
    "segmentation": partial(evaluate_segmentation, boundary=False),
}
"""By the task of an output kind; depth is evaluated by a protocol."""


def _figures(plan: Plan, predictor: Predictor, data: Dataset, head: str) -> tuple[str, Sequence[Figure]]:
    kind = predictor.card.outputs[head].output_kind
    command = shlex.join(["eval", str(plan.run.output), *(["--task", kind.task] if kind.task else [])])
    try:
        if kind.is_depth:
            protocol = find_protocol(plan.tasks[head].protocol, data.depth_range, kind.name)
            result = evaluate_depth(predictor, data, [protocol], head=head, flip=False)  # as in validation
        elif kind.task in EVALUATORS:
            result = EVALUATORS[kind.task](predictor, data, head=head)
        else:
            return command, []
    except DataError as error:  # no ground truth of this head
        log.warning("%s has no images of head %s: %s", plan.run.output / PAGE, head, error)
        return command, []
    return command, result.figures(labels=SHOWN)
