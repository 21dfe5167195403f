"""Streams of a camera: frames that are no images, and how long maps take."""

import logging
import sys
from time import sleep

import numpy as np
import pytest
from toy_models import MeanColour, fp32, toy_predictor

from densevit.errors import DataError
from densevit.inference.camera import Lens
from densevit.inference.image_input import ImageInput
from densevit.inference.video.predict import Latency, predict_frames
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream
from densevit.model_card import HeadSpec, Kind, ModelCard

GOOD = [np.full((24, 32, 3), value, np.uint8) for value in (60, 120, 180)]
BAD = np.zeros((0, 0, 3), np.uint8)


@pytest.mark.parametrize("stabilize", [False, True])
def test_a_stream_goes_on_after_bad_frames_where_asked(stabilize: bool, caplog: pytest.LogCaptureFixture) -> None:
    predictor = toy_predictor()
    frames = [BAD, *GOOD[:2], BAD, GOOD[2]]
    with pytest.raises(DataError):
        list(predict_frames(predictor, frames, stabilize=stabilize))
    with caplog.at_level(logging.WARNING):
        maps = list(predict_frames(predictor, frames, stabilize=stabilize, skip_bad=True))
    assert len(maps) == 3 and [i for i in range(5) if f"frame {i} is left out" in caplog.text] == [0, 3]
    if not stabilize:
        for depth, frame in zip(maps, GOOD, strict=True):
            np.testing.assert_array_equal(depth, predictor(frame))


def test_a_field_of_view_holds_for_frames_of_another_size_too() -> None:
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric", focal=50.0)}, multiple=1)
    predictor = fp32((MeanColour(), card), camera=Lens(fov=60.0))
    frames = [GOOD[0], GOOD[0].repeat(2, 0).repeat(2, 1), GOOD[1]]
    for depth, frame in zip(predict_frames(predictor, frames), frames, strict=True):
        np.testing.assert_array_equal(depth, predictor(frame))


@pytest.mark.parametrize("kind", ["metric", "disparity"])
def test_maps_that_measured_points_bring_to_metres_are_stabilised_as_metres(kind: Kind) -> None:
    frames = [np.roll(np.linspace(0, 255, 24 * 32 * 3).astype(np.uint8).reshape(24, 32, 3), i, 1) for i in range(4)]
    rng, predictor = np.random.default_rng(0), toy_predictor(kind=kind)
    places = [rng.integers(0, 24, (9, 2)) for _ in frames]
    rise = 5 if kind == "metric" else -5  # with the colour; metres are over the 10 that the metric head can give
    metres = [30 + rise * f[at[:, 1], at[:, 0]].mean(1) / 255 for f, at in zip(frames, places, strict=True)]
    seen = [ImageInput(f, points=np.c_[at, m]) for f, at, m in zip(frames, places, metres, strict=True)]
    plain = predict_frames(predictor, seen)
    expected = list(stabilize_stream(zip(frames, plain, strict=True), Stabilizer("metric", future=2)))
    steadied = list(predict_frames(predictor, seen, stabilize=True, lookahead=2))
    np.testing.assert_array_equal(steadied, expected)
    assert np.median(steadied) > 20


def test_latency_is_that_of_the_stream_and_not_of_what_is_done_with_its_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    latency = Latency()
    for _ in latency.of(sleep(0.02) for _ in range(5)):
        sleep(0.1)
    assert len(latency.seconds) == 5 and 0.02 <= min(latency.seconds) < 0.1
    text = str(latency)
    assert text.startswith("5 maps: median ") and int(text.split("; ")[1].split(" MiB")[0].replace(",", "")) > 10
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert str(latency) == text.partition(";")[0]
