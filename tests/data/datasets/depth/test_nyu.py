"""NYU Depth v2 from files of its real shape, labels of all forms, and two frames from $DENSEVIT_SAMPLES."""

import json
import logging
import os
import pickle
import shutil
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import h5py
import layouts
import numpy as np
import pytest
import scipy.io
from photo_samples import sample

from densevit.data.datasets.base import Dataset
from densevit.data.datasets.depth.nyu.dataset import Nyu
from densevit.data.datasets.depth.nyu.label_maps import mapped_labels
from densevit.data.datasets.depth.nyu.mat_file import official_frames
from densevit.data.index.paths import collect_missing
from densevit.data.index.published_splits import read_list
from densevit.data.io.readers import read_depth, read_image
from densevit.data.labels.class_table import EMPTY
from densevit.data.prepare import repack_nyu
from densevit.errors import DataError
from densevit.structures import IGNORE, Sample

CLASSES = ("wall", "floor", "bed", "chair")
SAMPLES = os.environ.get("DENSEVIT_SAMPLES")
real = pytest.mark.skipif(not SAMPLES, reason="$DENSEVIT_SAMPLES names no folder of real samples")


@pytest.fixture(scope="module")
def mat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six frames; by the official split 0 and 1 are test, 2 to 5 train."""
    path = tmp_path_factory.mktemp("nyu") / "nyu_depth_v2_labeled.mat"
    layouts.write_nyu_labeled(path, [sample(f"bathroom/{i}", shift=31 * i) for i in range(6)], classes=CLASSES)
    return path


def open_nyu(root: Path, **options: Any) -> Dataset:
    return layouts.opened("nyu", root, **options)


def test_the_official_split_has_795_and_654_frames_and_the_published_names() -> None:
    train, test = official_frames("train"), official_frames("test")
    assert (len(train), len(test)) == (795, 654)
    assert sorted(train + test) == list(range(1449))
    assert test[:4] == [0, 1, 8, 13]  # testNdxs begins 1, 2, 9, 14
    numbers = [int(image[-9:-4]) for image, _ in read_list(Path(), None, "nyu_sync_test.txt.gz")]
    assert sorted(numbers) == test


def test_the_published_lists_have_24231_and_654_pairs_without_leading_slash() -> None:
    train = read_list(Path(), None, "nyu_sync_train.txt.gz")
    assert len(train) == 24_231
    assert train[0] == ("kitchen_0028b/rgb_00045.jpg", "kitchen_0028b/sync_depth_00045.png")
    assert len(read_list(Path(), None, "nyu_sync_test.txt.gz")) == 654


def test_a_frame_of_the_mat_comes_upright_and_in_metres(mat: Path) -> None:
    data = open_nyu(mat.parent, split="train", border="keep", subset="available")
    assert list(data.names) == [f"bathroom/rgb_0000{i}" for i in (2, 3, 4, 5)]
    got, expected = data.read(1), sample("x", shift=31 * 3)
    np.testing.assert_array_equal(got.image, expected.image)
    # Whole millimetres, truncated, as the published test set was cut: never above, less than 1 mm below.
    below = expected.depth - got.depth
    assert below.min() > -1e-6 and below.max() < 1.001e-3
    np.testing.assert_array_equal(got.valid, expected.valid)
    assert got.intrinsics is not None and got.intrinsics[0, 2] == 325.5824
    assert got.image.flags.c_contiguous and got.depth.flags.c_contiguous


def test_filled_depth_has_no_holes_and_images_are_black_outside_the_published_window(mat: Path) -> None:
    raw = open_nyu(mat.parent, split="test", subset="available").read(0)
    filled = open_nyu(mat, split="test", depth="filled", subset="available").read(0)  # the .mat itself will do
    assert not raw.valid.all() and filled.valid.all()
    outside = np.ones((480, 640), bool)
    outside[7:474, 7:632] = False
    assert not raw.image[outside].any()
    np.testing.assert_array_equal(raw.image[7:474, 7:632], sample("x").image[7:474, 7:632])


def test_crop_moves_the_camera_and_mask_takes_depth_away(mat: Path) -> None:
    cropped = open_nyu(mat.parent, split="test", border="crop", subset="available").read(0)
    masked = open_nyu(mat.parent, split="test", border="mask", subset="available").read(0)
    assert cropped.image.shape == (427, 565, 3)
    np.testing.assert_allclose(cropped.intrinsics[:2, 2], [325.5824 - 43, 253.7362 - 45])
    np.testing.assert_array_equal(masked.depth[45:472, 43:608], cropped.depth)
    assert np.count_nonzero(masked.depth) == np.count_nonzero(cropped.depth)
    assert masked.valid.sum() == np.count_nonzero(masked.depth)


def test_chosen_classes_are_numbered_as_chosen_and_the_rest_ignored(mat: Path) -> None:
    data = open_nyu(mat.parent, split="test", classes=["chair", "wall"], subset="available")
    got, stored = data.read(0).labels, sample("x").labels
    assert got is not None and stored is not None
    np.testing.assert_array_equal(got, np.select([stored == 3, stored == 0], [0, 1], 255))
    with pytest.raises(DataError, match="Did you mean 'chair'"):
        open_nyu(mat.parent, split="test", classes=["chiar"], subset="available")


def test_a_mat_of_fewer_frames_is_refused_unless_a_part_will_do(mat: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataError, match=r"6 frames; the official file has 1449.*subset: available"):
        open_nyu(mat.parent)
    with caplog.at_level(logging.WARNING), collect_missing() as lacks:
        assert len(open_nyu(mat.parent, subset="available")) == 4
    assert "4 of the 795" in caplog.text
    assert [lack.kind for lack in lacks] == ["left_out"]  # in check-data


def _sum(data: Dataset) -> int:
    return int(data.read(1).image.sum())


@pytest.mark.filterwarnings("ignore:This process")  # is multi-threaded, says Python 3.12
def test_a_forked_worker_or_a_pickled_reader_opens_the_file_for_itself(mat: Path) -> None:
    data = open_nyu(mat.parent, split="train", subset="available")
    expected = _sum(data)
    assert _sum(pickle.loads(pickle.dumps(data))) == expected
    with get_context("fork").Pool(1) as pool:
        assert pool.apply(_sum, (data,)) == expected
    opened = data.mat._file()
    data.mat._pid = -1  # as a fork finds it
    assert data.mat._file() is not opened


@pytest.mark.parametrize("damage", ["truncated", "no images", "other shapes", "not hdf5", "external"])
def test_a_bad_mat_is_a_data_error_that_names_it(mat: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / mat.name
    shutil.copy(mat, path)
    if damage == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    elif damage == "not hdf5":
        path.write_bytes(b"MATLAB 5.0 MAT-file")
    else:
        with h5py.File(path, "r+") as file:
            del file["images"]
            if damage == "other shapes":
                file["images"] = np.zeros((6, 480, 640, 3), np.uint8)
            if damage == "external":
                file["images"] = h5py.ExternalLink("other.mat", "images")
    with pytest.raises(DataError, match="nyu_depth_v2_labeled.mat"):
        open_nyu(path, split="test", subset="available")


@pytest.mark.slow
def test_chunks_across_frames_are_found_and_repacking_keeps_every_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = tmp_path / "old.mat", tmp_path / "nyu_depth_v2_labeled.mat"
    layouts.write_nyu_labeled(old, [sample(f"study/{i}") for i in range(3)], classes=CLASSES, chunks="across")
    assert "many times faster" in repack_nyu.advice(old)
    with caplog.at_level(logging.WARNING):
        before = open_nyu(old, split="test", subset="available", classes=CLASSES)
    assert "--repack" in caplog.text
    repack_nyu.repack(old, new)
    assert "gains little" in repack_nyu.advice(new)
    with h5py.File(new, "r") as file:
        assert file["images"].chunks == (1, 3, 640, 480) and file["images"].fletcher32
    after = open_nyu(new, split="test", subset="available", classes=CLASSES)
    assert list(after.names) == list(before.names)
    for i in range(2):
        a, b = before.read(i), after.read(i)
        for x, y in ((a.image, b.image), (a.depth, b.depth), (a.labels, b.labels)):
            np.testing.assert_array_equal(x, y)
    with pytest.raises(DataError, match="another name"):
        repack_nyu.repack(new, new)


def test_extracted_folders_read_as_the_mat_does(mat: Path, tmp_path: Path) -> None:
    assert repack_nyu.extract(mat, tmp_path) == {"train": 4, "test": 2}
    folders = open_nyu(tmp_path, split="test", list_file="nyu_labeled_test.txt")
    direct = open_nyu(mat, split="test", subset="available")
    assert list(folders.names) == list(direct.names)
    for i in range(2):
        a, b = folders.read(i), direct.read(i)
        np.testing.assert_array_equal(a.depth, b.depth)
        assert np.abs(a.image.astype(int) - b.image).mean() < 3  # JPEG
    stamp = (tmp_path / "official_splits/test/bathroom/rgb_00000.jpg").stat().st_mtime_ns
    repack_nyu.extract(mat, tmp_path)
    assert (tmp_path / "official_splits/test/bathroom/rgb_00000.jpg").stat().st_mtime_ns == stamp
    train = open_nyu(tmp_path, list_file="nyu_labeled_train.txt", border="keep")
    assert list(train.names) == [f"bathroom/rgb_0000{i}" for i in (2, 3, 4, 5)]


def test_sync_folders_are_read_as_they_are_and_cropped_on_request(tmp_path: Path) -> None:
    layouts.write_nyu_sync(tmp_path, [sample(f"kitchen_0001/rgb_{i:05d}", shift=i) for i in range(3)])
    layouts.write_nyu_sync(tmp_path, [sample("bathroom/rgb_00045")], "test")
    train = open_nyu(tmp_path, list_file="nyu_sync_train.txt")
    test = open_nyu(tmp_path, split="test", list_file="nyu_sync_test.txt")
    assert list(train.names) == [f"kitchen_0001/rgb_0000{i}" for i in range(3)]
    assert train.read(0).image.shape == (480, 640, 3)
    assert open_nyu(tmp_path, list_file="nyu_sync_train.txt", border="crop").read(0).image.shape == (427, 565, 3)
    got, expected = test.read(0), sample("x")
    assert got.image.shape == (480, 640, 3)
    np.testing.assert_allclose(got.depth, expected.depth, atol=0.5001e-3)


@pytest.mark.slow
def test_missing_files_are_counted_at_opening_and_a_part_will_do_when_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataError, match="neither nyu_depth_v2_labeled.mat nor the 'train' folders"):
        open_nyu(tmp_path)
    with pytest.raises(DataError, match="DENSEVIT_DATASETS"):
        open_nyu(tmp_path / "nowhere")
    (tmp_path / "sync/kitchen_0028b").mkdir(parents=True)
    with pytest.raises(DataError, match="24,231 of 24,231 samples lack a file") as error:
        open_nyu(tmp_path)
    assert str(error.value).count("\n  ") == 6 and "and 48,457 more" in str(error.value)
    layouts.write_nyu_sync(tmp_path, [sample("bathroom/rgb_00045")], "test")
    with pytest.raises(DataError, match="653 of 654"):
        open_nyu(tmp_path, split="test")
    assert list(open_nyu(tmp_path, split="test", subset="available").names) == ["bathroom/rgb_00045"]
    assert "653 of 654" in caplog.text


def test_sizes_that_are_not_480_by_640_are_named(tmp_path: Path) -> None:
    layouts.write_nyu_sync(tmp_path, [sample("bathroom/rgb_00045", 240, 320)], "test")
    assert open_nyu(tmp_path, split="test", subset="available").read(0).image.shape == (240, 320, 3)
    with pytest.raises(DataError, match="'bathroom/rgb_00045' is 240 x 320"):
        open_nyu(tmp_path, split="test", subset="available", border="mask").read(0)


@real
def test_the_real_frames_lie_inside_their_white_border(tmp_path: Path) -> None:
    assert SAMPLES
    folder = tmp_path / "sync/scene_0001"
    folder.mkdir(parents=True)
    for file in (*Path(SAMPLES).glob("nyu_v2/rgb/*"), *Path(SAMPLES).glob("nyu_v2/depth/*")):
        shutil.copy(file, folder / file.name)
    pairs = [f"/scene_0001/rgb_{n}.jpg /scene_0001/sync_depth_{n}.png 518.8579\n" for n in ("00000", "00050")]
    (tmp_path / "list.txt").write_text("".join(pairs))
    data = Nyu(root=tmp_path, list_file=Path("list.txt"), border="crop")
    frame = data.read(0)
    assert frame.image.shape == (427, 565, 3)
    assert frame.image[:, :3].mean() < 240 < read_image(folder / "rgb_00000.jpg")[:, :3].mean()
    assert frame.valid.mean() > 0.85 and 0.5 < np.median(frame.depth[frame.valid]) < 10
    assert read_depth(folder / "sync_depth_00000.png", 1000).max() == np.float32(6.625)


KNOWN = ("wall", "floor", "bed", "chair")
SIX = tuple(f"c{i}" for i in range(6))


def texts(*words: str) -> np.ndarray:
    """A MATLAB cell array, 1 x n."""
    cells = np.empty((1, len(words)), object)
    cells[0] = words
    return cells


def stored() -> Sample:
    """Frame 0, a test frame, with labels 0 to 3 and holes in its first column."""
    frame = sample("bathroom/0")
    frame.labels[:, 0] = IGNORE
    return frame


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nyu") / "nyu_depth_v2_labeled.mat"
    layouts.write_nyu_labeled(path, [stored()], classes=KNOWN)
    tree = {"mapClass": np.array([[1, 2, 3, 3]], np.uint8), "allClassName": texts(*KNOWN)}
    tree |= {"className": texts("wall", "floor", "furniture")}  # as classMapping40.mat: here four classes to three
    scipy.io.savemat(path.parent / "40.mat", tree)
    fewer = {"labels13": np.array([[2, 2, 1]], np.uint8), "classNames": texts("thing", "structure")}
    scipy.io.savemat(path.parent / "13.mat", {"classMapping13": fewer})  # as class13Mapping.mat: three to two
    mine = {"classes": ["seat", "floor"], "of": {"chair": "seat", "bed": "seat", "floor": "floor"}}
    (path.parent / "mine.json").write_text(json.dumps(mine))
    return path


def open_labelled(root: Path, **options: Any) -> Dataset:
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
    labelled: Path, label_map: Any, classes: tuple[str, ...], ids: list[int]
) -> None:
    data = open_labelled(labelled, label_map=label_map)
    np.testing.assert_array_equal(data.label_map(0), np.array([*ids, *[IGNORE] * 252])[stored().labels])
    assert tuple(data.classes) == classes


def test_labels_of_another_shape_than_the_images_are_refused(labelled: Path, tmp_path: Path) -> None:
    copied = shutil.copy(labelled, tmp_path)
    with h5py.File(copied, "r+") as file:
        labels = file["labels"][:]
        del file["labels"]
        file["labels"] = labels.swapaxes(1, 2)
    with pytest.raises(DataError, match=r"images \(\d+, 3, 640, 480\) and labels \(\d+, 480, 640\)"):
        open_labelled(copied, label_map="raw")


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


def test_classes_and_a_mapping_exclude_each_other(labelled: Path) -> None:
    with pytest.raises(DataError, match="one of `classes` and `label_map`"):
        open_labelled(labelled, classes=["wall"], label_map="raw")
    with pytest.raises(DataError, match="source: mat"):
        open_labelled(labelled.parent, source="sync", label_map="raw")
    with pytest.raises(DataError, match=r"none\.mat: no such file"):
        open_labelled(labelled, label_map="none.mat")
