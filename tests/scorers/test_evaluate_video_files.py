"""Videos without ground truth: steady depth has no flicker, and options that ask for ground truth are refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from films import frame, write_film, write_frames
from shell import Shell
from torch import Tensor, nn
from toy_models import fp32, toy_network, toy_predictor

from densevit.errors import DataError
from densevit.evaluation.video.clip import VideoProtocol
from densevit.inference.predictor import Predictor
from densevit.inference.video.stabilizer import Stabilizer
from densevit.ops.geometry import pinhole
from densevit.scorers.video import ClipScorer, evaluate_video_files
from densevit.structures import Sample
from densevit.utils.output import tqdm


class Flat(nn.Module):
    """2 m everywhere, in turn a share less and more."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.calls = share, 0

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        return {"depth": image[:, :1] * 0 + 2 * (1 + self.share * (-1) ** self.calls)}


def predictor(share: float) -> Predictor:
    return toy_predictor(Flat(share))


def test_depth_that_jumps_flickers_and_depth_that_stays_does_not(tmp_path: Path) -> None:
    films = [str(write_film(tmp_path / "a.mp4", [frame(0)] * 6)), str(write_frames(tmp_path / "b", [frame(0)] * 6))]
    steady = evaluate_video_files(predictor(0.0), films, limit=4)
    jumping = evaluate_video_files(predictor(0.1), films, limit=4)
    assert [name for name, _ in steady.per_image] == ["a", "b"]
    for (_, still), (_, moving) in zip(steady.per_image, jumping.per_image, strict=True):
        assert still["frames"] == moving["frames"] == 4
        assert still["flicker"] == 0 and still["opw"] == 0 and still["rtc"] == 1
        assert moving["flicker"] > 5 and moving["opw"] == pytest.approx(0.4, rel=0.01)  # 1.8 m and 2.2 m in turn
    figures = jumping.results[0].figures[0]
    assert (figures.scale[0], figures.scale[2]) == ("1.8 m", "2.2 m")
    steadied = evaluate_video_files(predictor(0.1), films[:1], stabilize={"future": 2})
    assert steadied.per_image[0][1]["frames"] == 6
    assert steadied.per_image[0][1]["flicker"] < 0.5 * jumping.per_image[0][1]["flicker"]


def test_films_of_one_name_keep_rows_of_their_own(tmp_path: Path) -> None:
    films = [str(write_frames(tmp_path / f"{folder}/clip", [frame(0)] * 3)) for folder in "ab"]
    found = evaluate_video_files(predictor(0.1), films, figures=False)
    assert [name for name, _ in found.per_image] == films


def test_the_camera_of_the_predictor_serves_clips_whose_data_name_none() -> None:
    pose = np.eye(4)
    pose[0, 3] = 0.2  # of a wall 2 m away, so all pixels stay in it
    clip = [Sample(name=str(i), image=frame(0), pose=p) for i, p in enumerate((np.eye(4), pose))]

    def tae(**camera: float) -> float | None:
        scorer = ClipScorer(
            predictor(0.0).with_options(**camera), VideoProtocol(), "none", None, None, 6, figures=False
        )
        scorer.add("clip", lambda: iter(clip), tqdm(disable=True))
        return scorer.rows[0][1].get("tae")

    assert tae() is None and tae(camera=60.0) == pytest.approx(0, abs=1e-6)


def test_the_one_head_of_depth_is_scored_whatever_its_name(tmp_path: Path) -> None:
    network = toy_network({"inverse": {"type": "disparity"}, "labels": {"type": "segmentation", "classes": 3}})
    film = str(write_frames(tmp_path / "a", [frame(0)] * 3))
    for stabilize in (None, {"future": 1}):
        found = evaluate_video_files(fp32(network), [film], stabilize=stabilize, figures=False)
        assert found.scores["opw"] == pytest.approx(0, abs=1e-5)


def test_maps_without_unit_are_scored_where_the_model_sees_a_window_of_the_image_alone(tmp_path: Path) -> None:
    film = str(write_frames(tmp_path / "a", [frame(0)] * 3))
    model = toy_predictor(kind="disparity", window=lambda h, w: (4, h - 4, 4, w - 4))
    assert evaluate_video_files(model, [film], figures=False).scores == {"opw": 0, "rtc": 1, "flicker": 0}


def test_a_film_of_one_frame_is_named(tmp_path: Path) -> None:
    films = [str(write_frames(tmp_path / name, [frame(0)] * count)) for name, count in (("a", 2), ("b", 1))]
    with pytest.raises(DataError, match="b: a clip of 1 frames"):
        evaluate_video_files(predictor(0.0), films, figures=False)


def test_what_films_cannot_be_scored_by_is_refused(shell: Shell) -> None:
    with pytest.raises(DataError, match="cannot be read twice"):
        evaluate_video_files(predictor(0.0), ["camera:0"])
    told = shell.refused("eval", "--task", "video", "run", "--videos", "a.mp4", "--align", "affine")
    assert "which --videos do not have" in told


def test_what_a_damaged_video_lacks_is_said_stored_and_exits_with_3(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "b", [frame(0)] * 6)
    sorted(folder.iterdir())[2].write_bytes(b"damaged")
    found = evaluate_video_files(predictor(0.0), [str(folder)])
    assert found.exit_code == 3 and found.per_image[0][1]["frames"] == 5
    found.report(tmp_path / "out")
    stored = json.loads((tmp_path / "out/metrics.json").read_text())
    assert stored["source"]["problems"][0].startswith(str(folder)) and stored["source"]["problems"][0] in str(found)
    assert evaluate_video_files(predictor(0.0), [str(write_frames(tmp_path / "c", [frame(0)] * 3))]).exit_code == 0


def test_clips_are_stabilised_by_their_camera(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 degrees were assumed whatever the data or the predictor knew."""
    focals: list[float | None] = []

    def build(*given: object, focal: float | None = None, **options: object) -> Stabilizer:
        focals.append(focal)
        return Stabilizer("metric", future=1)

    monkeypatch.setattr("densevit.scorers.video.Stabilizer", build)
    samples = [Sample(name=str(i), image=frame(i), intrinsics=pinhole(100.0, 100.0, 40.0, 30.0)) for i in range(3)]
    for source, camera in ((samples, None), (samples, 80.0), ([replace(x, intrinsics=None) for x in samples], None)):
        predictor, steady = toy_predictor(camera=camera), {"future": 1}
        scorer = ClipScorer(predictor, VideoProtocol(), "none", None, steady, 0, figures=False, has_truth=False)
        scorer.add("clip", lambda source=source: iter(source), tqdm(disable=True))
    assert focals == [100.0, 80.0, None]
