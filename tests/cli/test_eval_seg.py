"""`densevit eval` on label maps that any system may have saved."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from shell import Shell
from small_scenes import small_scenes

from densevit.cli.main import main
from densevit.data.datasets.folder import Folder
from densevit.data.labels.class_lists import read_classes


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_scenes(tmp_path_factory.mktemp("scenes") / "data", 5, without=[(i, "depths") for i in range(5)])


def command(root: Path, folder: Path, *more: object) -> list[str]:
    words = ["--predictions", folder, "--data", "folder", "--root", root, *more]
    return ["eval", "--task", "segmentation", *map(str, words)]


def positions(root: Path) -> dict[str, np.ndarray]:
    """The ground truth of the data set, with ten columns of boxes where there are none."""
    data = Folder(root=root)
    found = {}
    for i, name in enumerate(data.names):
        labels = data.read(i).labels
        found[name] = labels.copy()
        found[name][:, -10:] = 2
    return found


def save_gray(path: Path, ids: np.ndarray) -> None:
    Image.fromarray(ids.astype(np.uint8)).save(path.with_suffix(".png"))


def save_palette(path: Path, ids: np.ndarray) -> None:
    image = Image.fromarray(ids.astype(np.uint8), "P")
    image.putpalette(list(range(256)) * 3)
    image.save(path.with_suffix(".png"))


ENCODINGS: dict[str, Callable[[Path, np.ndarray], None]] = {
    "gray": save_gray,
    "16 bits": lambda path, ids: Image.fromarray(ids.astype(np.uint16)).save(path.with_suffix(".png")),
    "palette": save_palette,
    "array": lambda path, ids: np.save(path.with_suffix(".npy"), ids.astype(np.int32)),
}


def score(root: Path, folder: Path, *more: object) -> dict[str, float]:
    assert main(command(root, folder, "--output", folder / "out", *more)) == 0
    return json.loads((folder / "out/metrics.json").read_text())["metrics"]


def expected(root: Path) -> float:
    """mIoU by sets of pixels."""
    data, maps = Folder(root=root), positions(root)
    pairs = [(maps[name], data.read(i).labels) for i, name in enumerate(data.names)]
    taken, truth = (np.concatenate([pair[i][pair[1] != 255] for pair in pairs]) for i in (0, 1))  # type: ignore[index]
    ious = [((taken == c) & (truth == c)).sum() / ((taken == c) | (truth == c)).sum() for c in range(3)]
    return float(np.mean(ious))


@pytest.mark.parametrize("save", ENCODINGS.values(), ids=ENCODINGS)
def test_saved_maps_of_every_encoding_score_alike(
    root: Path, tmp_path: Path, save: Callable[[Path, np.ndarray], None]
) -> None:
    for name, ids in positions(root).items():
        save(tmp_path / name, ids)
    assert score(root, tmp_path)["miou"] == pytest.approx(expected(root), abs=1e-12)
    if save is save_gray:
        assert "boundary_iou" not in score(root, tmp_path, "--no-boundary")


def test_maps_in_the_data_sets_own_ids_or_colours_are_reported_by_its_table(root: Path, tmp_path: Path) -> None:
    table = read_classes(root / "classes.json")
    for folder, convert in (
        ("ids", lambda ids: np.where(ids == 255, 0, ids + 1).astype(np.uint8)),  # stored as 1, 2, 3
        ("colours", lambda ids: np.array(table.palette, np.uint8)[np.minimum(ids, 2)]),
    ):
        (tmp_path / folder).mkdir()
        for name, ids in positions(root).items():
            Image.fromarray(convert(ids)).save(tmp_path / folder / f"{name}.png")
        for how in ("stored", str(root / "classes.json")):
            found = score(root, tmp_path / folder, "--label-encoding", how)
            assert found["miou"] == pytest.approx(expected(root), abs=1e-12)


def test_the_ground_truth_is_perfect_and_the_report_is_complete(root: Path, tmp_path: Path) -> None:
    data = Folder(root=root)
    for i, name in enumerate(data.names):
        save_gray(tmp_path / name, data.read(i).labels)  # type: ignore[arg-type]
    assert set(score(root, tmp_path).values()) == {1.0}
    made = {path.name for path in (tmp_path / "out").iterdir()}
    tables = {"per_image.csv", "per_class.csv", "confusion.csv"}
    assert made == {"metrics.json", "confusion.png", "counts.npz", "report.html", *tables}
    with open(tmp_path / "out/per_class.csv", newline="") as file:
        rows = {row["class"]: row for row in csv.DictReader(file)}
    assert {row["iou"] for row in rows.values()} == {"1"}
    assert sum(float(row["share"]) for row in rows.values()) == pytest.approx(1)
    page = (tmp_path / "out/report.html").read_text()
    assert all(name in page for name in ("mIoU", "boundary IoU", "wall", "box", "Confusion"))
    assert "http" not in page.replace("http-equiv", "")


def test_pixels_of_no_class_are_counted_and_reported(root: Path, tmp_path: Path, capsys) -> None:
    for name, ids in positions(root).items():
        save_gray(tmp_path / name, np.where(np.arange(ids.shape[1]) < 8, 255, ids))
    assert score(root, tmp_path)["miou"] < expected(root)
    assert "pixels predicted as none of the classes, counted as wrong" in capsys.readouterr().out
    assert json.loads((tmp_path / "out/metrics.json").read_text())["counts"]["unclassified_pixels"] > 0


def refuse(root: Path, folder: Path, shell: Shell, *more: object) -> str:
    told = shell(*command(root, folder, *more), code=2)
    assert "miou" not in told.out
    return told.err


def test_what_does_not_fit_is_reported_before_anything_is_scored(root: Path, tmp_path: Path, shell: Shell) -> None:
    maps = positions(root)
    for name, ids in list(maps.items())[:-1]:
        save_gray(tmp_path / name, ids)
    assert "no map for 1 of 5 images" in refuse(root, tmp_path, shell)
    save_gray(tmp_path / "004", maps["004"][:-1])
    assert "004: a label map of 59x80 cannot be scored against labels of 60x80" in refuse(root, tmp_path, shell)
    (tmp_path / "other.json").write_text('["wall", "floor", "sky"]')
    printed = refuse(root, tmp_path, shell, "--label-encoding", tmp_path / "other.json")
    assert "the first that differs is 'sky', not 'box'" in printed
    save_gray(tmp_path / "004", maps["004"])
    (tmp_path / "file").touch()
    assert "cannot be made" in refuse(root, tmp_path, shell, "--output", tmp_path / "file")
    words = ["--predictions", tmp_path, "--data", "middlebury_motorcycle"]
    assert "names no classes" in shell.refused("eval", "--task", "segmentation", *words)
    words = ["--data", "folder", "--root", root, "--scales", "0,1"]
    assert "numbers over 0 and up to 8" in shell.refused("eval", "x", "--task", "segmentation", *words)
