"""Every data set to evaluate on, from files of its real layout and encoding; and the bundled stereo photograph."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import layouts
import numpy as np
import pytest
from photo_samples import assert_damage_is_named, sample
from skimage.data import stereo_motorcycle

from densevit.data.datasets.base import DATASETS, Dataset
from densevit.data.datasets.depth.hypersim import planar_depth
from densevit.data.datasets.depth.sunrgbd import rotate_right
from densevit.data.recordings.layouts import associate
from densevit.errors import DataError
from densevit.structures import Sample


@dataclass(frozen=True)
class Case:
    """A data set, how its files are written, and what reading them may change."""

    type: str
    write: Callable[..., None]
    size: tuple[int, int]
    atol: float  # metres: half a stored step
    rtol: float = 0.0
    exact_image: bool = True  # a PNG
    intrinsics: bool = True  # the sample's own come back
    options: dict[str, Any] = field(default_factory=dict)
    scene: str = ""


# The steps are the data sets' own: 50 m in 65535, a millimetre, a centimetre, 1/5000 m, a 16-bit float's 11 digits.
CASES = [
    Case("ibims", layouts.write_ibims, (480, 640), 0.5 * 50 / 65535),
    Case("diode", layouts.write_diode, (768, 1024), 0, intrinsics=False),
    Case("sunrgbd", layouts.write_sunrgbd, (530, 730), 0.5e-3, exact_image=False),
    Case("eth3d", layouts.write_eth3d, (400, 600), 0, exact_image=False, intrinsics=False, scene="courtyard"),
    Case("sintel", layouts.write_sintel, (436, 1024), 0, scene="courtyard"),
    Case("ddad", layouts.write_ddad, (1216, 1936), 0, scene="courtyard"),
    Case("hypersim", layouts.write_hypersim, (768, 1024), 0, rtol=2**-11, exact_image=False, intrinsics=False),
    Case("vkitti2", layouts.write_vkitti2, (375, 1242), 0.5e-2, exact_image=False, intrinsics=False),
    Case("diml", layouts.write_diml, (756, 1344), 0.5e-3, intrinsics=False, scene="courtyard"),
    Case("diml", layouts.write_diml, (384, 1280), 0.5e-3, intrinsics=False, options={"part": "outdoor"}),
    Case("tum", layouts.write_tum, (480, 640), 0.5 / 5000, intrinsics=False),
    Case("scannet", layouts.write_scannet, (480, 640), 0.5e-3, exact_image=False),
]


def samples(case: Case, count: int = 2) -> list[Sample]:
    return [sample(f"courtyard/frame_{i:04d}", *case.size, shift=30 * i) for i in range(count)]


def written(case: Case, root: Path) -> list[Sample]:
    made = samples(case)
    if case.type == "ibims":  # its folders are flat
        made = [replace(s, name=s.name.replace("/", "_")) for s in made]
    extra = {"part": "outdoor"} if "part" in case.options else {}
    case.write(root, made, **extra)
    return made


def reopened(case: Case, root: Path, **options: Any) -> Dataset:
    return layouts.opened(case.type, root, **case.options, **options)


@pytest.fixture(params=CASES, ids=lambda case: "-".join([case.type, *case.options.values()]))
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


def test_what_was_written_comes_back_in_the_range_that_the_data_set_states(case: Case, tmp_path: Path) -> None:
    made = written(case, tmp_path)
    data = reopened(case, tmp_path)
    low, high = data.depth_range
    assert len(data) == 2 and len(set(data.names)) == 2 and (not data.sizes or case.size in data.sizes)
    assert data.scene(0) == data.scene(1) == (case.scene or data.scene(0))
    for i, expected in enumerate(made):
        got, files = data.read(i), data.files(i)
        assert {"image", "depth"} <= files.keys() and all(path.is_file() for path in files.values())
        np.testing.assert_array_equal(got.valid, expected.valid)
        np.testing.assert_allclose(got.depth, expected.depth, atol=case.atol, rtol=case.rtol + 1e-6)
        assert got.depth[got.valid].max() <= high
        # The outdoor part has 2 m and more.
        assert low <= got.depth[got.valid].min() or case.options.get("part") == "outdoor"
        difference = np.abs(got.image.astype(int) - expected.image).mean()
        assert difference == 0 if case.exact_image else difference < 4
        if case.intrinsics:
            np.testing.assert_allclose(got.intrinsics, expected.intrinsics, rtol=1e-6)


def test_files_of_a_mac_are_no_samples_and_damaged_and_missing_ones_are_named(case: Case, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        reopened(case, tmp_path)
    written(case, tmp_path)
    names = list(reopened(case, tmp_path).names)
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        path.with_name(f"._{path.name}").write_bytes(b"\0\x05\x16\x07")
    data = reopened(case, tmp_path)
    assert list(data.names) == names
    assert not [path for path in data.files(0).values() if path.name.startswith(".")]
    assert_damage_is_named(data, "depth")
    data.files(1)["depth"].unlink()
    with pytest.raises(DataError, match="1 of 2 samples lack a file"):
        reopened(case, tmp_path)
    assert len(reopened(case, tmp_path, subset="available")) == 1


def test_sun_rgb_d_turns_sixteen_bits_by_three() -> None:
    # 1 m is 1000 = 0b1111101000, stored as 8000; 8 in the stored low bits come back to the top: 0b001 -> 8192.
    stored = np.array([[8000, 1, 0, 65535]], np.uint16)
    np.testing.assert_array_equal(rotate_right(stored), [[1000, 8192, 0, 65535]])
    millimetres = np.arange(65536, dtype=np.uint16)[None]
    np.testing.assert_array_equal(rotate_right(layouts.indoor.turn(millimetres)), millimetres)


def test_sun_rgb_d_takes_the_split_of_the_toolbox_and_cuts_at_eight_metres(tmp_path: Path) -> None:
    far = sample("a_7", 60, 80)
    far.depth[:10] = 9.0
    layouts.write_sunrgbd(tmp_path, [far], split="train")
    data = layouts.opened("sunrgbd", tmp_path, split="train")
    assert list(data.names) == ["kv1/NYUdata/NYU0007"] and len(layouts.opened("sunrgbd", tmp_path, split="all")) == 1
    valid = data.read(0).valid
    assert not valid[:10].any() and valid[10:].any()
    with pytest.raises(DataError):
        layouts.opened("sunrgbd", tmp_path, split="test")
    (tmp_path / "SUNRGBDtoolbox/traintestSUNRGBD/allsplit.mat").unlink()
    with pytest.raises(DataError, match="allsplit.mat"):
        layouts.opened("sunrgbd", tmp_path)


def test_hypersim_distance_becomes_planar_depth() -> None:
    # On a plane z = 2 m the distance at pixel (x, y) from the middle is 2 sqrt(x^2 + y^2 + f^2) / f.
    y, x = np.mgrid[:768, :1024] - np.array([383.5, 511.5])[:, None, None]
    distance = 2 * np.sqrt(x**2 + y**2 + 886.81**2) / 886.81
    np.testing.assert_allclose(planar_depth(distance), 2.0, rtol=1e-6)
    # The view across 1024 pixels is then 60 degrees.
    assert 2 * np.degrees(np.arctan(512 / 886.81)) == pytest.approx(60, abs=0.01)


def test_the_sky_of_virtual_kitti_is_not_valid(tmp_path: Path) -> None:
    layouts.write_vkitti2(tmp_path, [sample("a_0", 375, 1242)])
    stored = np.full((375, 1242), 65534, np.uint16)
    stored[0], stored[1] = 65535, 0
    cv2.imwrite(str(tmp_path / "Scene01/clone/frames/depth/Camera_0/depth_00000.png"), stored)
    assert not layouts.opened("vkitti2", tmp_path).read(0).valid.any()  # to 80 m, as papers evaluate
    got = layouts.opened("vkitti2", tmp_path, max_depth=1000).read(0)
    assert not got.valid[:2].any() and got.valid[2:].all() and got.depth[2, 0] == pytest.approx(655.34)


def test_sintel_files_have_the_published_bytes(tmp_path: Path) -> None:
    layouts.write_sintel(tmp_path, [sample("alley_1/frame_0001", 436, 1024)])
    path = tmp_path / "training/depth/alley_1/frame_0001.dpt"
    data = path.read_bytes()
    assert struct.unpack("<fii", data[:12]) == (202021.25, 1024, 436) and data[:4] == b"PIEH"
    path.write_bytes(b"XXXX" + data[4:])
    with pytest.raises(DataError, match=r"does not begin with 202021.25"):
        layouts.opened("sintel", tmp_path).read(0)


def test_ibims_depth_counts_where_both_masks_say_so(tmp_path: Path) -> None:
    layouts.write_ibims(tmp_path, [sample("corridor_01", 480, 640)])
    transparent = np.full((480, 640), 255, np.uint8)
    transparent[:, :100] = 0
    cv2.imwrite(str(tmp_path / "mask_transp/corridor_01.png"), transparent)
    valid = layouts.opened("ibims", tmp_path).read(0).valid
    assert not valid[:, :100].any() and valid[:, 100:].any()
    cv2.imwrite(str(tmp_path / "mask_transp/corridor_01.png"), transparent[1:])
    with pytest.raises(DataError, match="479 x 640"):
        layouts.opened("ibims", tmp_path).read(0)


def test_time_stamps_are_paired_nearest_first_and_once() -> None:
    # 0.02 may go to 0.01 or to 0.025; 0.005 away is nearer. What then is left for 0.0 lies 0.01 away.
    pairs = associate([0.0, 0.02, 0.5], [0.025, 0.01, 0.7], 0.02)
    assert pairs == [(0, 1), (1, 0)]
    assert associate([0.0], [0.02], 0.02) == []  # "less than", as in associate.py
    assert associate([0.0], [], 1.0) == []
    # Two that want the same one: the nearer has it, and the other has none.
    assert associate([0.0, 0.004], [0.003], 0.02) == [(1, 0)]
    assert associate([0.003], [0.0, 0.004], 0.02) == [(0, 1)]


def test_the_folders_of_a_tum_sequence_may_be_links_to_another_disk(tmp_path: Path) -> None:
    layouts.write_tum(tmp_path / "disk/rgbd_dataset_freiburg2_xyz", [sample("a_0")])
    (tmp_path / "tum").mkdir()
    for part in (tmp_path / "disk/rgbd_dataset_freiburg2_xyz").iterdir():
        (tmp_path / "tum" / part.name).symlink_to(part)
    assert layouts.opened("tum", tmp_path / "tum").read(0).depth.any()
    with pytest.raises(DataError, match=r"within 0.001 s"):
        layouts.opened("tum", tmp_path / "tum", max_gap=0.001)


def test_scannet_colour_comes_at_the_size_of_the_depth_map(tmp_path: Path) -> None:
    layouts.write_scannet(tmp_path, [sample("scene0000_00/0")])
    large = sample("large", 968, 1296).image
    cv2.imwrite(str(tmp_path / "scans/scene0000_00/color/0.jpg"), large[..., ::-1])
    (tmp_path / "scannetv2_val.txt").write_text("scene0000_00\n")
    data = layouts.opened("scannet", tmp_path, split="val")
    assert data.read(0).image.shape == (480, 640, 3) and data.scene(0) == "scene0000"
    cv2.imwrite(str(tmp_path / "scans/scene0000_00/color/0.jpg"), large[:, :968])
    with pytest.raises(DataError, match="of another shape"):
        data.read(0)
    with pytest.raises(DataError, match=r"scannetv2_test.txt"):
        layouts.opened("scannet", tmp_path, split="test")


def test_scannets_small_export_is_found_beside_scans_that_are_not_exported(tmp_path: Path) -> None:
    layouts.write_scannet(tmp_path, [sample("scene0000_00/0")])
    (tmp_path / "scans").rename(tmp_path / "scannet_frames_25k")
    (tmp_path / "scans/scene0000_00").mkdir(parents=True)
    (tmp_path / "scans/scene0000_00/scene0000_00.sens").touch()
    assert list(layouts.opened("scannet", tmp_path).names) == ["scene0000_00/0"]


def test_a_make3d_value_covers_the_pixels_it_stands_for(tmp_path: Path) -> None:
    made = sample("math7-p-139t0", 2272, 1704)
    layouts.write_make3d(tmp_path, [made])
    data = layouts.opened("make3d", tmp_path, split="test")
    got = data.read(0)
    assert list(data.names) == ["math7-p-139t0"] and got.depth.shape == (2272, 1704)
    coarse = cv2.resize(made.depth, (305, 55), interpolation=cv2.INTER_NEAREST)
    # The middle of grid cell (20, 100) is image pixel ((20 + .5) 2272 / 55, (100 + .5) 1704 / 305).
    assert got.depth[int(20.5 * 2272 / 55), int(100.5 * 1704 / 305)] == coarse[20, 100]
    band = layouts.opened("make3d", tmp_path, split="test", crop="band").read(0)
    np.testing.assert_array_equal(band.image, got.image[710:1562])  # (2272 - 852) / 2 to + 1704 / 2
    path = tmp_path / "Gridlaserdata/depth_sph_corr-math7-p-139t0.mat"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match="math7-p-139t0.mat"):
        data.read(0)


def test_hypersim_takes_the_public_images_of_its_table(tmp_path: Path) -> None:
    layouts.write_hypersim(tmp_path, [sample(f"a_{i}", 96, 128) for i in range(3)])

    def table(*rows: str) -> None:
        head = "scene_name,camera_name,frame_id,included_in_public_release,exclude_reason,split_partition_name"
        (tmp_path / "metadata_images_split_scene_v1.csv").write_text("\n".join([head, *rows]))

    table("ai_001_001,cam_00,0,True,,val", "ai_001_001,cam_00,1,False,x,val", "ai_001_001,cam_00,2,True,,train")
    assert list(layouts.opened("hypersim", tmp_path, split="val").names) == ["ai_001_001/scene_cam_00/frame_0000"]
    for rows, split, told in (
        (["ai_001_001,cam_00,0,True,,val"], "test", "no samples; the list of them names none"),
        (["ai_001_001,cam_00,first,True,,val"], "val", "table of splits.*'first'"),
        ([], "val", "no samples; the list of them names none"),
    ):
        table(*rows)
        with pytest.raises(DataError, match=told):
            layouts.opened("hypersim", tmp_path, split=split)


@pytest.mark.parametrize("mask", [np.ones((5, 5)), np.full((96, 128), "a")], ids=["of another size", "of words"])
def test_a_diode_mask_that_cannot_be_one_is_named(tmp_path: Path, mask: np.ndarray) -> None:
    layouts.write_diode(tmp_path, [sample("a", 96, 128)])
    np.save(next(tmp_path.rglob("*_mask.npy")), mask)
    with pytest.raises(DataError, match=r"_mask\.npy: .* the depth map is 96 x 128"):
        layouts.opened("diode", tmp_path).read(0)


def test_the_motorcycle_has_metric_depth_where_it_was_measured() -> None:
    sample = DATASETS.check({"type": "middlebury_motorcycle"}, "data").build().read(0)
    assert sample.image.shape == (500, 741, 3)
    assert 0.92 < sample.valid.mean() < 0.93  # measured by hand: 92.7 %
    assert sample.depth[sample.valid].min() > 2.10 and sample.depth.max() < 5.03  # metres
    assert not sample.depth[~sample.valid].any()


def test_depth_is_focal_times_baseline_over_disparity() -> None:
    sample = DATASETS.check({"type": "middlebury_motorcycle"}, "data").build().read(0)
    disparity = stereo_motorcycle()[2]
    row, column = 250, 350
    assert sample.depth is not None and np.isfinite(disparity[row, column])
    expected = 994.978 * 193.001 / 1000 / (disparity[row, column] + 31.086)
    np.testing.assert_allclose(sample.depth[row, column], expected, rtol=1e-6)
