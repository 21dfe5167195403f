"""The writers make what the public data sets' descriptions say, checked without our readers."""

from pathlib import Path

import cv2
import h5py
import layouts
import numpy as np
from photo_samples import sample


def test_the_labelled_mat_has_matlab_axes_header_and_types(tmp_path: Path) -> None:
    frames = [sample(f"kitchen/{i}", shift=20 * i) for i in range(3)]
    layouts.write_nyu_labeled(tmp_path / "a.mat", frames, classes=("wall", "floor", "bed", "chair"))
    assert (tmp_path / "a.mat").read_bytes()[:10] == b"MATLAB 7.3"
    with h5py.File(tmp_path / "a.mat", "r") as file:
        assert file.userblock_size == 512
        shapes = {key: (file[key].shape, file[key].dtype) for key in ("images", "rawDepths", "depths", "labels")}
        assert shapes == {
            "images": ((3, 3, 640, 480), np.uint8),
            "rawDepths": ((3, 640, 480), np.float32),
            "depths": ((3, 640, 480), np.float32),
            "labels": ((3, 640, 480), np.uint16),
        }
        assert file["images"][1, 2, 600, 100] == frames[1].image[100, 600, 2]
        assert file["rawDepths"][1, 600, 100] == frames[1].depth[100, 600]
        assert file["sceneTypes"].shape == (1, 3)
        assert bytes(file[file["sceneTypes"][0, 0]][()].astype(np.uint8).ravel()) == b"kitchen"


def test_filling_takes_the_nearest_depth_and_keeps_what_is_there() -> None:
    depth = np.array([[1, 0, 0, 0, 5]], np.float32).repeat(5, axis=0)
    filled = layouts.fill(depth)
    np.testing.assert_array_equal(filled[:, [0, 1, 3, 4]], np.array([[1, 1, 5, 5]]).repeat(5, axis=0))
    assert not layouts.fill(np.zeros((3, 4), np.float32)).any()


def test_nyu_folders_are_jpegs_and_millimetres(tmp_path: Path) -> None:
    frame = sample("kitchen_0001/rgb_00045")
    listed = layouts.write_nyu_sync(tmp_path, [frame])
    assert listed.read_text() == "/kitchen_0001/rgb_00045.jpg /kitchen_0001/sync_depth_00045.png 518.8579\n"
    stored = cv2.imread(str(tmp_path / "sync/kitchen_0001/sync_depth_00045.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint16
    np.testing.assert_array_equal(stored, np.rint(frame.depth.astype(float) * 1000))
    assert (tmp_path / "sync/kitchen_0001/rgb_00045.jpg").read_bytes()[:3] == b"\xff\xd8\xff"


def test_a_kitti_drive_has_the_published_paths_and_256ths_of_a_metre(tmp_path: Path) -> None:
    frame = sample("0000000005", 375, 1242)
    listed = layouts.write_kitti(tmp_path, [frame], date="2011_09_28", drive=2)
    drive = "2011_09_28_drive_0002_sync"
    image, depth, _ = listed.read_text().split()
    assert image == f"2011_09_28/{drive}/image_02/data/0000000005.png"
    assert depth == f"{drive}/proj_depth/groundtruth/image_02/0000000005.png"
    truth = tmp_path / "data_depth_annotated/train" / drive / "proj_depth/groundtruth/image_02/0000000005.png"
    stored = cv2.imread(str(truth), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(stored, np.rint(frame.depth.astype(float) * 256))
    assert "P_rect_02: 5.000000e+02" in (tmp_path / "raw/2011_09_28/calib_cam_to_cam.txt").read_text()


def test_depth_that_sixteen_bits_cannot_hold_is_written_as_none() -> None:
    png = layouts.encode_depth(np.array([[300.0, 1.0, np.nan, np.inf, -2.0]], np.float32), 256.0)
    stored = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(stored, [[0, 256, 0, 0, 0]])
