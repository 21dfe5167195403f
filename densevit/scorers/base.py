"""What every evaluation has, whatever was predicted: scores, intervals, a table, a report."""

import html
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from densevit.data.datasets.base import Dataset
from densevit.data.fields import FIELDS
from densevit.evaluation.scores import Scores, tables
from densevit.inference.camera import as_camera
from densevit.inference.image_input import ImageInput
from densevit.inference.predictor import Predictor
from densevit.ops.geometry import Matrix, pinhole
from densevit.reporting.figures import Figure
from densevit.reporting.tables import Interval
from densevit.structures import Box, Row, Sample
from densevit.utils.output import tqdm

T = TypeVar("T")
Window = Callable[[int, int], Box | None]
"""`window` of a predictor."""


def input_of(predictor: Predictor, sample: Sample) -> ImageInput:
    """Return the image of a sample with its camera: the predictor's override, else that of the data; and with what else
    the model takes beside images."""
    size = (sample.image.shape[0], sample.image.shape[1])
    names = sample.inputs.keys() & getattr(predictor.model, "input_names", ())
    inputs = {name: FIELDS[name].stack([sample.inputs[name]], size) for name in names}
    return ImageInput(sample.image, predictor.cameras.of_data(sample.intrinsics, size), inputs=inputs)


def intrinsics_of(predictor: Predictor, sample: Sample) -> Matrix | None:
    """Return the camera that the predictor takes for all images, else that of the data."""
    size = sample.image.shape[:2]
    focal = predictor.cameras.of_size(size)
    return sample.intrinsics if focal is None else pinhole(*as_camera(focal, size).values[0].tolist())


def window_of(predictor: Predictor) -> Window | None:
    """Return the part of images that the model sees: that of the predictor, or of an ONNX file that has one."""
    box: Box | None = getattr(predictor.model, "box", None)
    return predictor.window if box is None else lambda _h, _w: box


def seen(window: Window | None, sample: Sample) -> Sample:
    """Return the sample with the ground truth of the part of the image that a predictor's window shows the model."""
    if window is None:
        return sample
    names = ("depth", "valid", "labels", "segments", "normals")
    truth = {name: value for name in names if (value := getattr(sample, name)) is not None}
    for name, value in truth.items():
        if (box := window(value.shape[0], value.shape[1])) is not None:
            part = slice(box[0], box[1]), slice(box[2], box[3])
            truth[name] = np.full_like(value, FIELDS[name].fill)
            truth[name][part] = value[part]
    return sample.with_arrays(truth)


DrawImage = Callable[[Any, int, str, Row], Figure]
"""Scores of the data, and position, label and scores of an image -> its figure; the image is predicted once more."""


def predictions_of(
    samples: Iterable[Sample], total: int, predict: Callable[[Sample], T], seconds: list[float], progress: bool = True
) -> Iterator[tuple[Sample, T]]:
    """Yield each sample with its prediction, behind a bar; append the time of each to `seconds`."""
    for sample in tqdm(samples, desc="evaluate", unit="image", total=total, delay=1, disable=not progress):
        start = perf_counter()
        prediction = predict(sample)
        seconds.append(perf_counter() - start)
        yield sample, prediction


def inference_options(predictor: Predictor) -> dict[str, Any]:
    """Return how a predictor makes its maps, as reports record it."""
    return {
        "precision": predictor.precision,
        "flip": predictor.flip or predictor.card.resize.flip,
        "scales": list(predictor.scales),
        "tiling": predictor.tiling and vars(predictor.tiling),
        "window_size": predictor.card.resize.window,
        "stride": predictor.card.resize.stride,
    }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of one set of predictions for a data set; `print` shows them, `report` writes them.

    Attributes:
        results: the scores, one per protocol.
        data: the images and their ground truth.
        draw: the figures of a report; None for videos, whose scores have figures of their own.
        inference: how the model made the maps of each of `results`; empty for saved maps.
        seconds: that the model took for each image; empty for saved maps.
        card: the checkpoint's description of itself; empty for saved maps.
        title: of the report.
        source: what was evaluated and how, as plain values; goes into metrics.json.
        problems: what could not be read, so that the scores are those of the rest.
        warning: what makes the numbers doubtful: images of the training, saved maps of another
            unit, lenses that training did not show; or "".
        baselines: what the data of the training reaches without a model; or "".
    """

    results: Sequence[Scores] = field(repr=False)
    data: Dataset | None = field(default=None, repr=False)
    draw: DrawImage | None = field(default=None, repr=False)
    inference: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    seconds: Sequence[float] = field(default=(), repr=False)
    card: Mapping[str, Any] = field(default_factory=dict, repr=False)
    title: str = ""
    source: Mapping[str, Any] = field(default_factory=dict, repr=False)
    problems: Sequence[str] = ()
    warning: str = ""
    baselines: str = ""

    @property
    def scores(self) -> Row:
        """Metric -> value over the data set; with several protocols `PROTOCOL/METRIC`."""
        return {prefix + key: value for prefix, scores in self._named() for key, value in scores.mean.items()}

    @property
    def intervals(self) -> Mapping[str, Interval]:
        """Metric -> ends of its 95% bootstrap interval over images; empty for few images."""
        return {
            prefix + key: ends
            for prefix, scores in self._named()
            for key, ends in scores.intervals.items()
            if key in scores.mean
        }

    @property
    def per_image(self) -> Sequence[tuple[str, Row]]:
        """Name and scores of each image that was scored, under the first protocol."""
        return self.results[0].rows

    @property
    def per_class(self) -> Mapping[str, Row]:
        """Class -> its scores; empty for tasks without classes."""
        return self.results[0].per_class()

    def _named(self) -> list[tuple[str, Scores]]:
        several = len(self.results) > 1
        return [(f"{scores.name}/" if several else "", scores) for scores in self.results]

    def summary(self) -> str:
        """Return the scores as a table for a terminal."""
        table = tables(self.results) if len(self.results) > 1 else self.results[0].table()
        warnings = (f"warning: {text}" for text in (*self.problems, self.warning) if text)
        return "\n\n".join([table, *filter(None, [self.baselines]), *warnings])

    @property
    def exit_code(self) -> int:
        """Of `densevit eval`: 3 if a part of the data could not be read."""
        return 3 if self.problems else 0

    def report(self, folder: str | Path) -> list[Path]:
        """Write metrics.json, tables as CSV and report.html, with several protocols a folder for each. Returns their
        paths. Raises StorageError: the folder cannot be made or written to."""
        times = {"prediction, per image": sum(self.seconds) / len(self.seconds)} if self.seconds else {}
        written = []
        for number, (prefix, scores) in enumerate(self._named()):
            directory = Path(folder) / prefix
            applied: dict[str, Any] = {"inference": dict(self.inference[number])} if self.inference else {}
            applied |= {"problems": list(self.problems)} if self.problems else {}
            applied |= {"warning": self.warning} if self.warning else {}
            written += scores.write(directory, source={**self.source, **applied})
            warning = "; ".join(filter(None, (*self.problems, self.warning)))
            page = scores.write_page(
                directory / "report.html", title=self.title, figures=self.figures(scores), warning=warning, times=times,
                card=self.card, inference=applied.get("inference", {}),
            )  # fmt: skip
            written.append(page)
        return written

    def figures(self, scores: Scores | None = None, labels: Container[str] | None = None) -> list[Figure]:
        """Return figures of the best, the median and the worst images, which are predicted once more.

        Args:
            scores: the scores under one protocol; default: the first.
            labels: of `Scores.examples`, the images to show; None shows all.
        """
        if self.draw is None or self.data is None:
            return []
        scores = scores or self.results[0]
        rows = dict(scores.rows)
        indices = {name: index for index, name in enumerate(self.data.names)}
        shown = {label: name for label, name in scores.examples().items() if labels is None or label in labels}
        return [self.draw(scores, indices[name], label, rows[name]) for label, name in shown.items()]

    def __str__(self) -> str:
        if not self.seconds:
            return self.summary()
        milliseconds = 1000 * sum(self.seconds) / len(self.seconds)
        return f"{self.summary()}\n{milliseconds:.1f} ms per image for the prediction."

    def _repr_html_(self) -> str:
        """Return the scores as Jupyter shows them."""
        rows = ""
        for name, value in self.scores.items():
            low, high = self.intervals.get(name, (None, None))
            spread = "" if low is None else f"{low:.4f} to {high:.4f}"
            rows += f"<tr><td>{html.escape(name)}</td><td>{value:.4f}</td><td>{spread}</td></tr>"
        head = "<tr><td></td><th>score</th><th>95% over images</th></tr>" if self.intervals else ""
        return f"<b>{html.escape(self.title)}</b><table>{head}{rows}</table>"
