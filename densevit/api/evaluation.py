"""`evaluate`: a checkpoint, or predictions of any system, scored on a data set by the protocol of a paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from densevit.api.checkpoint import load
from densevit.config.objects import describe_object
from densevit.data.datasets.base import Dataset, open_dataset
from densevit.data.datasets.named import named_spec, spec_to_score
from densevit.data.datasets.pairs import as_dataset
from densevit.data.io.normals import Axes
from densevit.data.predictions import GivenLabels, GivenMaps, SavedLabels, SavedMaps, SavedNormals
from densevit.errors import ConfigError
from densevit.evaluation.depth.extra_metrics import find_sets
from densevit.evaluation.normals.protocol import find_protocol
from densevit.evaluators.base import Evaluation
from densevit.evaluators.classification import evaluate_classification
from densevit.evaluators.depth import evaluate_depth, select_protocols
from densevit.evaluators.normals import evaluate_normals
from densevit.evaluators.segmentation import evaluate_segmentation
from densevit.evaluators.segmentation import label_encoding as find_label_table
from densevit.inference.backends.auto import sampled_sizes
from densevit.inference.choose_runtime import choose_runtime
from densevit.inference.predictor import Predictor
from densevit.model_card import Kind
from densevit.registry import ComponentConfig
from densevit.structures import Size
from densevit.weights.recorded_run import recorded_protocol, validation_spec

__all__ = ["Evaluation", "evaluate"]

Task = Literal["depth", "normals", "segmentation", "classification"]

TASKS: Mapping[str, Task] = {"normals": "normals", "labels": "segmentation", "class": "classification"}
"""By the kind of a head; of the others depth."""


def evaluate(
    model: Predictor | Callable[[Any], Any] | str | Path | None = None,
    data: Any = None,
    protocol: str | None = None,
    *,
    predictions: str | Path | Mapping[str, Any] | Sequence[Any] | np.ndarray | None = None,
    task: Task | None = None,
    split: str | None = None,
    head: str | None = None,
    align: str | None = None,
    metrics: Sequence[str] = (),
    flip: bool | None = None,
    boundary: bool = True,
    prediction_type: Kind = "metric",
    scale: float | None = None,
    axes: Axes = "opencv",
    label_encoding: str = "classes",
    suffix: str | None = None,
    manifest: str | Path | None = None,
    allow_outside_root: bool = False,
    workers: int = 2,
    gt_cache: str | Path | None = None,
    points: int | None = None,
    **options: Any,
) -> Evaluation:
    """Scores a model or saved predictions, as `densevit eval-depth`, `eval-normals`, `eval-seg` and `eval-class` do.

    >>> densevit.evaluate("runs/mine")                                   # doctest: +SKIP
    >>> densevit.evaluate("runs/nyu", "nyu", "nyu_eigen")                # doctest: +SKIP
    >>> densevit.evaluate(predictions="maps/", data="nyu")               # doctest: +SKIP
    >>> densevit.evaluate(lambda image: net(image), pairs)               # doctest: +SKIP

    Args:
        model: a checkpoint's path, a `Predictor`, or a function from an image (uint8 h w 3, RGB) to a map h w.
        data: the name of a data set or a folder; its config, `{"type": "folder", "root": "mine"}`; a
            `densevit.Dataset`; or a sequence of (image, depth) pairs. Default: what the training validated on.
        protocol: of depth a name (`densevit protocols`), or `all`; of normals dsine or marigold. Default: what the
            training was validated by, or what the data set is usually scored by.
        predictions: in place of a model: a folder of maps; name -> map; or maps in the order of the data. Depth is
            float h w, classes are whole numbers h w.
        task: depth, normals, segmentation or classification. Default: what the head gives; for predictions depth,
            unless the data has classes and no depth.
        split: of the data; default: test, where there is one.
        head: of a model that has several.
        align: of depth: fit predictions to each ground truth: lstsq, median, ...; default: as the protocol does.
        metrics: of depth, beside the nine standard ones: extra, silog, kitti, curve, boundary, distance, points.
        flip: average with the mirrored image's prediction; default: as the protocol does.
        boundary: of segmentation: boundary IoU, too.
        prediction_type: what predicted depth is: metric (metres), or affine or disparity, which are aligned.
        scale: stored units per metre of predicted PNG16 that do not say.
        axes: of predicted normals: opencv (right, down, forward), opengl or dsine.
        label_encoding: of predicted label files: classes, stored, or a file that names them.
        suffix: which files of a folder to take, `.png` say.
        manifest: CSV or JSONL of `name` and `prediction`, where names differ.
        allow_outside_root: `manifest` may name files outside of the folder.
        workers: processes that read and score saved maps; no score depends on it.
        gt_cache: a folder that keeps decoded ground truth for further evaluations.
        points: of depth: so many of each image's ground truth are given to the model, drawn at random (always the same
            ones), and all other pixels are scored.
        options: of `densevit.load`, for a path: family, device, precision (default fp32), tiling, ...

    Returns:
        scores, intervals and scores per image; `print` shows the table, `report(folder)` writes it.

    Raises:
        ConfigError: neither a model nor predictions, or both; no such protocol, head or option.
        DataError: the data is not where or what it should be; a prediction does not fit its image.
        CheckpointError: no checkpoint, or a damaged one.
    """
    if (model is None) == (predictions is None):
        raise ConfigError("evaluate: give either a model or predictions=.")
    path = model if isinstance(model, str | Path) else None
    if options and path is None:
        raise ConfigError(f"evaluate: {', '.join(options)}: options of a checkpoint's path, and this is none.")
    find_sets(metrics)
    opened, spec = _open(data, path, split)
    given: Any = model if predictions is None else predictions
    if path is not None:
        given = load(path, **{"precision": "fp32", **options})
        choose_for_data(given, opened)
        options |= {"runtime": given.runtime} if "runtime" in options else {}
        if protocol is None and data is None and task_of(given, head) == "depth":
            protocol = recorded_protocol(path, head)
    found = score(
        given, opened, str(spec["type"]), task=task, protocol=protocol, head=head, align=align, metrics=metrics,
        flip=flip, boundary=boundary, prediction_type=prediction_type, scale=scale, axes=axes,
        label_encoding=label_encoding, suffix=suffix,
        manifest=None if manifest is None else Path(manifest),
        allow_outside_root=allow_outside_root, workers=workers, gt_cache=None if gt_cache is None else Path(gt_cache),
        points=points,
    )  # fmt: skip
    subject = predictions if path is None else path
    named = str(subject) if isinstance(subject, str | Path) else describe_object(given)
    chosen = {
        "protocol": protocol, "head": head, "align": align, "metrics": list(metrics), "flip": flip, "points": points,
        **options,
    }  # fmt: skip
    source = {
        "checkpoint" if predictions is None else "predictions": named,
        "data": str(spec["type"]),
        **{key: str(spec[key]) for key in ("root", "split") if spec.get(key)},
        **{key: str(value) for key, value in chosen.items() if value not in (None, False, [], ())},
    }
    return replace(found, title=f"{Path(named).name} on {spec['type']}", source=source)


def task_of(predictor: Predictor, head: str | None) -> Task:
    """What its head is scored for."""
    return TASKS.get(predictor.card.outputs[predictor.card.head(head)].kind, "depth")


def choose_for_data(predictor: Predictor, data: Dataset) -> tuple[Predictor, str]:
    """Choose what computes fastest for these images, for a predictor with `runtime="auto"`; see `choose_runtime`."""
    if predictor.runtime != "auto":
        return predictor, ""

    def size_of(index: int) -> Size:
        h, w = data.read(index).image.shape[:2]
        return h, w

    return choose_runtime(predictor, sampled_sizes(len(data), size_of, read=4))


def score(
    given: Any,
    data: Dataset,
    data_name: str,
    *,
    task: Task | None = None,
    protocol: str | None = None,
    head: str | None = None,
    align: str | None = None,
    metrics: Sequence[str] = (),
    flip: bool | None = None,
    boundary: bool = True,
    prediction_type: Kind = "metric",
    scale: float | None = None,
    axes: Axes = "opencv",
    label_encoding: str = "classes",
    suffix: str | None = None,
    manifest: Path | None = None,
    allow_outside_root: bool = False,
    workers: int = 2,
    gt_cache: Path | None = None,
    points: int | None = None,
) -> Evaluation:
    """Scores what is loaded already on data that is open; see `evaluate`.

    Args:
        given: a `Predictor`, a folder of maps, or predictions from Python.
        data_name: of the data set, which decides the usual protocol.
    """
    if isinstance(given, Predictor) and task in (None, "depth"):
        prediction_type = given.card.outputs[given.card.head(head)].kind
        task = task or task_of(given, head)
    files: Any = {"suffix": suffix, "manifest": manifest, "allow_outside": allow_outside_root}
    if task is None:
        task = "segmentation" if data.classes and data.depth_map(0) is None else "depth"
    if task == "classification":
        if not isinstance(given, Predictor):
            raise ConfigError("evaluate: image classification is scored for models; predictions are maps.")
        return evaluate_classification(given, data, head=head)
    if task == "normals":
        return evaluate_normals(_normals(given, data, files, axes), data, find_protocol(protocol or "dsine"), head=head)
    if task == "segmentation":
        labels: Predictor | SavedLabels | GivenLabels
        if isinstance(given, Predictor):
            labels = given
        elif isinstance(given, str | Path):
            labels = SavedLabels(Path(given), data.names, table=find_label_table(label_encoding, data), **files)
        else:
            labels, workers = GivenLabels(data, given), 0
        return evaluate_segmentation(labels, data, head=head, boundary=boundary, workers=workers)
    same_crop = isinstance(given, Predictor)
    protocols = select_protocols(protocol, data, data_name, prediction_type, align=align, same_crop=same_crop)
    maps: Predictor | SavedMaps | GivenMaps
    if isinstance(given, Predictor):
        maps = given
    elif isinstance(given, str | Path):
        maps = SavedMaps(Path(given), data.names, kind=prediction_type, scale=scale, **files)
    else:
        maps, workers = GivenMaps(data, given, kind=prediction_type), 0
    return evaluate_depth(
        maps, data, protocols, metrics=metrics, head=head, flip=flip, workers=workers, gt_cache=gt_cache, progress=True,
        points=points,
    )  # fmt: skip


def _normals(given: Any, data: Dataset, files: Mapping[str, Any], axes: Axes) -> Predictor | SavedNormals:
    if isinstance(given, Predictor):
        return given
    if isinstance(given, str | Path):
        return SavedNormals(Path(given), data.names, axes=axes, **files)
    raise ConfigError("evaluate: normals are those of a model, or of a folder of files.")


def _open(data: Any, checkpoint: str | Path | None, split: str | None) -> tuple[Dataset, ComponentConfig]:
    """The data set, and how a config would name it."""
    if data is None:
        if checkpoint is None:
            raise ConfigError("evaluate: name the data; only a checkpoint's path tells what it was validated on.")
        spec = validation_spec(checkpoint, split=split)
    elif isinstance(data, str | Path):
        spec = spec_to_score(named_spec(str(data)), split)
    elif isinstance(data, Mapping):
        plain = {key: str(value) if isinstance(value, Path) else value for key, value in data.items()}
        spec = spec_to_score(plain, split)
    else:
        return as_dataset(data), {"type": describe_object(data)}
    return open_dataset(spec), spec
