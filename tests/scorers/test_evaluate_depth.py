"""Depth evaluation as a Python function, the data that `eval` finds by itself, and videos without ground truth."""

import json
from collections import UserList
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from films import frame, write_film, write_frames
from shell import Shell
from small import small_folder
from torch import Tensor, nn
from toy_models import fp32, toy_network, toy_predictor

import densevit
from densevit.cli.main import main
from densevit.data.datasets.base import open_dataset
from densevit.data.datasets.pairs import Pairs, as_dataset
from densevit.data.predictions import GivenMaps
from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.video.clip import VideoProtocol
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import Tiling
from densevit.inference.video.stabilizer import Stabilizer
from densevit.model_card import Kind
from densevit.ops.geometry import pinhole
from densevit.scorers.base import seen
from densevit.scorers.baselines import depth_maps, describe_baselines
from densevit.scorers.depth import evaluate_depth, select_protocols
from densevit.scorers.normals import evaluate_normals
from densevit.scorers.video import ClipScorer, evaluate_video_files
from densevit.structures import IGNORE, Sample
from densevit.utils.output import tqdm


@pytest.fixture(scope="module")
def run(small_run: Path) -> Path:
    return small_run / "run"


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return densevit.load(run, device="cpu", precision="fp32")


def spec(run: Path) -> dict[str, object]:
    return {"type": "folder", "root": str(run.parent / "data"), "depth_scale": 1000}


def test_each_of_several_protocols_is_scored_with_its_own_flip(run: Path, predictor: Predictor, tmp_path: Path) -> None:
    """`plain` takes the prediction as it is; a protocol with `flip` averages it with the mirrored image's."""
    data = open_dataset(spec(run))
    plain = PROTOCOLS["plain"].for_range(*data.depth_range)
    mirrored = replace(plain, name="mirrored", flip=True)
    both = evaluate_depth(predictor, data, [plain, mirrored])
    alone = [evaluate_depth(predictor, data, [protocol]).results[0] for protocol in (plain, mirrored)]
    assert [found.mean for found in both.results] == [found.mean for found in alone]
    assert both.results[0].mean != both.results[1].mean
    assert evaluate_depth(predictor.with_options(flip=True), data, [plain]).scores == both.results[1].mean
    both.report(tmp_path)
    written = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("plain", "mirrored")]
    assert [tree["source"]["inference"]["flip"] for tree in written] == [False, True]


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        ({"flip": True}, {"flip": True}),
        ({"scales": (1.0, 1.5)}, {"scales": [1.0, 1.5]}),
        ({"tiling": Tiling(32, 0.5)}, {"tiling": {"side": 32, "overlap": 0.5}}),
        ({"windows": ((28, 28), (14, 14))}, {"window_size": [28, 28], "stride": [14, 14]}),
        ({"precision": "bf16"}, {"precision": "bf16"}),
    ],
    ids=lambda tree: next(iter(tree)),
)
def test_scores_record_how_the_maps_were_made(
    options: dict[str, Any], recorded: dict[str, Any], run: Path, predictor: Predictor, tmp_path: Path
) -> None:
    data = open_dataset(spec(run))
    given = dict(options)
    if (windows := given.pop("windows", None)) is not None:
        resize = replace(predictor.card.resize, window=windows[0], stride=windows[1])
        given["card"] = replace(predictor.card, resize=resize)
    if "precision" in given:
        predictor = Predictor(predictor.model, predictor.card, device="cpu", precision=given.pop("precision"))
    plain = PROTOCOLS["plain"].for_range(*data.depth_range)
    evaluate_depth(predictor.with_options(**given), data, [plain], flip=options.get("flip")).report(tmp_path)
    inference = json.loads((tmp_path / "metrics.json").read_text())["source"]["inference"]
    usual = {"precision": "fp32", "flip": False, "scales": [1.0], "tiling": None, "window_size": None, "stride": None}
    assert inference == usual | recorded
    page = unescape((tmp_path / "report.html").read_text())
    assert all(f"{name} {value}" in page.replace("(", "[").replace(")", "]") for name, value in recorded.items())
    assert " None" not in page.partition("Predictions: ")[2].partition("</p>")[0]


def test_pixels_that_a_crop_hides_from_the_model_are_not_scored() -> None:
    """They were scored as the nearest depth, or as classes and normals that are wrong, as predictions of NaN are."""
    image, depth = np.full((24, 32, 3), 128, np.uint8), np.full((24, 32), 1.5, np.float32)
    data = densevit.Pairs([{"image": image, "depth": depth, "labels": np.zeros((24, 32), np.int64)}], classes=["one"])
    predictor = toy_predictor(window=lambda h, w: (h // 2, h, 4, w - 2))  # depth is 1 + 128 / 255
    found = evaluate_depth(predictor, data, select_protocols("plain", data, "", "metric")).results[0]
    assert found.mean["abs_rel"] < 0.01 and found.mean["d1"] == 1
    inside = seen(predictor.window, replace(data.read(0), normals=np.full((24, 32, 3), 0.6, np.float32)))
    assert inside.labels is not None and inside.normals is not None
    assert (inside.labels == 0).sum() == (inside.normals != 0).all(2).sum() == 12 * 26
    assert (inside.labels[12:, 4:30] == 0).all() and set(np.unique(inside.labels)) == {0, IGNORE}


@pytest.mark.parametrize(("words", "what"), [(["--tile-size", "40"], "tiles"), (["--points", "5"], "--points")])
def test_metrics_of_the_uncertainty_are_refused_where_maps_are_changed_afterwards(
    words: list[str], what: str, run: Path, shell: Shell
) -> None:
    """The message was that the model predicts none."""
    told = shell.refused("eval", "--task", "depth", run, "--metrics", "uncertainty", *words, "--device", "cpu")
    assert f"--metrics uncertainty: is of the maps as the model gives them; leave {what} out" in told


def test_point_clouds_and_normals_are_scored_by_the_camera_that_is_given() -> None:
    """It was said to be used, and then that the data has none."""
    image = np.full((48, 64, 3), 128, np.uint8)  # depth is 1 + 128 / 255, a wall across the view
    data = densevit.Pairs([{"image": image, "depth": np.full((48, 64), 1.5, np.float32)}])
    predictor = toy_predictor(camera=60.0)
    (plain,) = select_protocols("plain", data, "", "metric")
    points = evaluate_depth(predictor, data, [plain], metrics=["points", "fov"]).results[0].mean
    assert points["abs_rel@45-60deg"] < 0.01  # 2 atan(32 / 60) is 56 degrees
    assert points["f_score_5cm"] == 1
    assert evaluate_normals(predictor, data).results[0].mean["mean"] < 0.1


def test_samples_that_are_decoded_when_needed_are_not_all_read_to_select_a_protocol(run: Path) -> None:
    class Decoded(UserList[Any]):
        def __getitem__(self, index: Any) -> Any:
            read.append(index)
            return super().__getitem__(index)

    read: list[int] = []
    data = Pairs(Decoded([open_dataset(spec(run)).read(0)] * 9))
    assert [p.name for p in select_protocols(None, data, "", "metric")] == ["plain"] and read == [0]


def test_protocols_are_selected_by_name_by_data_set_or_all(run: Path) -> None:
    data = open_dataset(spec(run))
    assert [p.name for p in select_protocols(None, data, "folder", "metric")] == ["plain"]
    assert [p.name for p in select_protocols(None, data, "kitti", "metric")] == ["kitti_eigen_garg"]
    assert len(select_protocols("all", data, "folder", "metric")) > 3
    with pytest.raises(ConfigError, match="--align needs one protocol"):
        select_protocols("all", data, "folder", "metric", align="median")
    with pytest.raises(ConfigError, match="densevit eval"):
        select_protocols("plain", data, "folder", "labels")


@pytest.mark.parametrize("align", ["median", "l1_scale", "log_scale", "lstsq", "lstsq_disparity"])
def test_alignments_that_are_asked_for_invert_what_they_do_not_read(align: str) -> None:
    depth = np.random.default_rng(0).uniform(1, 9, (24, 32)).astype(np.float32)
    data = densevit.Pairs([(np.zeros((24, 32, 3), np.uint8), depth)])
    predictions: dict[Kind, np.ndarray] = {"metric": 3 * depth, "disparity": 3 / depth}
    for kind, prediction in predictions.items():
        (protocol,) = select_protocols("plain", data, "", kind, align=align)
        assert protocol.name == f"plain+{align}"
        assert protocol.score(prediction, depth, depth > 0)["abs_rel"] < 1e-5


def test_saved_maps_are_scored_by_field_of_view_where_that_is_asked_for() -> None:
    depth, camera = np.full((48, 64), 2, np.float32), pinhole(32.0, 32.0, 31.5, 23.5)
    data = densevit.Pairs([{"image": np.zeros((48, 64, 3), np.uint8), "depth": depth, "intrinsics": camera}])
    scores = densevit.evaluate(predictions=[1.5 * depth], data=data, metrics=["fov"]).scores
    assert scores["abs_rel@90-105deg"] == pytest.approx(0.5)


def test_a_saved_map_of_another_shape_is_told_with_its_name() -> None:
    depth = np.full((24, 32), 2.0, np.float32)
    data = densevit.Pairs([{"image": np.zeros((24, 32, 3), np.uint8), "depth": depth, "name": name} for name in "ab"])
    with pytest.raises(DataError, match="^b: the prediction is 32x24 where 24x32 fits: is it transposed"):
        densevit.evaluate(predictions=[depth, depth.T], data=data)


def test_depth_of_a_mixture_that_is_no_metres_is_not_scored_as_metres(run: Path, predictor: Predictor) -> None:
    """As in the validation of a training."""
    sources = [{"data": spec(run), "name": "metres"}, {"data": spec(run), "name": "stereo", "truth": "relative"}]
    mixture, alone = open_dataset({"type": "mix", "sources": sources}), open_dataset(spec(run))
    plain = [PROTOCOLS["plain"].for_range(*mixture.depth_range)]
    found = evaluate_depth(predictor, mixture, plain).results[0]
    assert found.mean == pytest.approx(evaluate_depth(predictor, alone, plain).results[0].mean)
    assert len(found.skipped) == len(alone)
    maps = [mixture.depth_map(index) for index in range(len(mixture))]
    wrong = [*maps[: len(alone)], *(5 * depth for depth in maps[len(alone) :] if depth is not None)]
    saved = evaluate_depth(GivenMaps(mixture, wrong), mixture, plain, workers=0).results[0]
    assert saved.mean["abs_rel"] == 0 and saved.skipped == found.skipped


def test_a_run_is_scored_on_its_own_validation_data_and_protocol(run: Path, tmp_path: Path, shell: Shell) -> None:
    told, root = shell("eval", "--task", "depth", run, "--output", tmp_path, "--device", "cpu").err, run.parent / "data"
    assert f"data: the run's own validation data, folder, root {root}, split all" in told
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["protocol"]["name"] == "median_scale"
    assert (found["source"]["data"], found["source"]["root"]) == ("folder", str(root))
    assert found["metrics"]["abs_rel"] == pytest.approx(densevit.Run(run).val_log[-1]["abs_rel"], rel=1e-4)


def test_a_checkpoint_that_records_no_data_asks_for_it(shell: Shell) -> None:
    old = Path(__file__).parents[1] / "weights/old/schema_1.safetensors"
    assert "records no validation data; name a data set" in shell.refused("eval", "--task", "depth", old)
    assert "--data: name the data set" in shell.refused("eval", "--task", "depth", "--predictions", old.parent)


def test_saved_maps_of_another_unit_are_told_with_the_remedy(
    tmp_path: Path, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    """Millimetres: AbsRel is wrong by orders of magnitude, and every prediction is clamped."""
    small_folder(tmp_path / "data", 3)
    data = open_dataset({"type": "folder", "root": str(tmp_path / "data"), "depth_scale": 1000})
    (tmp_path / "maps").mkdir()
    for index, name in enumerate(data.names):
        depth = data.read(index).depth
        np.save(tmp_path / f"maps/{name}.npy", depth * 1000)
    options = ["--data", str(tmp_path / "data"), "--data-options", "depth_scale=1000", "--predictions"]
    told = shell("eval", "--task", "depth", *options, tmp_path / "maps", "--output", tmp_path / "out").out
    assert "predictions look like 1000 units per metre. Use --scale 1000." in told
    assert "(100.0%) clamped to the range" in told and "Use --scale 1000" in caplog.text
    assert "Use --scale 1000" in (tmp_path / "out/report.html").read_text()
    told = shell("eval", "--task", "depth", *options, tmp_path / "maps", "--scale", "1000").out
    assert "warning" not in told and "clamped to the range" not in told


@pytest.fixture
def split_data(tmp_path: Path) -> Path:
    for split, count in (("train", 3), ("val", 2)):
        small_folder(tmp_path / "data" / split, count)
    return tmp_path / "data"


def test_commands_find_the_splits_in_a_folder_by_themselves(
    split_data: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = ["--data-options", "depth_scale=1000"]
    main(["check-data", str(split_data), *scale, "--no-cache"])
    printed = capsys.readouterr().out
    assert "train: 3 of 3 samples" in printed
    assert "val: 2 of 2 samples" in printed
    for data in (["--data", str(split_data)], ["--data", "folder", "--root", str(split_data)]):
        assert main(["eval", "--task", "depth", str(run), *data, *scale, "--device", "cpu"]) == 0
        printed = capsys.readouterr()
        assert f"data: {split_data}, split val of train, val" in printed.err
        assert "2 of 2 images scored" in printed.out
    words = ["--data", str(split_data), "--split", "train", *scale, "--device", "cpu"]
    assert main(["eval", "--task", "depth", str(run), *words]) == 0
    assert "3 of 3 images scored" in capsys.readouterr().out


def test_an_evaluation_records_the_device_and_precision_that_auto_took(run: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    words = ["eval", "--task", "depth", str(run), "--data", "folder", "--root", str(run.parent / "data")]
    words += ["--data-options", "depth_scale=1000", "--output", str(tmp_path / "out")]
    assert main([*words, "--precision", "auto", "--device", "auto"]) == 0
    source = json.loads((tmp_path / "out/metrics.json").read_text())["source"]
    assert (source["inference"]["precision"], source["device"]) == ("bf16", "cpu")
    assert source["data_options"] == {"depth_scale": "1000"}


class Flat(nn.Module):
    """2 m everywhere, in turn a share less and more."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.calls = share, 0

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        return {"depth": image[:, :1] * 0 + 2 * (1 + self.share * (-1) ** self.calls)}


def video_predictor(share: float) -> Predictor:
    return toy_predictor(Flat(share))


def test_depth_that_jumps_flickers_and_depth_that_stays_does_not(tmp_path: Path) -> None:
    films = [str(write_film(tmp_path / "a.mp4", [frame(0)] * 6)), str(write_frames(tmp_path / "b", [frame(0)] * 6))]
    steady = evaluate_video_files(video_predictor(0.0), films, limit=4)
    jumping = evaluate_video_files(video_predictor(0.1), films, limit=4)
    assert [name for name, _ in steady.per_image] == ["a", "b"]
    for (_, still), (_, moving) in zip(steady.per_image, jumping.per_image, strict=True):
        assert still["frames"] == moving["frames"] == 4
        assert still["flicker"] == 0 and still["opw"] == 0 and still["rtc"] == 1
        assert moving["flicker"] > 5 and moving["opw"] == pytest.approx(0.4, rel=0.01)  # 1.8 m and 2.2 m in turn
    figures = jumping.results[0].figures[0]
    assert (figures.scale[0], figures.scale[2]) == ("1.8 m", "2.2 m")
    steadied = evaluate_video_files(video_predictor(0.1), films[:1], stabilize={"future": 2})
    assert steadied.per_image[0][1]["frames"] == 6
    assert steadied.per_image[0][1]["flicker"] < 0.5 * jumping.per_image[0][1]["flicker"]


def test_films_of_one_name_keep_rows_of_their_own(tmp_path: Path) -> None:
    films = [str(write_frames(tmp_path / f"{folder}/clip", [frame(0)] * 3)) for folder in "ab"]
    found = evaluate_video_files(video_predictor(0.1), films, figures=False)
    assert [name for name, _ in found.per_image] == films


def test_the_camera_of_the_predictor_serves_clips_whose_data_name_none() -> None:
    pose = np.eye(4)
    pose[0, 3] = 0.2  # of a wall 2 m away, so all pixels stay in it
    clip = [Sample(name=str(i), image=frame(0), pose=p) for i, p in enumerate((np.eye(4), pose))]

    def tae(**camera: float) -> float | None:
        scorer = ClipScorer(
            video_predictor(0.0).with_options(**camera), VideoProtocol(), "none", None, None, 6, figures=False
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
        evaluate_video_files(video_predictor(0.0), films, figures=False)


def test_what_films_cannot_be_scored_by_is_refused(shell: Shell) -> None:
    with pytest.raises(DataError, match="cannot be read twice"):
        evaluate_video_files(video_predictor(0.0), ["camera:0"])
    told = shell.refused("eval", "--task", "video", "run", "--videos", "a.mp4", "--align", "affine")
    assert "which --videos do not have" in told


def test_what_a_damaged_video_lacks_is_said_stored_and_exits_with_3(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "b", [frame(0)] * 6)
    sorted(folder.iterdir())[2].write_bytes(b"damaged")
    found = evaluate_video_files(video_predictor(0.0), [str(folder)])
    assert found.exit_code == 3 and found.per_image[0][1]["frames"] == 5
    found.report(tmp_path / "out")
    stored = json.loads((tmp_path / "out/metrics.json").read_text())
    assert stored["source"]["problems"][0].startswith(str(folder)) and stored["source"]["problems"][0] in str(found)
    assert (
        evaluate_video_files(video_predictor(0.0), [str(write_frames(tmp_path / "c", [frame(0)] * 3))]).exit_code == 0
    )


def test_clips_are_stabilised_by_their_camera(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 degrees were assumed whatever the data or the video_predictor knew."""
    focals: list[float | None] = []

    def build(*given: object, focal: float | None = None, **options: object) -> Stabilizer:
        focals.append(focal)
        return Stabilizer("metric", future=1)

    monkeypatch.setattr("densevit.scorers.video.Stabilizer", build)
    samples = [Sample(name=str(i), image=frame(i), intrinsics=pinhole(100.0, 100.0, 40.0, 30.0)) for i in range(3)]
    for source, camera in ((samples, None), (samples, 80.0), ([replace(x, intrinsics=None) for x in samples], None)):
        video_predictor, steady = toy_predictor(camera=camera), {"future": 1}
        scorer = ClipScorer(video_predictor, VideoProtocol(), "none", None, steady, 0, figures=False, has_truth=False)
        scorer.add("clip", lambda source=source: iter(source), tqdm(disable=True))
    assert focals == [100.0, 80.0, None]


IMAGE = np.zeros((48, 64, 3), np.uint8)


def test_the_median_of_each_pixel_and_the_best_constant_are_scored_on_other_images() -> None:
    """Left 1 m and right 4 m, but for one of three images; AbsRel is least for the constant 1: (0 + 3/4) / 2."""
    usual = np.where(np.arange(64) < 32, 1, 4)[None].repeat(48, 0).astype(np.float32)
    train = as_dataset([(IMAGE, usual), (IMAGE, usual), (IMAGE, np.full_like(usual, 9))])
    text = describe_baselines(train, as_dataset([(IMAGE, usual)]))
    assert "abs_rel 0.000, d1 1.000 by the median of the training at each pixel" in text
    assert "abs_rel 0.375, d1 0.500 by 1.00 m (1 images)" in text


@pytest.mark.parametrize("empty", [np.zeros((4, 6), np.float32), None, "unreadable.png"])
def test_maps_are_spread_over_the_data_and_images_without_depth_passed_over(empty: np.ndarray | str | None) -> None:
    maps = [np.full((4, 6), i, np.float32) if i else empty for i in range(11)]
    found = [float(depth[0, 0]) for depth in depth_maps(as_dataset([(IMAGE[:4, :6], depth) for depth in maps]), 3)]
    assert found == pytest.approx([5, 10])
