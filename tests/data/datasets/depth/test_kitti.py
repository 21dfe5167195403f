"""KITTI from files of its real shape, and from two real frames where $DENSEVIT_SAMPLES has them."""

import os
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import layouts
import numpy as np
import pytest
from photo_samples import sample

from densevit.data.datasets.base import Dataset
from densevit.data.datasets.depth.kitti import INTRINSICS
from densevit.data.index.published_splits import read_list
from densevit.errors import DataError

SAMPLES = os.environ.get("DENSEVIT_SAMPLES")
real = pytest.mark.skipif(not SAMPLES, reason="$DENSEVIT_SAMPLES names no folder of real samples")
DRIVE = "2011_09_26_drive_0001_sync"


FRAME = sample("5", 375, 1242)


def open_kitti(root: Path, **options: Any) -> Dataset:
    return layouts.opened("kitti", root, **options)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """The list of one frame, written to the folder of the test."""
    return layouts.write_kitti(tmp_path, [FRAME])


def test_the_eigen_lists_have_the_published_counts() -> None:
    test = read_list(Path(), None, "kitti_eigen_test.txt.gz")
    assert len(test) == 697
    assert sum(depth is not None for _, depth in test) == 652
    assert len(read_list(Path(), None, "kitti_eigen_train.txt.gz")) == 23_158


CORNERS = {
    (375, 1242): (23, 13),
    (370, 1226): (18, 5),
    (370, 1224): (18, 4),
    (374, 1238): (22, 11),
    (376, 1241): (24, 12),
}


@pytest.mark.parametrize(("size", "corner"), CORNERS.items())
def test_each_native_size_is_read_and_cropped_at_its_published_corner(
    tmp_path: Path, size: tuple[int, int], corner: tuple[int, int]
) -> None:
    frame = sample("0000000005", *size)
    listed = layouts.write_kitti(tmp_path, [frame])
    whole = open_kitti(tmp_path, list_file=listed.name).read(0)
    cropped = open_kitti(tmp_path, list_file=listed.name, crop="kb").read(0)
    np.testing.assert_array_equal(whole.image, frame.image)
    np.testing.assert_allclose(whole.depth, frame.depth, atol=0.5 / 256 + 1e-6)
    (top, left), window = corner, np.s_[corner[0] : corner[0] + 352, corner[1] : corner[1] + 1216]
    assert cropped.image.shape == (352, 1216, 3) and top + 352 == size[0]
    for name in ("image", "depth", "valid"):
        np.testing.assert_array_equal(getattr(cropped, name), getattr(whole, name)[window])
    np.testing.assert_allclose(cropped.intrinsics[:2, 2], [320 - left, 240 - top])


def test_without_a_calibration_file_the_day_tells_the_camera(tmp_path: Path) -> None:
    for date, (focal, cx, cy) in INTRINSICS.items():
        listed = layouts.write_kitti(tmp_path / date, [FRAME], date=date)
        (tmp_path / date / "raw" / date / "calib_cam_to_cam.txt").unlink()
        matrix = open_kitti(tmp_path / date, list_file=listed.name).read(0).intrinsics
        np.testing.assert_array_equal(matrix, [[focal, 0, cx], [0, focal, cy], [0, 0, 1]])


def test_the_calibration_file_goes_before_the_table_and_must_be_whole(tmp_path: Path, listed: Path) -> None:
    assert open_kitti(tmp_path, list_file=listed.name).read(0).intrinsics[0, 0] == 500
    (tmp_path / "raw/2011_09_26/calib_cam_to_cam.txt").write_text("P_rect_02: 1 2 three\n")
    with pytest.raises(DataError, match="calib_cam_to_cam.txt: expected 12 numbers"):
        open_kitti(tmp_path, list_file=listed.name)


TRUTHS = ["data_depth_annotated/train", "data_depth_annotated/val", "data_depth_annotated", "gts", ""]


def test_both_halves_are_found_where_people_keep_them(tmp_path: Path, listed: Path) -> None:
    images, maps = tmp_path / "raw/2011_09_26", tmp_path / "data_depth_annotated/train" / DRIVE
    for i, (below, truth) in enumerate(product(("", "raw"), TRUTHS)):
        root = tmp_path / f"kitti{i}"
        (root / truth).mkdir(parents=True)
        shutil.copytree(images, root / below / "2011_09_26")
        shutil.copytree(maps, root / truth / DRIVE)
        shutil.copy(listed, root / "list.txt")
        assert open_kitti(root, list_file="list.txt").read(0).depth.any(), (below, truth)


def test_depth_may_lie_under_another_root_and_images_be_converted_to_jpg(tmp_path: Path, listed: Path) -> None:
    shutil.move(tmp_path / "data_depth_annotated", tmp_path / "b")
    assert open_kitti(tmp_path, depth_root=tmp_path / "b", list_file=listed.name).read(0).valid.any()
    png = tmp_path / "raw/2011_09_26" / DRIVE / "image_02/data/0000000005.png"
    png.with_suffix(".jpg").write_bytes(layouts.encode(".jpg", FRAME.image))
    png.unlink()
    data = open_kitti(tmp_path, depth_root=tmp_path / "b", list_file=listed.name)
    assert data.read(0).image.shape == (375, 1242, 3)


def test_the_right_camera_is_read_on_request(tmp_path: Path, listed: Path) -> None:
    right = sample("5", 375, 1242, shift=50)
    layouts.write_kitti(tmp_path, [right], camera="image_03")
    both = open_kitti(tmp_path, list_file=listed.name, camera="both")
    assert [name.split("/")[2] for name in both.names] == ["image_02", "image_03"]
    np.testing.assert_array_equal(both.read(1).image, right.image)
    assert len(open_kitti(tmp_path, list_file=listed.name, camera="right")) == 1


def test_test_697_adds_the_images_without_truth(tmp_path: Path) -> None:
    listed = layouts.write_kitti(tmp_path, [sample("5", 375, 1242), sample("6", 375, 1242)])
    lines = listed.read_text().splitlines()
    listed.write_text(f"{lines[0]}\n{lines[1].split()[0]} None 721.5377\n")
    assert len(open_kitti(tmp_path, split="test", list_file=listed.name)) == 1
    more = open_kitti(tmp_path, split="test_697", list_file=listed.name)
    assert len(more) == 2 and more.read(1).depth is None and more.read(1).valid is None


def test_the_benchmark_layout_is_read_with_its_cameras(tmp_path: Path) -> None:
    frames = [sample(str(i), 352, 1216, shift=i) for i in range(2)]
    layouts.write_kitti_selection(tmp_path, frames)
    layouts.write_kitti_selection(tmp_path, frames, truth=False)
    with pytest.raises(DataError, match="lacks 998 images"):
        open_kitti(tmp_path, split="selection")
    for image in [*tmp_path.rglob("image/*.png")]:
        image.with_name(f"._{image.name}").write_bytes(b"\0\x05\x16\x07")  # as a Mac leaves them
    got = open_kitti(tmp_path, split="selection", crop="kb", subset="available").read(1)
    np.testing.assert_array_equal(got.image, frames[1].image)
    np.testing.assert_array_equal(got.intrinsics, frames[1].intrinsics)
    assert got.depth is not None and got.depth.any()
    hidden = open_kitti(tmp_path / "depth_selection", split="anonymous", subset="available")
    assert list(hidden.names) == ["0000000000", "0000000001"] and hidden.read(0).depth is None
    with pytest.raises(DataError, match="depth_selection"):
        open_kitti(tmp_path / "depth_selection/val_selection_cropped/image", split="anonymous")


def test_a_bad_list_is_refused(tmp_path: Path) -> None:
    for line in ("only_one_word\n", "a b c d\n", "../x.png y.png\n", "no/drive.png d.png\n", "\n"):
        (tmp_path / "list.txt").write_text(line)
        with pytest.raises(DataError):
            open_kitti(tmp_path, list_file="list.txt")


@real
def test_the_real_frames_are_sparse_and_metric(tmp_path: Path) -> None:
    assert SAMPLES
    raw = tmp_path / "2011_09_26" / DRIVE / "image_02/data"
    truth = tmp_path / "data_depth_annotated/train" / DRIVE / "proj_depth/groundtruth/image_02"
    shutil.copytree(Path(SAMPLES) / "kitti/rgb", raw)
    shutil.copytree(Path(SAMPLES) / "kitti/depth", truth)
    frames = [f"2011_09_26/{DRIVE}/image_02/data/{n}.png" for n in ("0000000005", "0000000050")]
    (tmp_path / "list.txt").write_text("".join(f"{f} {DRIVE}/x/{Path(f).name} 721.5377\n" for f in frames))
    data = open_kitti(tmp_path, list_file="list.txt")
    for i in range(2):
        frame = data.read(i)
        assert frame.image.shape == (375, 1242, 3)
        assert 0.19 < frame.valid.mean() < 0.21  # counted with OpenCV: 19.5 and 20.6 %
        assert frame.depth[frame.valid].min() > 1 and frame.depth.max() < 86  # stored maximum 21733 / 256 = 84.9
