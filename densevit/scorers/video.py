"""Video evaluation: a predictor or saved depth maps, the clips of a data set or films -> scores."""

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset
from densevit.data.io.video import LiveCamera, VideoFrame, open_video
from densevit.data.loading.clips import videos
from densevit.data.predictions import SavedMaps
from densevit.errors import DataError
from densevit.evaluation.depth.preprocess import paste_or_resize
from densevit.evaluation.video.clip import Align, ClipFrame, VideoProtocol, fit_clip, score_clip
from densevit.evaluation.video.scores import ClipPictures, VideoScores, draw
from densevit.inference.predictor import Predictor
from densevit.inference.video.predict import predict_frames
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream
from densevit.model_card import Kind
from densevit.output_kinds import DEPTH_KINDS
from densevit.scorers.base import Evaluation, inference_options, input_of
from densevit.structures import Row, Sample
from densevit.utils.progress import tqdm

Map = Float32[np.ndarray, "h w"]
Frame = TypeVar("Frame", Sample, VideoFrame)


def evaluate_video(
    predictions: Predictor | SavedMaps,
    data: Dataset,
    protocol: VideoProtocol,
    align: Align,
    *,
    head: str | None = None,
    stabilize: Mapping[str, Any] | None = None,
    lookahead: int = 6,
    pictures: bool = True,
    progress: bool = False,
) -> Evaluation:
    """Scores the clips of a data set: the frames of each scene, in the data set's order.

    Args:
        align: how predictions are fitted to ground truth, once per clip.
        head: of a model that has several depth heads.
        stabilize: options of `Stabilizer`; None scores the maps as they are.
        lookahead: of a model with motion blocks: at 0 it sees earlier frames only, else windows.
        pictures: make those of a report.

    Raises:
        DataError: the data set has no clips, or a prediction cannot be read.
    """
    kind = kind_of(predictions, head)
    found: list[tuple[str, Row]] = []
    shown: list[ClipPictures] = []
    bar = tqdm(total=len(data), desc="evaluate", unit="frame", disable=not progress)
    for name, indices in clips_of(data).items():
        indices = indices[: protocol.frames]

        def samples(chosen: Sequence[int] = indices) -> Iterator[Sample]:
            return map(data.read, chosen)

        def predicted(chosen: Sequence[int] = indices) -> Iterator[tuple[Any, Map]]:
            for pair in predict_clip(predictions, samples(chosen), head, lookahead):
                yield pair
                bar.update()

        with tempfile.TemporaryDirectory(prefix="densevit-video-") as folder:
            save_maps(predicted(), Path(folder), make_stabilizer(predictions, kind, head, stabilize))

            def frames(place: Path = Path(folder), chosen: Sequence[int] = indices) -> Iterator[ClipFrame]:
                for number, sample in enumerate(samples(chosen)):
                    yield ClipFrame(
                        name=sample.name, image=sample.image, prediction=np.load(place / f"{number}.npy"),
                        depth=sample.depth, valid=sample.valid, intrinsics=sample.intrinsics, pose=sample.pose,
                    )  # fmt: skip

            row = score_clip(frames, protocol, align, kind)
            found.append((name, row))
            if pictures:
                shown.append(draw(name, row, frames, fit_clip(frames, protocol, align, kind)))
    bar.close()
    inference = [inference_options(predictions)] if isinstance(predictions, Predictor) else []
    return Evaluation(results=[VideoScores(found, protocol, align, shown)], data=data, inference=inference)


def evaluate_films(
    predictor: Predictor,
    films: Sequence[str],
    *,
    head: str | None = None,
    stabilize: Mapping[str, Any] | None = None,
    lookahead: int = 6,
    pictures: bool = True,
    fps: float = 30.0,
    limit: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Scores the consistency of films and folders of frames without ground truth: opw, rtc and flicker.

    Maps without unit are divided by the median of the clip's first.

    Args:
        limit: at most so many frames of a film, its first ones.

    Raises:
        DataError: a film cannot be read, or is a camera, which cannot be read twice.
    """
    kind = kind_of(predictor, head)
    found: list[tuple[str, Row]] = []
    shown: list[ClipPictures] = []
    problems: dict[str, None] = {}
    protocol = VideoProtocol(name="films", range=(1e-6, float("inf")))
    for film in films:
        source = open_video(film, fps)
        if isinstance(source, LiveCamera):
            raise DataError(f"{film}: a camera's frames cannot be read twice; record a film, and score that.")
        name = Path(film).stem
        with tempfile.TemporaryDirectory(prefix="densevit-video-") as folder:
            total = source.length() if limit is None else min(limit, source.length() or limit)
            bar = tqdm(islice(source.frames(), limit), desc=name, unit="frame", total=total, disable=not progress)

            def predicted(frames: Iterable[VideoFrame] = bar) -> Iterator[tuple[Any, Map]]:
                shown: deque[VideoFrame] = deque()
                images = (kept(frame, shown).image for frame in frames)
                for values in predict_frames(predictor, images, head=head, lookahead=lookahead):
                    yield shown.popleft().image, values

            save_maps(predicted(), Path(folder), make_stabilizer(predictor, kind, head, stabilize))
            first = (
                np.load(Path(folder) / "0.npy") if (Path(folder) / "0.npy").exists() else np.ones((1, 1), np.float32)
            )
            unit = np.float32(1.0 if kind == "metric" else max(float(np.median(first)), 1e-9))

            def frames(place: Path = Path(folder), source: Any = source, unit: Any = unit) -> Iterator[ClipFrame]:
                for number, frame in enumerate(islice(source.frames(), limit)):
                    yield ClipFrame(
                        name=str(number), image=frame.image, prediction=np.load(place / f"{number}.npy") / unit
                    )

            row = score_clip(frames, protocol, "none", kind)
            found.append((name, row))
            problems |= dict.fromkeys(f"{film}: {problem}" for problem in source.problems)
            if pictures:
                shown.append(draw(name, row, frames, lambda values: values))
    scores, inference = VideoScores(found, protocol, "none", shown), [inference_options(predictor)]
    return Evaluation(results=[scores], problems=tuple(problems), inference=inference)


def kind_of(predictions: Predictor | SavedMaps, head: str | None) -> Kind:
    """What the maps are: metric, affine or disparity."""
    if isinstance(predictions, SavedMaps):
        return predictions.kind
    return predictions.card.outputs[predictions.card.head_for(DEPTH_KINDS, [head] if head else [])].kind


def clips_of(data: Dataset) -> dict[str, list[int]]:
    """Clip -> its frames, by scene and folder.

    Raises:
        DataError: the frames of a scene do not follow each other in time.
    """
    if getattr(data, "fps", 1) is None:
        raise DataError("these rooms are single views, not walks; make walks by prepare_rooms.py --fps 15.")
    found = videos(data)
    if max(map(len, found.values())) < 2:
        raise DataError("no clip: every scene has one frame.")
    return {name: indices for name, indices in found.items() if len(indices) > 1}


def predict_clip(
    predictions: Predictor | SavedMaps, samples: Iterator[Sample], head: str | None, lookahead: int
) -> Iterator[tuple[Any, Map]]:
    """Each frame of a clip with its prediction, at the size of the ground truth, or of the image."""
    if isinstance(predictions, SavedMaps):
        for sample in samples:
            yield sample.image, at_size_of(sample, predictions.read(sample.name))
        return
    waiting: deque[Sample] = deque()
    images = (input_of(predictions, kept(sample, waiting)) for sample in samples)
    for values in predict_frames(predictions, images, head=head, lookahead=lookahead):
        sample = waiting.popleft()
        yield sample.image, at_size_of(sample, np.asarray(values))


def kept(frame: Frame, frames: deque[Frame]) -> Frame:
    """The frame, which is also put with those that wait for their maps."""
    frames.append(frame)
    return frame


def at_size_of(sample: Sample, values: Map) -> Map:
    size = sample.image.shape[:2] if sample.depth is None else sample.depth.shape
    h, w = int(size[0]), int(size[1])
    return np.asarray(paste_or_resize(values, (h, w), (0, h, 0, w), "borders")[0], np.float32)


def make_stabilizer(
    predictions: Predictor | SavedMaps, kind: Kind, head: str | None, options: Mapping[str, Any] | None
) -> Stabilizer | None:
    if options is None:
        return None
    limits = None if isinstance(predictions, SavedMaps) else predictions.card.outputs[predictions.card.head(head)].range
    return Stabilizer(kind, limits=limits, **options)


def save_maps(pairs: Iterator[tuple[Any, Map]], folder: Path, stabilizer: Stabilizer | None) -> None:
    """Keeps the maps of a clip on disk: they are read twice, and a long clip would not fit into memory."""
    maps = (values for _, values in pairs) if stabilizer is None else stabilize_stream(pairs, stabilizer)
    for number, values in enumerate(maps):
        np.save(folder / f"{number}.npy", np.asarray(values, np.float32))
