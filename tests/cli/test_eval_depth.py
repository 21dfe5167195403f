"""Scoring saved maps from the shell: any format, size and kind, one protocol or all, in any number of threads."""

import csv
import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from shell import Shell
from small import small_folder

import densevit
from densevit.cli.main import main
from densevit.data.datasets.base import open_dataset
from densevit.data.io.readers import read_depth

COUNT = 6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_folder(tmp_path_factory.mktemp("data"), COUNT)


def maps(data: Path) -> dict[str, np.ndarray]:
    """Predictions: the ground truth, 10% too far."""
    return {path.stem: read_depth(path, 1000) * np.float32(1.1) for path in sorted((data / "depths").glob("*.png"))}


def evaluation(data: Path, predictions: Path, *words: object) -> list[str]:
    options = ["--data", "folder", "--root", data, "--data-options", "depth_scale=1000", "--predictions", predictions]
    return ["eval", "--task", "depth", *map(str, [*options, *words])]


def score(data: Path, predictions: Path, output: Path, *words: object) -> dict:
    assert main(evaluation(data, predictions, "--output", output, *words)) == 0
    path = output / "metrics.json"
    return json.loads(path.read_text()) if path.exists() else {}


def save(folder: Path, name: str, depth: np.ndarray) -> None:
    np.save(folder / f"{name}.npy", depth)


def test_whole_numbers_are_read_by_their_scale(data: Path, tmp_path: Path) -> None:
    (tmp_path / "maps").mkdir()
    for name, depth in maps(data).items():
        cv2.imwrite(str(tmp_path / f"maps/{name}.png"), np.rint(depth * 1000).astype(np.uint16))
    found = score(data, tmp_path / "maps", tmp_path / "out", "--scale", "1000")
    assert found["metrics"]["abs_rel"] == pytest.approx(0.1, abs=2e-4) and found["counts"]["scored"] == COUNT


@pytest.fixture(scope="module")
def saved(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    rng = np.random.default_rng(0)
    for name, depth in maps(data).items():
        save(folder, name, (depth * np.exp(rng.normal(0, 0.05, depth.shape))).astype(np.float32))
    return folder


def test_processes_and_a_cached_ground_truth_change_no_number(
    data: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("densevit.data.loading.prefetch.JOB", 1)
    monkeypatch.setattr("densevit.data.loading.prefetch.ENOUGH", 2)  # or six images are too few for processes
    score(data, saved, tmp_path / "plain", "--workers", "1")
    for turn in ("first", "again"):
        score(data, saved, tmp_path / turn, "--workers", "2", "--gt-cache", str(tmp_path / "kept"))
        assert (tmp_path / turn / "per_image.csv").read_bytes() == (tmp_path / "plain/per_image.csv").read_bytes()
    assert len(list((tmp_path / "kept").iterdir())) == COUNT


def test_the_ground_truth_of_a_mixture_is_cached(data: Path, tmp_path: Path) -> None:
    folder = {"type": "folder", "root": str(data), "depth_scale": 1000}
    mixture = {"type": "mix", "sources": [{"data": folder, "name": "a"}, {"data": folder, "name": "b"}]}
    predictions = 2 * list(maps(data).values())
    densevit.evaluate(predictions=predictions, data=open_dataset(mixture), gt_cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == COUNT


def test_disparity_without_unit_is_aligned(data: Path, tmp_path: Path) -> None:
    (tmp_path / "maps").mkdir()
    for name, depth in maps(data).items():
        save(tmp_path / "maps", name, (3 / depth - 0.9).astype(np.float32))
    found = score(data, tmp_path / "maps", tmp_path / "out", "--prediction-type", "disparity")
    assert found["protocol"]["name"] == "plain+lstsq_disparity" and found["metrics"]["abs_rel"] < 1e-4


def test_half_size_and_manifest(data: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "maps").mkdir()
    lines = ["name,prediction"]
    for i, (name, depth) in enumerate(maps(data).items()):
        save(tmp_path / "maps", f"frame-{9 - i}", cv2.resize(depth, (40, 30)))
        lines.append(f"{name},frame-{9 - i}.npy")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    words = ["--manifest", tmp_path / "list.csv"]
    found = score(data, tmp_path / "maps", tmp_path / "out", *words)
    score(data, tmp_path / "maps", tmp_path / "all", *words, "--protocol", "all")
    assert "resized to fit these protocols: plain, " in capsys.readouterr().out
    assert found["counts"]["resized_predictions"] == COUNT
    assert found["metrics"]["abs_rel"] == pytest.approx(0.1, abs=0.02)


def test_wrong_options_and_folders_are_reported_before_anything_is_scored(
    data: Path, saved: Path, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "file").touch()
    for words, *told in (
        (["--tile-size", "32", "--flip"], "--tile-size is an option of a MODEL", "--flip is an option of a MODEL"),
        (["--output", tmp_path / "file"], "cannot be made"),
        (["--metrics", "boundry"], "Did you mean 'boundary'"),
    ):
        printed = shell(*evaluation(data, saved, *words), code=2)
        assert all(text in printed.err for text in told) and "abs_rel" not in printed.out
    told = shell.refused("eval", "--task", "depth", "--data", "folder", "--root", data, "run", "--suffix", ".png")
    assert "--suffix is an option of --predictions only" in told


@pytest.mark.slow
def test_all_protocols_at_once_give_the_scores_of_each(data: Path, saved: Path, tmp_path: Path, capsys) -> None:
    score(data, saved, tmp_path / "all", "--protocol", "all")
    printed = capsys.readouterr().out
    assert "were resized" not in printed
    for name in ("plain", "dav2_outdoor", "median_scale", "moge_affine"):
        alone = score(data, saved, tmp_path / name, "--protocol", name)
        assert json.loads((tmp_path / "all" / name / "metrics.json").read_text())["metrics"] == alone["metrics"]
        assert f"\n{name} " in printed
    assert not (tmp_path / "all" / "nyu_eigen").exists()


def test_the_report_has_intervals_images_and_charts(data: Path, saved: Path, tmp_path: Path) -> None:
    found = score(data, saved, tmp_path, "--metrics", "distance,silog")
    html = (tmp_path / "report.html").read_text()
    for text in ("95% over images", "by true distance", "worst", "silog_half", "plain: every pixel"):
        assert text in html
    low, high = found["intervals"]["abs_rel"]
    assert low < found["metrics"]["abs_rel"] < high
    with open(tmp_path / "per_image.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == COUNT


def test_protocols_are_listed_and_explained(shell: Shell) -> None:
    assert "nyu_dinov3" in shell("list", "protocols").out
    assert "rows 166:372" in shell("list", "protocols", "kitti_eigen_garg_kb", "--size", "375x1242").out
    assert "no protocol 'nyu'" in shell.refused("list", "protocols", "nyu")
    told = shell.refused("list", "protocols", "plain", "--size", "big")
    assert "height and width in pixels, as 480,640; got 'big'" in told
