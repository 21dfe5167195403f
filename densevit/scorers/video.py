"""Video evaluation: a predictor or saved depth maps, the clips of a data set or video files -> scores."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset
from densevit.data.index.paths import tell_apart
from densevit.data.io.video import LiveCamera, VideoSource, open_video
from densevit.data.loading.clips import videos
from densevit.data.loading.prefetch import paired
from densevit.data.predictions import DepthMaps, read_with_gaps
from densevit.errors import DataError, located
from densevit.evaluation.depth.preprocess import paste_or_resize
from densevit.evaluation.video.clip import Align, ClipFrame, VideoProtocol, fit_clip, score_clip
from densevit.evaluation.video.scores import ClipFigures, VideoScores, draw
from densevit.inference.predictor import Predictor
from densevit.inference.video.predict import predict_frames
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream
from densevit.model_card import Kind
from densevit.ops.geometry import Matrix
from densevit.output_kinds import DEPTH_KINDS, scored_kinds
from densevit.scorers.base import Evaluation, inference_options, input_of, intrinsics_of
from densevit.structures import Row, Sample
from densevit.utils.output import tqdm

Map = Float32[np.ndarray, "h w"]
Frames = Callable[[], Iterator[Sample]]
"""Reads the frames of a clip anew at each call."""


def evaluate_video(
    predictions: Predictor | DepthMaps,
    data: Dataset,
    protocol: VideoProtocol,
    align: Align,
    *,
    head: str | None = None,
    stabilize: Mapping[str, Any] | None = None,
    lookahead: int = 6,
    figures: bool = True,
    progress: bool = False,
) -> Evaluation:
    """Score the clips of a data set: the frames of each scene, in the data set's order. Raises DataError: the data set
    has no clips, or a prediction cannot be read.

    Args:
        align: how predictions are fitted to ground truth, once per clip.
        head: of a model that has several depth heads.
        stabilize: options of `Stabilizer`; None scores the maps as they are.
        lookahead: of a model with motion blocks: at 0 it sees earlier frames only, else windows.
        figures: draw those of a report.
    """
    scorer = ClipScorer(predictions, protocol, align, head, stabilize, lookahead, figures)
    with tqdm(total=len(data), desc="evaluate", unit="frame", disable=not progress) as bar:
        for name, indices in clips_of(data).items():
            scorer.add(name, partial(map, data.read, indices[: protocol.frames]), bar)
    inference = [inference_options(predictions)] if isinstance(predictions, Predictor) else []
    return Evaluation(results=[scorer.scores()], data=data, inference=inference)


def evaluate_video_files(
    predictor: Predictor,
    paths: Sequence[str],
    *,
    head: str | None = None,
    stabilize: Mapping[str, Any] | None = None,
    lookahead: int = 6,
    figures: bool = True,
    fps: float = 30.0,
    limit: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Score the consistency of videos and folders of frames without ground truth: opw, rtc and flicker.

    Maps without unit are divided by the median of the clip's first. `limit`: at most n frames of a video, its
    first ones. Raises DataError: a video cannot be read, or is a camera, which cannot be read twice.
    """
    problems: dict[str, None] = {}
    protocol = VideoProtocol(name="videos", range=(1e-6, float("inf")))
    scorer = ClipScorer(predictor, protocol, "none", head, stabilize, lookahead, figures, has_truth=False)
    for path, name in zip(paths, tell_apart([Path(path).stem for path in paths], paths), strict=True):
        source = open_video(path, fps)
        if isinstance(source, LiveCamera):
            raise DataError(f"{path}: a camera's frames cannot be read twice; record a video, and score that.")
        total = source.length() if limit is None else min(limit, source.length() or limit)
        with tqdm(desc=Path(path).stem, unit="frame", total=total, disable=not progress) as bar:
            scorer.add(name, partial(frames_of, source, limit), bar)
        problems |= dict.fromkeys(f"{path}: {problem}" for problem in source.problems)
    inference = [inference_options(predictor)]
    return Evaluation(results=[scorer.scores()], problems=tuple(problems), inference=inference)


def frames_of(source: VideoSource, limit: int | None) -> Iterator[Sample]:
    for number, frame in enumerate(islice(source.frames(), limit)):
        yield Sample(name=str(number), image=frame.image)


@dataclass
class ClipScorer:
    """Predicts and scores clips, one after another.

    Attributes:
        has_truth: of videos without, maps without unit are divided by the median of the clip's first.
    """

    predictions: Predictor | DepthMaps
    protocol: VideoProtocol
    align: Align
    head: str | None
    stabilize: Mapping[str, Any] | None
    lookahead: int
    figures: bool
    has_truth: bool = True
    rows: list[tuple[str, Row]] = field(default_factory=list)
    shown: list[ClipFigures] = field(default_factory=list)

    def __post_init__(self) -> None:
        if isinstance(self.predictions, Predictor):
            self.head = depth_head(self.predictions, self.head)

    def add(self, name: str, frames: Frames, bar: tqdm) -> None:
        """Keep the maps of a clip on disk, since they are read twice and may not fit into memory; score them."""
        kind = kind_of(self.predictions, self.head)

        def samples() -> Iterator[Sample]:
            for sample in frames():
                scored = sample.depth_kind in scored_kinds(kind)
                yield sample if scored else replace(sample, depth=None, valid=None)

        with tempfile.TemporaryDirectory(prefix="densevit-video-") as temporary:
            folder = Path(temporary)
            for number, values in enumerate(self.maps(samples(), kind, bar)):
                np.save(folder / f"{number}.npy", np.asarray(values, np.float32))
            unit = np.float32(1)
            if not self.has_truth and kind != "metric" and (folder / "0.npy").exists():
                unit = np.float32(max(float(np.nanmedian(np.load(folder / "0.npy"))), 1e-9))

            def predicted() -> Iterator[ClipFrame]:
                for number, sample in enumerate(samples()):
                    yield ClipFrame(
                        name=sample.name, image=sample.image, prediction=np.load(folder / f"{number}.npy") / unit,
                        depth=sample.depth, valid=sample.valid, intrinsics=self.intrinsics(sample), pose=sample.pose,
                    )  # fmt: skip

            with located(name):
                row = score_clip(predicted, self.protocol, self.align, kind)
            self.rows.append((name, row))
            if self.figures:
                move = fit_clip(predicted, self.protocol, self.align, kind) if self.has_truth else lambda values: values
                unit_shown = " m" if self.has_truth or kind == "metric" else ""
                self.shown.append(draw(name, row, predicted, move, unit_shown))

    def intrinsics(self, sample: Sample) -> Matrix | None:
        if isinstance(self.predictions, Predictor):
            return intrinsics_of(self.predictions, sample)
        return sample.intrinsics

    def maps(self, samples: Iterator[Sample], kind: Kind, bar: tqdm) -> Iterator[Map]:
        """Yield the map of each frame, stabilised where that is asked for."""
        first = [*islice(samples, 1)]
        matrix = self.intrinsics(first[0]) if first else None

        def pairs() -> Iterator[tuple[Any, Map]]:
            for sample, values in self.predicted(chain(first, samples)):
                yield sample.image, at_size_of(sample, np.asarray(values))
                bar.update()

        if self.stabilize is None:
            return (values for _, values in pairs())
        limits = None
        if isinstance(self.predictions, Predictor):
            limits = self.predictions.card.outputs[self.predictions.card.head(self.head)].metres
        focal = None if matrix is None else float(matrix[0, 0])
        return stabilize_stream(pairs(), Stabilizer(kind, focal=focal, limits=limits, **self.stabilize))

    def predicted(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, Map]]:
        """Yield each frame of a clip with its prediction."""
        predictions = self.predictions
        if not isinstance(predictions, Predictor):
            return ((sample, read_with_gaps(predictions, sample.name)) for sample in samples)
        predict = partial(predict_frames, predictions, head=self.head, lookahead=self.lookahead)
        return paired(samples, lambda each: predict(input_of(predictions, sample) for sample in each))

    def scores(self) -> VideoScores:
        return VideoScores(self.rows, self.protocol, self.align, self.shown)


def kind_of(predictions: Predictor | DepthMaps, head: str | None) -> Kind:
    """Return what the maps are: metric, affine or disparity."""
    if not isinstance(predictions, Predictor):
        return predictions.kind
    return predictions.card.outputs[depth_head(predictions, head)].kind


def depth_head(predictor: Predictor, head: str | None) -> str:
    """Return the head that is named, else the one that gives depth. Raises ConfigError: none or several do."""
    return predictor.card.head_of(DEPTH_KINDS, head, "--task video")


def clips_of(data: Dataset) -> dict[str, list[int]]:
    """Map each clip to its frames, by scene and folder. Raises DataError: the frames of a scene do not follow
    each other in time."""
    if getattr(data, "fps", 1) is None:
        raise DataError("these rooms are single views, not walks; make walks by prepare_rooms.py --fps 15.")
    clips = videos(data)
    if max(map(len, clips.values())) < 2:
        raise DataError("no clip: every scene has one frame.")
    return {name: indices for name, indices in clips.items() if len(indices) > 1}


def at_size_of(sample: Sample, values: Map) -> Map:
    """Return a map at the size of the ground truth, or of the image."""
    size = sample.image.shape[:2] if sample.depth is None else sample.depth.shape
    h, w = int(size[0]), int(size[1])
    return np.asarray(paste_or_resize(values, (h, w), (0, h, 0, w), "borders")[0], np.float32)
