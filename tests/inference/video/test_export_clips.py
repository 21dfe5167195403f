"""Clips in, files out: whatever happens on the way, what is written is whole, and resuming gives the same bytes."""

import csv
import json
import shutil
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
import torch
from films import FakeCamera, frame, write_film, write_frames
from small import contents
from torch import Tensor, nn
from toy_models import fp32, toy_predictor

import densevit
from densevit.data.io.depth_video import read_depth_video
from densevit.data.io.readers import read_depth
from densevit.data.io.video import TimeSpan, VideoFile
from densevit.depth_corrections import Calibration
from densevit.errors import ConfigError, DataError, PartialError, Preempted
from densevit.inference.camera import Lens
from densevit.inference.predict.summary import Summary
from densevit.inference.predictor import Predictor
from densevit.inference.video import export as module
from densevit.inference.video.clips import ClipPlan, find_clips
from densevit.inference.video.export import ClipExporter
from densevit.inference.video.formats import CLIP_FORMATS
from densevit.inference.video.predict import predict_frames, predict_video
from densevit.inference.writers import DEPTH_FORMATS
from densevit.model_card import HeadSpec, Kind, ModelCard
from densevit.ops.normals import normals_of_map

COUNT = 20
FRAMES = [frame(2 * i) for i in range(COUNT)]


class Mean(nn.Module):
    """Depth is 1 + the mean colour, times a factor that flickers with the number of the call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        self.seen.append(len(image))
        flicker = 1 + 0.05 * (image[:, :, 0, 0].mean(1) * 1000 % 2)
        return {"depth": (1 + image.mean(1, keepdim=True)) * flicker[:, None, None, None]}


def predictor(kind: Kind = "metric", batch_size: int = 1) -> Predictor:
    return toy_predictor(Mean(), kind, batch_size=batch_size)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_film(tmp_path_factory.mktemp("films") / "film.mp4", FRAMES)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT", 6)


def plan(source: Path | str, output: Path, *formats: str, **options: Any) -> ClipPlan:
    clips = {n: CLIP_FORMATS.check({"type": n}, n).build() for n in formats if n in CLIP_FORMATS.components}
    writers = {n: DEPTH_FORMATS.check({"type": n}, n).build() for n in formats if n in DEPTH_FORMATS.components}
    return ClipPlan(find_clips([str(source)], 10), writers, clips, output, **options)


def export_clips(predictor: Predictor, plan: ClipPlan, **options: Any) -> Summary:
    return ClipExporter(predictor, plan, **options).export()


def test_every_format_holds_the_maps_of_a_film(film: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = export_clips(predictor(), plan(film, out, "mp4", "ffv1", "npz_clip", "h5_clip", "npy", "png16"))
    assert (summary.clips, summary.done, summary.failed) == (1, COUNT, {})
    images = [f.image for f in VideoFile(film).frames()]
    expected = np.stack(predictor()(images))
    times = np.arange(COUNT) / 10
    stored = np.load(out / "film.depth.npz")
    np.testing.assert_array_equal(stored["depth"], expected)
    np.testing.assert_allclose(stored["time"], times, atol=1e-4)
    with h5py.File(out / "film.depth.h5") as file:
        np.testing.assert_array_equal(file["depth"][:], expected)
        assert file["depth"].attrs["kind"] == "metric"
    found = list(read_depth_video(out / "film.depth.mkv"))
    np.testing.assert_allclose(np.stack([f.values for f in found]), expected, atol=0.5 / 1000 + 1e-5)
    np.testing.assert_allclose([f.time for f in found], times, atol=1e-3)
    np.testing.assert_array_equal(np.load(out / "film/000007.npy"), expected[7])
    np.testing.assert_allclose(read_depth(out / "film/000007.png"), expected[7], atol=0.5 / 1000 + 1e-5)
    assert (out / "film/times.csv").read_text().splitlines()[8] == "000007,0.700000"
    colors = list(VideoFile(out / "film.color.mp4").frames())
    np.testing.assert_allclose([f.time for f in colors], times, atol=1e-3)
    near = [c.image[np.abs(e - np.median(expected)) < 0.02].mean(0) for c, e in zip(colors, expected, strict=True)]
    assert np.std(near, axis=0).max() < 25  # one colour is one depth in the whole clip
    assert not list(out.glob(".*"))


@pytest.mark.parametrize("stabilize", [None, {"future": 3, "past": 3, "fuse": True}])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_an_export_that_was_stopped_goes_on_to_the_same_bytes(
    film: Path, tmp_path: Path, stabilize: dict[str, Any] | None, batch_size: int
) -> None:
    formats = ("mp4", "ffv1", "npz_clip", "npy")
    whole = predictor(batch_size=batch_size)
    export_clips(whole, plan(film, tmp_path / "whole", *formats, stabilize=stabilize))
    stop = threading.Event()
    first = predictor(batch_size=batch_size)
    forward = first.model.forward

    def model(image: Tensor) -> dict[str, Tensor]:
        if sum(first.model.seen) >= 12:
            stop.set()
        return forward(image)

    first.model.forward = model
    with pytest.raises(Preempted, match="continue with --resume"):
        export_clips(first, plan(film, tmp_path / "out", *formats, stabilize=stabilize), stop=stop)
    assert not (tmp_path / "out/film.color.mp4").exists()
    second = predictor(batch_size=batch_size)
    summary = export_clips(second, plan(film, tmp_path / "out", *formats, stabilize=stabilize), existing="resume")
    assert 6 <= summary.already < COUNT and sum(second.model.seen) < COUNT
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    third = predictor(batch_size=batch_size)
    export_clips(third, plan(film, tmp_path / "out", *formats, stabilize=stabilize), existing="resume")
    assert third.model.seen == []


def test_a_start_behind_the_end_of_a_film_is_told_from_a_film_that_cannot_be_read(film: Path, tmp_path: Path) -> None:
    with pytest.raises(PartialError) as caught:
        export_clips(predictor(), plan(film, tmp_path / "out", "npz_clip", span=TimeSpan(start=100)))
    assert "film.mp4: ends before --start 100 s." in str(caught.value.summary)


def test_resuming_with_other_settings_is_refused_and_what_is_there_is_not_replaced(film: Path, tmp_path: Path) -> None:
    export_clips(predictor(), plan(film, tmp_path / "out", "npz_clip"))
    with pytest.raises(ConfigError, match=r"already there. --resume makes only what is missing"):
        export_clips(predictor(), plan(film, tmp_path / "out", "npz_clip"))
    with pytest.raises(ConfigError, match="cannot resume with other settings .*span"):
        export_clips(predictor(), plan(film, tmp_path / "out", "npz_clip", span=TimeSpan(every=2)), existing="resume")
    export_clips(predictor(), plan(film, tmp_path / "out", "npz_clip", span=TimeSpan(every=2)), existing="overwrite")
    assert np.load(tmp_path / "out/film.depth.npz")["depth"].shape == (10, 48, 64)


def test_what_cannot_be_read_costs_only_that(film: Path, tmp_path: Path) -> None:
    films = tmp_path / "films"
    films.mkdir()
    shutil.copy(film, films / "a.mp4")
    (films / "b.mp4").write_bytes(film.read_bytes()[:3000])
    (films / "c.mp4").write_bytes(b"")
    data = bytearray(film.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    (films / "d.mp4").write_bytes(data)
    with pytest.raises(PartialError, match="3 of 4 clips failed or are incomplete") as caught:
        export_clips(predictor(), plan(films, tmp_path / "out", "npz_clip"))
    assert caught.value.exit_code == 3
    made = {path.name for path in (tmp_path / "out").glob("*.npz")}
    assert made == {"a.depth.npz", "d.depth.npz"}
    failed = json.loads((tmp_path / "out/failed.json").read_text())["failed"]
    assert [Path(entry["clip"]).name for entry in failed] == ["b.mp4", "c.mp4", "d.mp4"]
    assert "may be truncated" in str(caught.value.summary)  # type: ignore[attr-defined]
    assert not list((tmp_path / "out").glob(".*"))


def test_frames_of_a_folder_keep_their_names_and_a_bad_one_is_left_out(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "walk", FRAMES[:9])
    (folder / "4.png").write_bytes(b"no image")
    with pytest.raises(PartialError) as caught:
        export_clips(predictor(), plan(folder, tmp_path / "out", "npy", "npz_clip"))
    assert "4.png" in str(caught.value.summary)  # type: ignore[attr-defined]
    names = {path.stem for path in (tmp_path / "out/walk").glob("*.npy")}
    assert names == set("01235678") and len(np.load(tmp_path / "out/walk.depth.npz")["time"]) == 8


def test_a_camera_that_goes_away_leaves_what_it_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cv2, "VideoCapture", partial(FakeCamera, frames=FRAMES[:5], pause=0.05))
    with pytest.raises(PartialError) as caught:
        export_clips(predictor(), plan("camera:0", tmp_path / "out", "mp4", "ffv1"))
    assert "no more frames" in str(caught.value.summary)  # type: ignore[attr-defined]
    assert 1 <= len(list(read_depth_video(tmp_path / "out/camera0.depth.mkv"))) <= 5
    assert (tmp_path / "out/camera0.color.mp4").exists()


def test_maps_without_unit_keep_their_numbers(film: Path, tmp_path: Path) -> None:
    export_clips(predictor("disparity"), plan(film, tmp_path / "out", "ffv1"))
    expected = np.stack(predictor("disparity")([f.image for f in VideoFile(film).frames()]))
    found = list(read_depth_video(tmp_path / "out/film.depth.mkv"))
    assert found[0].kind == "disparity"
    np.testing.assert_allclose(np.stack([f.values for f in found]), expected, atol=np.ptp(expected) / 5000)


def test_a_rate_is_for_folders_of_frames_and_refused_for_a_film(film: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--fps: is for folders of frames"):
        densevit.predict(predictor(), film, tmp_path / "out", fps=5.0)


def test_images_among_clips_are_refused(film: Path, tmp_path: Path) -> None:
    picture = write_frames(tmp_path / "frames", FRAMES[:1]) / "0.png"
    with pytest.raises(DataError, match="is no video"):
        find_clips([str(film), str(picture)], 30)


def test_a_video_never_replaces_itself(film: Path, tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "walk", FRAMES[:2])
    with pytest.raises(ConfigError, match="would replace 1 input"):
        plan(folder, tmp_path, "npy").check("overwrite")


def test_the_predictor_gives_a_films_frames_with_their_maps(film: Path) -> None:
    found = list(predict_video(predictor(), film, start=0.5, every=2, stabilize=True, lookahead=3))
    assert [f.index for f in found] == list(range(8)) and found[1].time == pytest.approx(0.7, abs=1e-3)
    np.testing.assert_array_equal(found[0].image, list(VideoFile(film).frames())[5].image)
    assert found[0].depth.shape == (48, 64)


@pytest.mark.parametrize("lookahead", [0, 3])
def test_a_stream_is_behind_by_its_look_ahead_and_no_more(lookahead: int) -> None:
    asked: list[int] = []

    def camera() -> Any:
        for number, image in enumerate(FRAMES[:8]):
            asked.append(number)
            yield image

    taken = 0
    for _ in predict_frames(predictor(), camera(), stabilize=True, lookahead=lookahead):
        taken += 1
        assert len(asked) == min(8, taken + lookahead)
    assert taken == 8


def test_a_stream_without_stabiliser_is_the_prediction() -> None:
    maps = list(predict_frames(predictor(), FRAMES[:3]))
    for image, depth in zip(FRAMES, maps, strict=False):
        np.testing.assert_array_equal(depth, predictor()(image))
    assert torch.is_grad_enabled()


def test_the_example_makes_a_colour_video_in_under_20_lines(film: Path, tmp_path: Path) -> None:
    path = Path(__file__).parents[3] / "examples/video.py"
    assert len(path.read_text().splitlines()) < 20
    example: dict[str, Any] = {"__name__": "example"}
    exec(compile(path.read_text(), str(path), "exec"), example)
    example["main"](predictor(), str(film), str(tmp_path))
    assert len(list(VideoFile(tmp_path / "film.color.mp4").frames())) == COUNT


def test_steady_maps_are_not_cut_at_the_range_that_a_head_has_before_its_calibration(
    film: Path, tmp_path: Path
) -> None:
    """Maps of 10 to 20 m of a head that gave 1 to 2 m, and whose own range ends at 10 m."""
    plain = predictor()
    spec = replace(plain.card.outputs["depth"], calibration=Calibration(form="scale", a=10.0))
    calibrated = plain.with_options(card=replace(plain.card, outputs={"depth": spec}))
    steady = {"past": 2, "future": 0, "fuse": False}
    for made, name in ((plain, "plain"), (calibrated, "calibrated")):
        export_clips(made, plan(film, tmp_path / name, "npz_clip", stabilize=steady))
    one, other = (np.load(tmp_path / f"{name}/film.depth.npz")["depth"] for name in ("plain", "calibrated"))
    np.testing.assert_allclose(other, 10 * one, rtol=0.02)
    maps = [np.stack(list(predict_frames(made, FRAMES[:4], stabilize=True))) for made in (plain, calibrated)]
    np.testing.assert_allclose(maps[1], 10 * maps[0], rtol=0.02)


class WithFocal(Mean):
    """The same, and a focal length of 0.9 of the width."""

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {**super().forward(image), "focal": torch.full((len(image), 1, 1, 1), 0.9)}


def test_normals_of_depth_take_the_focal_length_that_the_model_estimates(film: Path, tmp_path: Path) -> None:
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric"), "focal": HeadSpec(kind="focal")}, multiple=1)
    summary = export_clips(fp32((WithFocal(), card)), plan(film, tmp_path, "normals_npy", "npy"))
    assert summary.failed == {}
    depth, normals = (np.load(tmp_path / f"film/000000{end}") for end in (".npy", ".normals.npy"))
    expected = normals_of_map(depth, Lens(focal=0.9 * 64).matrix(depth.shape))
    assert expected.any()
    np.testing.assert_allclose(normals, expected, atol=1e-5)


class WithSegments(Mean):
    """The same; sky in the upper half, a car in the lower one."""

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        masks = torch.full((len(image), 2, *image.shape[-2:]), -6.0)
        half = image.shape[-2] // 2
        masks[:, 0, :half] = masks[:, 1, half:] = 6.0
        classes = torch.tensor([9.0, 0, 0, 0, 9, 0]).reshape(1, 6, 1, 1).expand(len(image), -1, -1, -1)
        return {**super().forward(image), "segments": masks, "segments/classes": classes}


SEGMENTS = {
    "depth": HeadSpec(kind="metric"),
    "segments": HeadSpec(kind="panoptic", classes=("sky", "car"), things=(1,)),
    "segments/classes": HeadSpec(kind="query_classes"),
}


def test_segments_of_films_are_files_and_in_the_lists_of_all_frames(film: Path, tmp_path: Path) -> None:
    made = fp32((WithSegments(), ModelCard(outputs=SEGMENTS, multiple=1)))
    summary = export_clips(made, plan(film, tmp_path, "panoptic", "objects", "npy"))
    assert summary.failed == {} and summary.done == COUNT
    tree = json.loads((tmp_path / "panoptic.json").read_text())
    assert [one["file_name"] for one in tree["images"]] == [f"film/{i:06d}" for i in range(COUNT)]
    rows = list(csv.DictReader((tmp_path / "objects.csv").read_text().splitlines()))
    assert [row["image"] for row in rows] == [f"film/{i:06d}" for i in range(COUNT)]
    depth = np.load(tmp_path / "film/000003.npy")
    assert float(rows[3]["depth_m"]) == pytest.approx(float(np.median(depth[24:])), abs=1e-3)


def test_metres_of_objects_are_those_of_the_stabilised_depth(film: Path, tmp_path: Path) -> None:
    made = fp32((WithSegments(), ModelCard(outputs=SEGMENTS, multiple=1)))
    for name, formats in (("alone", ("objects",)), ("beside", ("objects", "npy"))):
        export_clips(made, plan(film, tmp_path / name, *formats, stabilize={"future": 2}))
    alone, beside = ((tmp_path / name / "objects.csv").read_text() for name in ("alone", "beside"))
    depth = np.load(tmp_path / "beside/film/000003.npy")
    row = list(csv.DictReader(beside.splitlines()))[3]
    assert float(row["depth_m"]) == pytest.approx(float(np.median(depth[24:])), abs=1e-3)
    assert alone == beside


def test_stabilising_what_is_no_depth_is_said_to_do_nothing(
    film: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = fp32((WithSegments(), ModelCard(outputs=SEGMENTS, multiple=1)))
    for formats in (("panoptic", "npy"), ("panoptic",)):
        assert "--stabilize" not in caplog.text
        export_clips(made, plan(film, tmp_path / str(len(formats)), *formats, stabilize={"future": 2}))
    assert "--stabilize: is for depth, of which panoptic are not made." in caplog.text
