"""Films through a model with motion blocks: windows, how they are joined, and cuts; streams of a camera, latency."""

import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from films import frame, write_frames
from shell import Shell
from toy_models import MeanColour, fp32, toy_network, toy_predictor

from densevit.errors import ConfigError, DataError, Preempted
from densevit.inference.camera import Lens
from densevit.inference.forward import forward
from densevit.inference.image_input import ImageInput
from densevit.inference.predict.output_plan import Existing
from densevit.inference.predictor import Predictor
from densevit.inference.video import export
from densevit.inference.video import predict as video_predict
from densevit.inference.video.clips import ClipPlan, find_clips
from densevit.inference.video.formats import CLIP_FORMATS
from densevit.inference.video.predict import Latency, predict_frames, predict_video
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream
from densevit.inference.video.windows import ClipWindows, fit
from densevit.model_card import HeadSpec, Kind, ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import EncoderOutput
from densevit.weights import checkpoint

SIZE = (48, 64)


class Recorder:
    """Predicts a frame's number of pixels shifted, in a scale and shift of each window; remembers what windows held."""

    def __init__(self, scales: Sequence[float] = (1.0,)) -> None:
        self.calls: list[list[int]] = []
        self.scales = scales
        self.number = 0

    def __call__(
        self, frames: Sequence[ImageInput], known: Sequence[EncoderOutput]
    ) -> tuple[list[dict[str, np.ndarray]], list[EncoderOutput]]:
        old = [int(features.maps[0]) for features in known]
        new = list(range(self.number, self.number + len(frames) - len(old)))
        self.number += len(new)
        scale = self.scales[len(self.calls) % len(self.scales)]
        self.calls.append(old + new)
        ramp = np.linspace(1, 2, SIZE[0] * SIZE[1], dtype=np.float32).reshape(SIZE)
        maps = [{"depth": np.float32(scale) * (ramp + np.float32(i)) + np.float32(scale - 1)} for i in old + new]
        return maps, [EncoderOutput((torch.full((1, 1, 1, 1), float(i)),), (), SIZE) for i in new]


def run(windows: ClipWindows, count: int) -> tuple[list[np.ndarray], list[int]]:
    """The maps of a film of so many frames, and how many had come after each of them."""
    maps, came = [], []
    for i in range(count):
        maps += [found["depth"] for found in windows.push(ImageInput(frame(i, SIZE)))]
        came.append(len(maps))
    maps += [found["depth"] for found in windows.flush()]
    return maps, came


def test_a_window_holds_two_key_frames_and_the_last_ones_of_before() -> None:
    model = Recorder()
    maps, _ = run(ClipWindows(model, 8, {"depth": "metric"}), 18)
    assert model.calls == [
        [*range(8)],
        [0, 3, 4, 5, 6, 7, 8, 9],
        [0, 5, 6, 7, 8, 9, 10, 11],
        [0, 7, 8, 9, 10, 11, 12, 13],
        [0, 9, 10, 11, 12, 13, 14, 15],
        [0, 11, 12, 13, 14, 15, 16, 17],
    ]
    assert [round(float(m[0, 0])) for m in maps] == [1 + i for i in range(18)]


def test_video_depth_anythings_window_is_32_frames_of_which_22_are_new() -> None:
    model = Recorder()
    run(ClipWindows(model, 32, {"depth": "metric"}), 54)
    assert model.calls[1] == [0, 12, *range(24, 54)]


def test_maps_without_unit_keep_the_scale_and_shift_of_the_first_window() -> None:
    steady, _ = run(ClipWindows(Recorder(), 8, {"depth": "disparity"}), 17)
    for kind in ("disparity", "affine"):
        maps, _ = run(ClipWindows(Recorder((1, 3, 0.5)), 8, {"depth": kind}), 17)  # type: ignore[dict-item]
        for found, expected in zip(maps, steady, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4)
    jumping, _ = run(ClipWindows(Recorder((1, 3)), 8, {"depth": "metric"}), 10)
    assert jumping[9].mean() > 2 * steady[9].mean()  # metres are not touched


@pytest.mark.parametrize("kind", ["metric", "uncertainty"])
def test_overlapping_frames_fade_from_one_window_to_the_next(kind: Kind) -> None:
    maps, _ = run(ClipWindows(Recorder((1, 4)), 16, {"depth": kind}), 26)
    ramp = maps[0]
    for i, share in ((11, 0), (12, 1 / 5), (13, 2 / 5), (15, 4 / 5), (16, 1)):
        expected = (1 - share) * (ramp + i) + share * (4 * (ramp + i) + 3)
        np.testing.assert_allclose(maps[i], expected, rtol=1e-5)


@pytest.mark.parametrize(("frames", "held"), [(2, [0, 1, 2, 3]), (5, [0, 2, 3, 4, 5])])
def test_causally_a_map_comes_before_the_next_frame_is_taken(frames: int, held: list[int]) -> None:
    model = Recorder()
    maps, came = run(ClipWindows(model, frames, {"depth": "metric"}, causal=True), 6)
    assert came == [1, 2, 3, 4, 5, 6] and len(maps) == 6
    assert model.calls[0] == [0] and model.calls[-1] == ([4, 5] if frames == 2 else held)


def test_a_cut_and_another_size_begin_anew() -> None:
    model = Recorder()
    windows = ClipWindows(model, 6, {"depth": "metric"})
    other = [frame(i, SIZE, seed=9) // np.array([1, 3, 9], np.uint8) for i in range(3)]
    films = [frame(i, SIZE) for i in range(4)] + other + [frame(0, (40, 64))]
    count = sum(len(windows.push(ImageInput(image))) for image in films) + len(windows.flush())
    assert count == 8 and model.calls == [[0, 1, 2, 3], [4, 5, 6], [7]]


def test_a_fast_turn_that_flow_cannot_follow_is_no_cut() -> None:
    model = Recorder()
    windows = ClipWindows(model, 6, {"depth": "metric"})
    for i in range(3):
        windows.push(ImageInput(frame(60 * i, SIZE)))  # 4 of 64 pixels are seen in the next frame, too
    windows.flush()
    assert model.calls == [[0, 1, 2]]


def test_the_fit_leaves_out_what_is_not_known_and_never_turns_a_map_over() -> None:
    x = np.array([[1.0, 2, np.nan, 4]], np.float32)
    assert fit([x], [3 * x + 1]) == pytest.approx((3, 1))
    assert fit([x], [-x])[0] == 1.0
    assert fit([x * np.float32(np.nan)], [x]) == (1.0, 0.0)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    vit = {"type": "vit", "dim": 32, "depth": 4, "heads": 2, "patch_size": 16, "image_size": 32}
    model, card = toy_network(
        {"depth": {"type": "metric", "hidden": 8}}, {"type": "dpt", "channels": 16},
        PreprocessConfig(mode="fixed", size=(32, 48)), std=None, encoder=vit, conditioning={"motion": {"frames": 4}},
    )  # fmt: skip
    for block in model.get_submodule("conditioning.motion.blocks").children():
        torch.nn.init.normal_(block.proj_out.weight, std=0.2)
    return fp32((model, card))


def test_a_window_is_one_pass_of_the_model_and_single_images_are_none(predictor: Predictor) -> None:
    images = [frame(2 * i, SIZE) for i in range(4)]
    streamed = list(predict_frames(predictor, images, lookahead=4))
    batch, clips = predictor.to_tensor(np.stack(images)), {"clips": torch.tensor([[0, 1, 2, 3]])}
    with torch.inference_mode():
        clip = forward(predictor.model, batch, predictor.card.resize, 16, clips)["depth"]
    np.testing.assert_allclose(np.stack(streamed), clip[:, 0].numpy(), rtol=1e-4)
    alone = np.stack(predictor(images))
    assert not np.allclose(alone, np.stack(streamed), rtol=1e-3)
    first = next(predict_frames(predictor, iter(images)))  # causal
    np.testing.assert_allclose(first, alone[0], rtol=1e-5)
    assert len(list(predict_frames(predictor, images * 3, lookahead=4, stabilize=True))) == 12


@pytest.mark.parametrize("causal", [True, False])
def test_frames_of_a_clip_keep_their_own_cameras(predictor: Predictor, causal: bool) -> None:
    """All had the camera of the first, after a zoom and at other sizes, too."""
    depth = replace(predictor.card.outputs["depth"], focal=50.0, range=None)
    canonical = fp32((predictor.model, replace(predictor.card, outputs={"depth": depth})), camera=50.0)
    images = [frame(i, SIZE) for i in range(4)] + [frame(0, (96, 128))]
    focals = (50.0, 50.0, 100.0, 25.0, 100.0)
    zoomed = [ImageInput(image, focal) for image, focal in zip(images, focals, strict=True)]
    found, plain = (list(predict_frames(canonical, given, lookahead=4 * (not causal))) for given in (zoomed, images))
    for metres, same, focal in zip(found, plain, focals, strict=True):
        np.testing.assert_allclose(metres, same * focal / 50, rtol=1e-5)


def test_what_cannot_see_clips_is_refused(predictor: Predictor) -> None:
    flipping = Predictor(predictor.model, predictor.card, device="cpu", precision="fp32", flip=True)
    measured = ImageInput(np.zeros((16, 16, 3), np.uint8), points=np.ones((16, 16)))
    with pytest.raises(ConfigError, match="points: for single images"):
        next(predict_frames(predictor, [measured]))
    with pytest.raises(ConfigError, match="flip: for single images"):
        next(predict_frames(flipping, [frame(0, SIZE)]))


def test_an_export_that_was_stopped_goes_on_to_the_same_bytes(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "SEGMENT", 4)
    film = write_frames(tmp_path / "film", [frame(2 * i, SIZE) for i in range(11)])

    def run(name: str, existing: Existing, stop: threading.Event | None = None) -> int:
        formats = {"npz_clip": CLIP_FORMATS.check({"type": "npz_clip"}, "format").build()}
        plan = ClipPlan(find_clips([str(film)], 10), {}, formats, tmp_path / name)
        return export.ClipExporter(predictor, plan, existing=existing, stop=stop or threading.Event()).export().already

    run("whole", "refuse")
    stop, predict = threading.Event(), video_predict.predict_clip
    calls: list[int] = []

    def stopping(predictor: Predictor, frames: Any, features: Any, **options: Any) -> Any:
        calls.append(len(frames))
        if len(calls) == 6:
            stop.set()
        return predict(predictor, frames, features, **options)

    with monkeypatch.context() as patched, pytest.raises(Preempted):
        patched.setattr(video_predict, "predict_clip", stopping)
        run("cut", "refuse", stop)
    assert run("cut", "resume") >= 4
    found, expected = (np.load(tmp_path / name / "film.depth.npz")["depth"] for name in ("cut", "whole"))
    assert len(expected) == 11 and np.array_equal(found, expected)


@pytest.mark.slow
def test_commands_use_the_windows(predictor: Predictor, tmp_path: Path, shell: Shell) -> None:
    images = [frame(2 * i, SIZE) for i in range(9)]
    film = write_frames(tmp_path / "film", images)
    predictor.save_pretrained(tmp_path / "model")
    words = [tmp_path / "model", "--device", "cpu", "--precision", "fp32"]
    shell("predict", *words, film, "--formats", "npz_clip", "--output", tmp_path / "maps")
    written = np.load(tmp_path / "maps/film.depth.npz")["depth"]
    images = [np.asarray(frame.image) for frame in predict_video(predictor, film)]
    streamed = np.stack(list(predict_frames(predictor, images, lookahead=1)))
    np.testing.assert_allclose(written, streamed, rtol=1e-4)
    for more in ([], ["--lookahead", "0"]):
        assert "flicker" in shell("eval", "--task", "video", *words, "--videos", film, *more).out
    assert checkpoint.has_card(tmp_path / "model/model.safetensors")


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
        for depth, image in zip(maps, GOOD, strict=True):
            np.testing.assert_array_equal(depth, predictor(image))


def test_a_field_of_view_holds_for_frames_of_another_size_too() -> None:
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric", focal=50.0)}, multiple=1)
    predictor = fp32((MeanColour(), card), camera=Lens(fov=60.0))
    frames = [GOOD[0], GOOD[0].repeat(2, 0).repeat(2, 1), GOOD[1]]
    for depth, image in zip(predict_frames(predictor, frames), frames, strict=True):
        np.testing.assert_array_equal(depth, predictor(image))


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
