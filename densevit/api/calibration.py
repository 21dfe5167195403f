"""What stands behind `calibrate`: a checkpoint's metres or depth intervals, fitted to measured images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from densevit.data.datasets.base import open_dataset
from densevit.errors import ConfigError
from densevit.inference.predictor import Predictor
from densevit.scorers import calibration
from densevit.utils.atomic_io import check_can_create


def check_output(folder: Path) -> Path:
    """Raise ConfigError if the folder exists; StorageError if it cannot be made."""
    if folder.exists():
        raise ConfigError(f"--output: {folder} exists already; a calibration is written into a new folder.")
    check_can_create(folder)
    return folder


def data_name(spec: dict[str, Any]) -> str:
    """Return the name of a data set for the card."""
    return " ".join(str(spec[key]) for key in ("type", "root", "split") if spec.get(key))


def calibrate_intervals(
    predictor: Predictor, folder: Path, spec: dict[str, Any], level: float, head: str | None
) -> str:
    """Calibrate the depth intervals of a head by the images of a data set."""
    name, outputs = data_name(spec), predictor.card.outputs
    head, interval = calibration.calibrate_intervals(predictor, open_dataset(spec), level=level, head=head, name=name)
    calibrated = {**outputs, head: replace(outputs[head], interval=interval)}
    save(predictor, replace(predictor.card, outputs=calibrated), folder)
    return "\n".join([
        f"head {head}: intervals of {interval.level:.0%}, calibrated on {interval.images} images of {name}",
        "depth in metres   " + "".join(f"{depth:8.2f}" for depth in interval.depths),
        "factor of b       " + "".join(f"{factor:8.2f}" for factor in interval.factors),
        f"written: {folder}",
    ])  # fmt: skip


def calibrate_scale(
    predictor: Predictor, folder: Path, spec: dict[str, Any], points: str | Path | None, head: str | None
) -> str:
    """Correct the metres of a head by the images of a data set, or by `points`."""
    selected = predictor.card.head_for(("metric",), [head] if head else (), "calibrate")
    if predictor.card.outputs[selected].calibration is not None:
        raise ConfigError(f"calibrate: head '{selected}' is calibrated already; take the checkpoint that it came from.")
    if points is not None:
        measured, source = list(calibration.measure_points(predictor, Path(points), selected)), str(points)
    else:
        data = open_dataset(spec)
        measured = list(calibration.measure(predictor, data, selected))
        source = f"{data_name(spec)} ({len(data)} images)"
    result = calibration.choose_calibration(measured)
    save(predictor, calibration.calibrated_card(predictor.card, selected, result, source), folder)
    return f"{result}\nwritten: {folder}"


def save(predictor: Predictor, card: Any, folder: Path) -> None:
    """Write a checkpoint with another card."""
    predictor.with_options(card=card).save_pretrained(folder)
