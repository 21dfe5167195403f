"""What stands behind `calibrate`: a checkpoint's metres or depth intervals, fitted to measured images."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from densevit import api
from densevit.api.data_arguments import scored_spec
from densevit.data.datasets.base import open_dataset
from densevit.errors import ConfigError
from densevit.inference.predictor import Predictor
from densevit.scorers import calibration
from densevit.utils.atomic_io import check_can_create


def calibrate(
    model: str | Path,
    output: str | Path,
    *,
    target: str,
    data: str | None,
    root: str | Path | None,
    data_options: Mapping[str, Any] | None,
    split: str | None,
    points: str | Path | None,
    level: float,
    head: str | None,
    **options: Any,
) -> str:
    """Calibrate a checkpoint; see `densevit.api.evaluate.calibrate`."""
    if points is not None and (data is not None or target != "scale"):
        raise ConfigError("--points: is for --target scale, in place of --data.")
    if level != 0.9 and target == "scale":
        raise ConfigError("--level: is for --target uncertainty.")
    folder = Path(output)
    if folder.exists():
        raise ConfigError(f"--output: {folder} exists already; a calibration is written into a new folder.")
    check_can_create(folder)
    spec = None if points is not None else scored_spec(model, data, root, split, data_options)
    predictor = api.load(model, **options)
    predictor.check_savable()
    name = "" if spec is None else " ".join(str(spec[key]) for key in ("type", "root", "split") if spec.get(key))
    if target == "scale":
        opened = None if spec is None else open_dataset(spec)
        return calibrate_scale(predictor, folder, opened, name, points, head)
    assert spec is not None
    head, interval = calibration.calibrate_intervals(predictor, open_dataset(spec), level=level, head=head, name=name)
    outputs = predictor.card.outputs
    calibrated = {**outputs, head: replace(outputs[head], interval=interval)}
    save(predictor, replace(predictor.card, outputs=calibrated), folder)
    return "\n".join([
        f"head {head}: intervals of {interval.level:.0%}, calibrated on {interval.images} images of {name}",
        "depth in metres   " + "".join(f"{depth:8.2f}" for depth in interval.depths),
        "factor of b       " + "".join(f"{factor:8.2f}" for factor in interval.factors),
        f"written: {folder}",
    ])  # fmt: skip


def calibrate_scale(
    predictor: Predictor, folder: Path, data: Any, name: str, points: str | Path | None, head: str | None
) -> str:
    """Correct the metres of a head by the images of `data`, or by `points`."""
    selected = predictor.card.head_for(("metric",), [head] if head else (), "calibrate")
    if predictor.card.outputs[selected].calibration is not None:
        raise ConfigError(f"calibrate: head '{selected}' is calibrated already; take the checkpoint that it came from.")
    if points is not None:
        measured, source = list(calibration.measure_points(predictor, Path(points), selected)), str(points)
    else:
        measured, source = list(calibration.measure(predictor, data, selected)), f"{name} ({len(data)} images)"
    result = calibration.choose_calibration(measured)
    save(predictor, calibration.calibrated_card(predictor.card, selected, result, source), folder)
    return f"{result}\nwritten: {folder}"


def save(predictor: Predictor, card: Any, folder: Path) -> None:
    """Write a checkpoint with another card."""
    predictor.with_options(card=card).save_pretrained(folder)
