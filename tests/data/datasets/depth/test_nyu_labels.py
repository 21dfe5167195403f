"""The labels of NYU's .mat: chosen, all 894, and mapped to fewer by files of the published forms."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import layouts
import numpy as np
import pytest
import scipy.io
from photo_samples import sample

from densevit.data.datasets.base import Dataset
from densevit.data.datasets.depth.nyu.label_maps import mapped_labels
from densevit.data.labels.class_table import EMPTY
from densevit.errors import DataError
from densevit.structures import IGNORE, Sample

KNOWN = ("wall", "floor", "bed", "chair")
SIX = tuple(f"c{i}" for i in range(6))


def texts(*words: str) -> np.ndarray:
    """A MATLAB cell array, 1 x n."""
    cells = np.empty((1, len(words)), object)
    cells[0] = words
    return cells


def write_40(path: Path) -> None:
    """As classMapping40.mat: here four classes to three."""
    tree = {"mapClass": np.array([[1, 2, 3, 3]], np.uint8), "allClassName": texts(*KNOWN)}
    scipy.io.savemat(path, {**tree, "className": texts("wall", "floor", "furniture")})


def write_13(path: Path) -> None:
    """As class13Mapping.mat: three classes to two."""
    mapping = {"labels13": np.array([[2, 2, 1]], np.uint8), "classNames": texts("thing", "structure")}
    scipy.io.savemat(path, {"classMapping13": mapping})


def stored() -> Sample:
    """Frame 0, a test frame, with labels 0 to 3 and holes in its first column."""
    frame = sample("bathroom/0")
    frame.labels[:, 0] = IGNORE
    return frame


@pytest.fixture(scope="module")
def mat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nyu") / "nyu_depth_v2_labeled.mat"
    layouts.write_nyu_labeled(path, [stored()], classes=KNOWN)
    write_40(path.parent / "40.mat")
    write_13(path.parent / "13.mat")
    mine = {"classes": ["seat", "floor"], "of": {"chair": "seat", "bed": "seat", "floor": "floor"}}
    (path.parent / "mine.json").write_text(json.dumps(mine))
    return path


def open_nyu(root: Path, **options: Any) -> Dataset:
    return layouts.opened("nyu", root, split="test", subset="available", **options)


@pytest.mark.parametrize(
    ("label_map", "classes", "ids"),
    [
        ("raw", KNOWN, [0, 1, 2, 3]),
        ("40.mat", ("wall", "floor", "furniture"), [0, 1, 2, 2]),
        (["40.mat", "13.mat"], ("thing", "structure"), [1, 1, 0, 0]),
        ("mine.json", ("seat", "floor"), [IGNORE, 1, 0, 0]),
    ],
)
def test_labels_are_all_classes_or_those_of_mapping_files_beside_the_mat(
    mat: Path, label_map: Any, classes: tuple[str, ...], ids: list[int]
) -> None:
    data = open_nyu(mat, label_map=label_map)
    np.testing.assert_array_equal(data.label_map(0), np.array([*ids, *[IGNORE] * 252])[stored().labels])
    assert tuple(data.classes) == classes


def test_labels_of_another_shape_than_the_images_are_refused(mat: Path, tmp_path: Path) -> None:
    copied = shutil.copy(mat, tmp_path)
    with h5py.File(copied, "r+") as file:
        labels = file["labels"][:]
        del file["labels"]
        file["labels"] = labels.swapaxes(1, 2)
    with pytest.raises(DataError, match=r"images \(\d+, 3, 640, 480\) and labels \(\d+, 480, 640\)"):
        open_nyu(copied, label_map="raw")


def test_a_mapping_goes_by_names_not_by_places(tmp_path: Path) -> None:
    scipy.io.savemat(
        tmp_path / "m.mat",
        {"mapClass": [[2, 1]], "allClassName": texts("bed", "wall"), "className": texts("wall", "furniture")},
    )
    labels = mapped_labels(Path("nyu.mat"), ["wall", "bed"], [tmp_path / "m.mat"])
    assert labels(Path("nyu.mat"), np.array([[0, 1, 2]])).tolist() == [[IGNORE, 0, 1]]


def test_of_894_classes_the_256th_has_id_256() -> None:
    labels = mapped_labels(Path("nyu.mat"), [f"c{i}" for i in range(1, 895)], [])
    ids = labels(Path("nyu.mat"), np.array([[0, 1, 255, 256, 894]]))
    assert ids.tolist() == [[IGNORE, 0, 254, 256, 894]]
    assert labels.table.names[255] == EMPTY and labels.table.names[894] == "c894" and len(labels.table) == 895
    with pytest.raises(DataError, match=r"nyu\.mat: 2 pixels have labels up to 900; the file names 894"):
        labels(Path("nyu.mat"), np.array([[0, 895, 900]]))


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"mapClass": [[1, 2]], "allClassName": texts("c0", "c1"), "className": texts("a", "b")}, "c2"),
        ({"mapClass": [[1] * 5 + [9]], "allClassName": texts(*SIX), "className": texts("a")}, "c5: 9"),
        ({"mapClass": [[1] * 6], "allClassName": [[1.0]], "className": texts("a")}, "texts|mapping"),
        ({"mapClass": [[1] * 6]}, "no 'allClassName'"),
        ({"other": [[1]]}, "holds other; expected mapClass"),
    ],
)
def test_a_mapping_that_is_none_is_an_error_that_names_it(tmp_path: Path, tree: dict[str, Any], reason: str) -> None:
    scipy.io.savemat(tmp_path / "m.mat", tree)
    with pytest.raises(DataError, match=rf"(?s)m\.mat: .*{reason}"):
        mapped_labels(Path("nyu.mat"), SIX, [tmp_path / "m.mat"])


@pytest.mark.parametrize("text", ["", "[]", '{"classes": ["a"]}', '{"classes": ["a"], "of": {"c0": "b"}}'])
def test_a_json_mapping_that_is_none_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(DataError, match=r"m\.json"):
        mapped_labels(Path("nyu.mat"), SIX, [tmp_path / "m.json"])


def test_classes_and_a_mapping_exclude_each_other(mat: Path) -> None:
    with pytest.raises(DataError, match="one of `classes` and `label_map`"):
        open_nyu(mat, classes=["wall"], label_map="raw")
    with pytest.raises(DataError, match="source: mat"):
        open_nyu(mat.parent, source="sync", label_map="raw")
    with pytest.raises(DataError, match=r"none\.mat: no such file"):
        open_nyu(mat, label_map="none.mat")
