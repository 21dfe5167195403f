"""Evaluation: `evaluate` scores a model or saved predictions, `compare` two evaluations; `calibrate` corrects one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from densevit.api.types import Count, EvaluationTask, Precision
from densevit.errors import ConfigError
from densevit.utils.docstrings import defaults

if TYPE_CHECKING:
    from densevit.api.evaluation import Scored
    from densevit.evaluation.compare import Comparison


def evaluate(
    model: Any = None,
    /,
    data: Any = None,
    protocol: str | None = None,
    *,
    root: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    split: str | None = None,
    predictions: Any = None,
    task: EvaluationTask | None = None,
    head: str | None = None,
    output: str | Path | None = None,
    align: str | None = None,
    metrics: Sequence[str] = (),
    points: Count | None = None,
    flip: bool | None = None,
    boundary: bool = True,
    pairs: str | Path | None = None,
    images: str | Path | None = None,
    videos: Sequence[str | Path] = (),
    frames: Count | None = None,
    stabilize: bool = False,
    fuse: bool | None = None,
    lookahead: int = 6,
    prediction_type: Literal["metric", "affine", "disparity"] = "metric",
    scale: float | None = None,
    axes: Literal["opencv", "opengl", "dsine"] = "opencv",
    label_encoding: str = "classes",
    suffix: str | None = None,
    manifest: str | Path | None = None,
    allow_outside_root: bool = False,
    gt_cache: str | Path | None = None,
    workers: Count = 2,
    precision: Precision | None = None,
    batch_size: Count | None = None,
    **options: Any,
) -> "Scored":
    """Score a model, or predictions that any system saved, by the protocol of a paper.

    What is scored follows from the model's heads: depth by a protocol; classes of pixels by mIoU, accuracies and
    boundary IoU; panoptic segments by PQ, instances by COCO's mask AP; surface normals by angles; classes of images by
    accuracy. A data set of clips is scored over time by
    `--task video` (one alignment per clip, change by optical flow, flicker), DA-2K's pairs of points by `--pairs`.

    >>> densevit.evaluate("runs/mine")                                   # doctest: +SKIP
    >>> densevit.evaluate("runs/nyu", "nyu", "nyu_eigen")                # doctest: +SKIP
    >>> densevit.evaluate(predictions="maps/", data="nyu")               # doctest: +SKIP
    >>> densevit.evaluate(lambda image: net(image), pairs)               # doctest: +SKIP

    Args:
        model: a checkpoint's path; in Python also a `Predictor`, or a function from an image (uint8 h w 3, RGB) to a
            map h w.
        data: the name of a data set, or a folder; in Python also its config, `{"type": "folder", "root": "mine"}`, a
            `densevit.Dataset`, or a sequence of (image, depth) pairs. Default: what the training validated on.
        protocol: of depth a name (`densevit list protocols`), or all; of normals dsine or marigold; of videos plain or
            video_depth_anything. Default: what the training was validated by, or what the data set is usually scored
            by.
        root: folder of the data set; default: its own below $DENSEVIT_DATASETS.
        data_options: options of the data set, as depth_scale=1000.
        split: split of the data set; default: test, where there is one.
        predictions: score these instead of a model: a folder of maps, or a JSON of segments in COCO's format (panoptic,
            or a list of results); in Python also name -> map, or maps in the order of the data. Depth is float h w,
            classes are whole numbers h w.
        task: what to score, where several fit; default: what the head gives; for predictions and functions depth,
            unless the data has classes and no depth.
        head: head of a model that has several for the task.
        output: write metrics.json, tables as CSV and report.html to this folder.
        align: depth, video: fit predictions to each ground truth: lstsq, median, ...; of videos once per clip: none,
            scale, affine or disparity. Default: as the protocol does.
        metrics: depth: further sets of metrics: extra, silog, kitti, curve, boundary, distance, points, fov,
            uncertainty.
        points: depth: give the model this number of random points of each image's ground truth, always the same ones;
            all other pixels are scored.
        flip: average with the mirrored image's prediction; default: as the protocol or the `Predictor` does.
        boundary: segmentation: boundary IoU, too.
        pairs: ordinal: DA-2K's annotations.json: which of two points is closer.
        images: ordinal: folder of the images that `pairs` names; default: its own folder.
        videos: video: videos or folders of frames without ground truth, in place of `data`.
        frames: video: at most this number of frames of a clip.
        stabilize: video: score the maps as `predict --stabilize` writes them.
        fuse: video: with `stabilize`, average static parts per pixel, too; default: yes.
        lookahead: video: later frames that `stabilize` uses; 0: motion blocks see earlier frames only, too.
        prediction_type: what predicted depth is: metric (metres); affine or disparity, which are aligned.
        scale: stored units per metre of predicted files, whatever they say themselves; default: as 16-bit PNG files
            say, and float files are in metres.
        axes: axes of predicted normals: opencv (right, down, forward), opengl (right, up, back: Marigold) or dsine
            (left, up, back).
        label_encoding: what the numbers in predicted label files are: classes (positions among the data's classes),
            stored (as in the data's label files), or a JSON or text file that names them.
        suffix: which files of a folder of predictions to take, as .png.
        manifest: CSV or JSONL of `name` and `prediction`, where names of predictions differ.
        allow_outside_root: `manifest` may name files outside of the folder of predictions.
        gt_cache: keep decoded ground truth in this folder for further evaluations of saved depth.
        workers: processes that read and score saved maps; no score depends on it.
        precision: precision of the model; bf16, fp16 and tf32 (GPUs) change the last digits of a score. Default: fp32,
            or that of a `Predictor`.
        batch_size: images of one size that share a pass; default: 1, of classes of images 32.
        options: of `densevit.load`, for a path.

    Returns:
        scores, intervals and scores per image; `print` shows the table, `report(folder)` writes it.

    Raises:
        ConfigError: neither a model nor predictions, or both; no such protocol or head; an option of another task.
        DataError: the data is not where or what it should be; a prediction does not fit its image.
        CheckpointError: no checkpoint, or a damaged one.
    """
    arguments = dict(locals())
    from densevit.api import evaluation

    return evaluation.evaluate(defaults(evaluate), **arguments.pop("options"), **arguments)


def compare(
    a: str | Path,
    b: str | Path,
    /,
    *,
    metrics: Sequence[str] = (),
    output: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
) -> "Comparison":
    """Test whether the difference between two evaluations is significant.

    Args:
        a: a folder that `eval --output` wrote.
        b: another, of the same images.
        metrics: metrics to compare; default: all that both have and of which it is known which direction is better.
        output: write the comparison to this file, as an HTML page.
        plugins: Python files that register metrics of your own.
    """
    from densevit.api.checkpoint import as_names, load_plugins
    from densevit.evaluation import compare as comparing
    from densevit.utils.output import say_written

    load_plugins(plugins)
    comparison = comparing.compare(Path(a), Path(b), tuple(as_names(metrics)))
    if output is not None:
        say_written(comparing.write_html(Path(output), comparison, Path(a), Path(b)))
    return comparison


def calibrate(
    model: str | Path,
    /,
    output: str | Path,
    *,
    target: Literal["scale", "uncertainty"] = "scale",
    data: str | None = None,
    root: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    split: str | None = None,
    points: str | Path | None = None,
    level: float = 0.9,
    head: str | None = None,
    precision: Precision = "fp32",
    **options: Any,
) -> str:
    """Calibrate a model against measured images, and save it as a new checkpoint.

    scale: correct its metres by a scale, an affine or a log-affine map. Which one, and whether it helps, is decided on
    images left out of the fit. The card holds the correction and where it came from; it is applied wherever the
    checkpoint is used, ONNX files too.

    uncertainty: calibrate the depth intervals of a head with `uncertainty: laplace`. Take images that the model was not
    trained on, and others than those that it will be scored on: the intervals then hold the given share of the pixels
    of further images of the same kind.

    Args:
        model: a checkpoint.
        output: folder for the new checkpoint.
        target: what to calibrate.
        data: data set of the measured images: its name, or a folder; default: what the training validated on.
        root: folder of the data set.
        data_options: options of the data set, as depth_scale=1000.
        split: split of the data set; default: test, where there is one.
        points: scale: in place of `data`, a CSV of image, u, v, depth (pixels, metres).
        level: uncertainty: share of the pixels that an interval holds.
        head: head of a model that has several that fit.
        precision: precision of the model.
        options: of `densevit.load`.
    """
    from densevit import api
    from densevit.api.data_arguments import scored_spec
    from densevit.scorers import calibration

    if points is not None and ((data, root, data_options, split) != (None,) * 4 or target != "scale"):
        raise ConfigError("--points: is for --target scale, in place of --data.")
    if level != 0.9 and target == "scale":
        raise ConfigError("--level: is for --target uncertainty.")
    folder = calibration.check_output(Path(output))
    spec = {} if points is not None else scored_spec(model, data, root, split, data_options)
    predictor = api.load(model, precision=precision, **options)
    predictor.check_savable()
    if target == "scale":
        return calibration.calibrate_scale(predictor, folder, spec, points, head)
    return calibration.calibrate_intervals(predictor, folder, spec, level, head)
