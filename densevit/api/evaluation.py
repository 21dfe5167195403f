"""What stands behind `evaluate`: a scorer for each task, chosen by the heads of a model or the kind of data.

The keyword-only parameters of a scorer are the options of its task; all others are refused.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from densevit import api
from densevit.api.checkpoint import as_names, card_before_loading, load_plugins
from densevit.api.data_arguments import open_data, recorded_protocol, recorded_run, training_warning
from densevit.config.parser import describe_object
from densevit.data.datasets.base import Dataset, evenly_spaced
from densevit.data.labels.class_lists import read_classes
from densevit.data.labels.class_table import refuse_reordered
from densevit.data.predictions import DepthMaps, GivenLabels, GivenMaps, SavedLabels, SavedMaps, SavedNormals
from densevit.data.segment_predictions import SavedSegments, SegmentTask, task_of_file
from densevit.errors import ConfigError
from densevit.evaluation.depth.metrics import find_sets
from densevit.evaluation.depth.ordinal import OrdinalScores, read_pairs
from densevit.evaluation.normals import find_protocol
from densevit.evaluation.video.clip import USUAL, VIDEO_DEPTH_ANYTHING, VideoProtocol
from densevit.inference.backends.auto import sampled_sizes
from densevit.inference.choose_runtime import choose_runtime
from densevit.inference.predict.output_plan import SETTINGS
from densevit.inference.predictor import Predictor
from densevit.inference.writers.labels import CLASSES
from densevit.model_card import ModelCard
from densevit.scorers.base import Evaluation
from densevit.scorers.baselines import FEWEST, recorded_baselines
from densevit.scorers.classification import evaluate_classification
from densevit.scorers.depth import evaluate_depth, evaluate_ordinal, select_protocols
from densevit.scorers.normals import evaluate_normals
from densevit.scorers.segmentation import evaluate_segmentation
from densevit.scorers.segmentation import label_encoding as find_label_table
from densevit.scorers.segments import evaluate_segments
from densevit.scorers.video import clips_of, evaluate_video, evaluate_video_files, kind_of
from densevit.structures import Size
from densevit.utils.atomic_io import check_can_create
from densevit.utils.docstrings import flag
from densevit.utils.json_files import read_object
from densevit.utils.output import say_written

Scored = Evaluation | OrdinalScores

OF_FILES = ("suffix", "manifest", "allow_outside_root")
OF_SAVED_FILES = (*OF_FILES, "axes", "label_encoding", "scale")
OF_MODELS = ("head", "flip", "points", "batch_size")
DEPTH_CHECKS = 8  # images of data with classes that are looked at for depth
NOT_RECORDED = ("output", "workers", "gt_cache")
"""Options on which no score depends."""


def evaluate(
    defaults: Mapping[str, Any],
    model: Any,
    data: Any,
    predictions: Any,
    task: str | None,
    output: str | Path | None,
    root: str | Path | None,
    data_options: Mapping[str, Any] | None,
    split: str | None,
    batch_size: int | None,
    precision: str | None,
    **options: Any,
) -> Scored:
    """Score a model or predictions; see `densevit.evaluate`, whose `defaults` these are."""
    settings = {name: options.pop(name) for name in [*options] if name in OPTIONS}
    settings["metrics"] = as_names(settings["metrics"])
    changed = {name: value for name, value in settings.items() if value != defaults[name] and value not in ([], ())}
    path = model if isinstance(model, str | Path) else None
    options |= {"precision": precision} if precision else {}
    check_source(model, predictions, path, {**changed, **({"batch_size": batch_size} if batch_size else {})}, options)
    load_plugins(options.get("plugins", ()))
    find_sets(settings["metrics"])
    task = task or task_before_loading(model, changed)
    refuse_others(task, changed)
    if output is not None:
        check_can_create(Path(output))
    without_data = task == "ordinal" or bool(changed.get("videos"))
    if without_data:
        check_without_data({"data": data, "root": root, "data_options": data_options, "split": split}, changed)
    opened, spec = (None, {}) if without_data else open_data(path, data, root, split, data_options)
    if task is None and opened is not None and not isinstance(model, str | Path | Predictor):
        task = task_of_predictions(predictions, opened)
        refuse_others(task, changed)
    if opened is not None and task in ("segmentation", "classification"):
        opened = opened.without_depth()
    subject = model if predictions is None else predictions
    if path is not None:
        sizes = {"batch_size": batch_size or (32 if task == "classification" else 1)}
        subject = api.load(path, **{"precision": "fp32", **sizes, **options})
        if opened is not None:
            subject = choose_for_data(subject, opened)
        if settings["protocol"] is None and data is None and task in ("depth", None):
            settings["protocol"] = recorded_protocol(path, settings["head"])
    elif isinstance(subject, Predictor) and batch_size is not None:
        subject = subject.with_options(batch_size=batch_size)
    if task is None:
        task = task_of(subject.card, settings["head"]) if isinstance(subject, Predictor) else "depth"
        refuse_others(task, changed)
    if isinstance(subject, Predictor) and task != "depth" and settings["flip"] is not None:
        subject = subject.with_options(flip=settings["flip"])
    seen = "" if path is None or opened is None else training_warning(path, opened, spec)
    in_memory = path is None and not isinstance(predictions, str | Path)
    named = describe_object(subject) if in_memory else str(path or subject)
    settings["output"] = output
    scorer = SCORERS[task]
    result = scorer(subject, opened, str(spec.get("type", "")), **{name: settings[name] for name in options_of(scorer)})
    result = replace(
        result,
        title=f"{Path(named).name} on {spec['type']}" if spec else f"{Path(named).name}, {task}",
        source={
            "checkpoint" if predictions is None else "predictions": named,
            "task": task,
            **data_source(spec),
            **{key: str(value) for key, value in {**changed, **options}.items() if key not in NOT_RECORDED},
            **({"device": str(subject.device), "runtime": subject.runtime} if isinstance(subject, Predictor) else {}),
        },
    )
    if seen and isinstance(result, Evaluation):
        result = replace(result, warning="; ".join(filter(None, (seen, result.warning))))
    if isinstance(result, Evaluation) and task == "depth" and path and opened is not None and len(opened) >= FEWEST:
        train = (recorded_run(path).get("data") or {}).get("train") or {}
        result = replace(result, baselines=recorded_baselines(train, opened) if train.get("type") else "")
    if output is not None:
        say_written(*result.report(output))
    return result


def task_before_loading(model: Any, changed: Mapping[str, Any]) -> str | None:
    """Return the task that an option or the card of a checkpoint tells; None where neither does."""
    if changed.get("pairs"):
        return "ordinal"
    if changed.get("videos"):
        return "video"
    card = card_before_loading(model)
    return None if card is None else task_of(card, changed.get("head"))


def task_of_predictions(predictions: Any, data: Dataset) -> str:
    """Return what saved predictions, or those of a function, are scored for: what the data has ground truth of."""
    if str(predictions).endswith(".json"):
        return task_of_file(Path(predictions))
    looked_at = evenly_spaced(len(data), DEPTH_CHECKS)
    depth = not data.classes or any(data.depth_map(i) is not None for i in looked_at)
    return "depth" if depth else "segmentation"


def check_without_data(data: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    """Raise ConfigError: options that need ground truth, for pairs of points or videos without."""
    if changed.get("videos") and (changed.get("align") or changed.get("protocol")):
        raise ConfigError("--align and --protocol compare with ground truth, which --videos do not have.")
    instead = "--videos" if changed.get("videos") else "--pairs"
    if given := [name for name, value in data.items() if value is not None]:
        raise ConfigError(*(f"{flag(name)}: {instead} are scored in place of a data set." for name in given))


def data_source(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report records of the config of its data."""
    return {
        **({"data": str(spec["type"])} if spec else {}),
        **{key: str(spec[key]) for key in ("root", "split") if spec.get(key)},
        "data_options": {key: str(value) for key, value in spec.items() if key not in ("type", "root", "split")},
    }


def options_of(scorer: Callable[..., Scored]) -> list[str]:
    """Return the options of a task; `**files` stands for those that say which files of a folder are predictions."""
    parameters = inspect.signature(scorer).parameters.values()
    files = OF_FILES if any(p.kind is p.VAR_KEYWORD for p in parameters) else ()
    return [*(p.name for p in parameters if p.kind is p.KEYWORD_ONLY), *files]


def check_source(
    model: Any, predictions: Any, path: str | Path | None, changed: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Raise ConfigError: neither a model nor predictions, or both; or an option that is for the other."""
    if (model is None) == (predictions is None):
        raise ConfigError("evaluate: give either a MODEL or --predictions.")
    if options and path is None and predictions is None:
        names = ", ".join(map(flag, options))
        raise ConfigError(f"{names}: options of a checkpoint's path, and this is none.")
    if path is not None or isinstance(model, Predictor):
        owners = dict.fromkeys((*OF_SAVED_FILES, "gt_cache", "prediction_type"), "--predictions")
    else:
        owners = dict.fromkeys((*OF_MODELS, *options), "a MODEL")
        if not isinstance(predictions, str | Path):
            owners |= dict.fromkeys(OF_SAVED_FILES, "a folder of --predictions")
    if wrong := [name for name in {**changed, **options} if name in owners]:
        raise ConfigError(*(f"{flag(name)} is an option of {owners[name]} only." for name in wrong))


def refuse_others(task: str | None, changed: Mapping[str, Any]) -> None:
    """Raise ConfigError: options of other tasks."""
    if task is None:
        return
    wrong = [name for name in changed if name not in options_of(SCORERS[task])]
    fits = {name: " and ".join(t for t, s in SCORERS.items() if name in options_of(s)) for name in wrong}
    if wrong:
        raise ConfigError(*(f"{flag(name)}: is for {fits[name]}; this evaluation is of {task}." for name in wrong))


def task_of(card: ModelCard, head: str | None) -> str:
    """Return what a head is scored for."""
    return card.outputs[card.head(head)].output_kind.task or "depth"


def choose_for_data(predictor: Predictor, data: Dataset) -> Predictor:
    """Return the predictor with what computes fastest for these images, where its runtime is `auto`."""
    if predictor.runtime != "auto":
        return predictor

    def size_of(index: int) -> Size:
        h, w = data.read(index).image.shape[:2]
        return h, w

    predictor, why = choose_runtime(predictor, sampled_sizes(len(data), size_of, read=4))
    print(why, file=sys.stderr)
    return predictor


def score_depth(
    subject: Any,
    data: Dataset,
    data_name: str,
    *,
    protocol: str | None,
    head: str | None,
    align: str | None,
    metrics: Sequence[str],
    points: int | None,
    flip: bool | None,
    prediction_type: Any,
    scale: float | None,
    workers: int,
    gt_cache: str | Path | None,
    output: str | Path | None,
    **files: Any,
) -> Evaluation:
    saved = not isinstance(subject, Predictor)
    if output is not None:  # cameras of saved maps only where asked for: reading them decodes the images
        charts = ("distance",) if saved else ("distance", "fov")
        metrics = tuple(dict.fromkeys((*metrics, *charts)))
    kind = prediction_type if saved else subject.card.outputs[subject.card.head(head)].kind
    protocols = select_protocols(protocol, data, data_name, kind, align=align, same_crop=not saved)
    maps = saved_depth(subject, data, kind, scale, files) if saved else subject
    return evaluate_depth(
        maps, data, protocols, metrics=metrics, head=head, flip=flip, progress=True, points=points,
        workers=0 if isinstance(maps, GivenMaps) else workers, gt_cache=None if gt_cache is None else Path(gt_cache),
    )  # fmt: skip


def saved_depth(
    subject: Any, data: Dataset, kind: Any, scale: float | None, files: Mapping[str, Any], names: Sequence[str] = ()
) -> DepthMaps:
    """Return depth maps of a folder, or from Python. `names`: of the images that need one; default: all."""
    if not isinstance(subject, str | Path):
        return GivenMaps(data, subject, kind=kind)
    return SavedMaps(Path(subject), names or data.names, kind=kind, scale=scale, **files_of(**files))


def files_of(suffix: str | None, manifest: str | Path | None, allow_outside_root: bool) -> dict[str, Any]:
    """Return which files of a folder are predictions, as `SavedMaps` takes it."""
    manifest_path = None if manifest is None else Path(manifest)
    return {"suffix": suffix, "manifest": manifest_path, "allow_outside": allow_outside_root}


def score_normals(
    subject: Any,
    data: Dataset,
    data_name: str,
    *,
    protocol: str | None,
    head: str | None,
    flip: bool | None,
    axes: Any,
    workers: int,
    **files: Any,
) -> Evaluation:
    resolved = find_protocol(protocol or "dsine")
    if isinstance(subject, str | Path):
        settings = Path(subject) / SETTINGS
        formats = read_object(settings).get("formats", {}).values() if settings.is_file() else ()
        if wrong := [written for options in formats if (written := options.get("axes", axes)) != axes]:
            raise ConfigError(f"--axes {axes}: {settings} says that `predict` wrote --axes {wrong[0]}; name these.")
        subject = SavedNormals(Path(subject), data.names, axes=axes, **files_of(**files))
    elif not isinstance(subject, Predictor):
        raise ConfigError("evaluate: normals are those of a model, or of a folder of files.")
    return evaluate_normals(subject, data, resolved, head=head)


def score_segmentation(
    subject: Any,
    data: Dataset,
    data_name: str,
    *,
    head: str | None,
    flip: bool | None,
    boundary: bool,
    label_encoding: str,
    workers: int,
    **files: Any,
) -> Evaluation:
    if not data.classes:
        raise ConfigError(f"data '{data_name}' names no classes, so there is nothing to score.")
    if isinstance(subject, str | Path):
        table, own = find_label_table(label_encoding, data), Path(subject) / CLASSES
        if table is None and (Path(subject) / SETTINGS).is_file() and own.is_file():  # both written by `predict`
            refuse_reordered(str(own), read_classes(own).names, data.classes)
        subject = SavedLabels(Path(subject), data.names, table=table, **files_of(**files))
    elif not isinstance(subject, Predictor):
        subject, workers = GivenLabels(data, subject), 0
    return evaluate_segmentation(subject, data, head=head, boundary=boundary, workers=workers)


def score_segments(
    task: SegmentTask, subject: Any, data: Dataset, data_name: str, *, head: str | None, flip: bool | None
) -> Evaluation:
    if isinstance(subject, str | Path):
        subject = SavedSegments(Path(subject), data, task)
    elif not isinstance(subject, Predictor):
        raise ConfigError(f"evaluate: {task} are scored for a model, or for a JSON file in COCO's format.")
    return evaluate_segments(subject, data, task, head=head)


def score_classification(
    subject: Any, data: Dataset, data_name: str, *, head: str | None, flip: bool | None
) -> Evaluation:
    if not isinstance(subject, Predictor):
        raise ConfigError("evaluate: image classification is scored for models; predictions are maps.")
    return evaluate_classification(subject, data, head=head)


def score_ordinal(
    subject: Any,
    data: None,
    data_name: str,
    *,
    pairs: str | Path | None,
    images: str | Path | None,
    head: str | None,
    flip: bool | None,
    prediction_type: Any,
    scale: float | None,
    suffix: str | None,
) -> OrdinalScores:
    if pairs is None:
        raise ConfigError("--task ordinal: name DA-2K's annotations.json by --pairs.")
    listed = read_pairs(Path(pairs))
    if isinstance(subject, str | Path):
        names = [image.rpartition(".")[0] for image in listed]
        subject = SavedMaps(Path(subject), names, kind=prediction_type, scale=scale, suffix=suffix)
    elif not isinstance(subject, Predictor):
        raise ConfigError("evaluate: pairs are scored for a model, or for a folder of files.")
    return evaluate_ordinal(subject, listed, Path(images or Path(pairs).parent), head=head)


def score_video(
    subject: Any,
    data: Dataset | None,
    data_name: str,
    *,
    videos: Sequence[str | Path],
    protocol: str | None,
    align: Any,
    frames: int | None,
    stabilize: bool,
    fuse: bool | None,
    lookahead: int,
    head: str | None,
    flip: bool | None,
    prediction_type: Any,
    scale: float | None,
    output: str | Path | None,
    **files: Any,
) -> Evaluation:
    if lookahead < 0:
        raise ConfigError(f"--lookahead: {lookahead} frames; there are 0 or more.")
    if fuse is not None and not stabilize:
        raise ConfigError("--fuse: belongs to --stabilize.")
    options: dict[str, Any] = {
        "head": head,
        "stabilize": {"future": lookahead, "fuse": fuse is not False} if stabilize else None,
        "lookahead": lookahead,
        "figures": output is not None,
        "progress": True,
    }
    if data is None:
        if not isinstance(subject, Predictor):
            raise ConfigError("--videos: needs a MODEL, and no --data.")
        return evaluate_video_files(subject, [str(video) for video in videos], limit=frames, **options)
    resolved = video_protocol(protocol or "plain", data_name, data.depth_range)
    resolved = resolved if frames is None else replace(resolved, frames=frames)
    if not isinstance(subject, Predictor):
        names = [data.names[i] for clip in clips_of(data).values() for i in clip[: resolved.frames]]
        subject = saved_depth(subject, data, prediction_type, scale, files, names)
    if align not in (None, "none", "scale", "affine", "disparity"):
        raise ConfigError(f"--align: of videos none, scale, affine or disparity; got {align!r}.")
    kind = kind_of(subject, head)
    if align == "none" and kind != "metric":
        raise ConfigError(f"--align none: takes predictions for metres, and these are {kind}; leave it out.")
    return evaluate_video(subject, data, resolved, align or USUAL[kind], **options)


def video_protocol(name: str, data_name: str, depth_range: tuple[float, float]) -> VideoProtocol:
    """Raise ConfigError: no such protocol, or it does not have this data set."""
    if name == "plain":
        return VideoProtocol(range=(max(depth_range[0], 1e-3), depth_range[1]))
    if name != "video_depth_anything":
        raise ConfigError(f"--protocol: of videos plain or video_depth_anything; got {name!r}.")
    if data_name not in VIDEO_DEPTH_ANYTHING:
        raise ConfigError(f"--protocol {name}: is for {', '.join(VIDEO_DEPTH_ANYTHING)}, not {data_name}.")
    return VIDEO_DEPTH_ANYTHING[data_name]


SCORERS: dict[str, Callable[..., Scored]] = {
    "depth": score_depth,
    "normals": score_normals,
    "segmentation": score_segmentation,
    "panoptic": partial(score_segments, "panoptic"),
    "instances": partial(score_segments, "instances"),
    "classification": score_classification,
    "ordinal": score_ordinal,
    "video": score_video,
}
OPTIONS = {name for scorer in SCORERS.values() for name in options_of(scorer)}
"""All options that belong to a task."""
