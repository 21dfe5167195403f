"""One's own folders and tables: matching, splits, and paths that must not lead out."""

import json
import os
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import layouts
import numpy as np
import pytest
from layouts.encoders import DepthFormat
from photo_samples import sample
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from densevit.data.datasets.base import DATASETS, Dataset
from densevit.data.datasets.folder import hash_fraction
from densevit.data.datasets.pairs import Pairs
from densevit.data.io.readers import DepthCache
from densevit.data.io.writers import encode, encode_depth
from densevit.errors import ConfigError, DataError
from densevit.structures import Sample


def frames(*names: str) -> list[Sample]:
    return [sample(name, 48, 64, shift=9 * i) for i, name in enumerate(names)]


def open_folder(root: Path, **options: Any) -> Dataset:
    return layouts.opened("folder", root, **{"depth_scale": 1000, **options})


def put(root: Path, *names: str) -> None:
    """Small files of the right kind: depth where the name says depth, else an image."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        depth = encode_depth(np.ones((4, 5), np.float32), 1000)
        (root / name).write_bytes(depth if "depth" in name else encode(".png", np.zeros((4, 5, 3), np.uint8)))


@pytest.mark.parametrize("suffix", get_args(DepthFormat))
def test_every_depth_format_reads_the_same_metres(tmp_path: Path, suffix: DepthFormat) -> None:
    made = frames("a", "room/b")
    layouts.write_folder(tmp_path, made, image=".png", depth=suffix)
    # Float files are in metres: they need no scale, and one would divide them.
    data = open_folder(tmp_path, depth_scale=1000 if suffix == ".png" else None)
    assert list(data.names) == ["a", "room/b"]
    for i, expected in enumerate(made):
        got = data.read(i)
        np.testing.assert_array_equal(got.image, expected.image)
        np.testing.assert_allclose(got.depth, expected.depth, atol=0.5001e-3 if suffix == ".png" else 0)
        np.testing.assert_array_equal(got.valid, expected.valid)
        np.testing.assert_array_equal(got.labels, expected.labels)
        np.testing.assert_array_equal(got.intrinsics, expected.intrinsics)


def test_a_float_tiff_that_is_measured_everywhere_is_read(tmp_path: Path) -> None:
    (one,) = frames("a")
    measured = replace(one, depth=np.full((48, 64), 2.5, np.float32), valid=np.ones((48, 64), np.bool_))
    layouts.write_folder(tmp_path, [measured], image=".png", depth=".tiff")
    depth = open_folder(tmp_path, depth_scale=None).read(0).depth
    np.testing.assert_array_equal(depth, measured.depth)


@pytest.mark.parametrize("scale", [1000, 5000 / 1.035])  # the second has other digits in float32
def test_65535_is_not_measured_whatever_the_scale(tmp_path: Path, scale: float) -> None:
    put(tmp_path, "images/a.png")
    stored = np.array([[65535, 65534, 0, 5000, 1]] * 4, np.uint16)
    (tmp_path / "depths").mkdir()
    (tmp_path / "depths/a.png").write_bytes(encode(".png", stored))
    valid = open_folder(tmp_path, depth_scale=scale).read(0).valid
    np.testing.assert_array_equal(valid, (stored > 0) & (stored < 65535))
    image = tmp_path / "images/a.png"
    for depth in (tmp_path / "depths/a.png", stored, stored.astype(np.float32)):  # from Python, too
        sample = Pairs([(image, depth)], depth_scale=scale).read(0)
        np.testing.assert_array_equal(sample.valid, valid)
    assert stored[0, 0] == 65535


def test_65535_is_not_measured_where_the_file_says_its_scale(tmp_path: Path) -> None:
    put(tmp_path, "images/a.png")
    (tmp_path / "depths").mkdir()
    text = PngInfo()
    text.add_text("depth_scale", "1000")
    stored = np.array([[65535, 2000, 0, 5000, 1]] * 4, np.uint16)
    Image.fromarray(stored).save(tmp_path / "depths/a.png", pnginfo=text)
    data = open_folder(tmp_path, depth_scale=None)
    np.testing.assert_array_equal(data.read(0).depth[0], np.float32([0, 2, 0, 5, 0.001]))
    data.depth_cache = DepthCache(tmp_path / "cache")
    for _ in range(2):
        np.testing.assert_array_equal(data.read(0).depth[0], np.float32([0, 2, 0, 5, 0.001]))


@pytest.mark.parametrize(
    ("image", "depth"),
    [
        ("images/rgb_00045.png", "depths/depth_00045.png"),
        ("images/kitchen/rgb_00045.png", "depths/kitchen/sync_depth_00045.png"),
        ("images/00045_rgb.png", "depths/00045_depth.png"),
        ("images/00045.png", "depths/00045_gt_depth.png"),
        ("images/Image-00045.png", "depths/Depth-00045.png"),
    ],
)
def test_words_that_tell_what_a_file_is_do_not_hinder_a_match(tmp_path: Path, image: str, depth: str) -> None:
    put(tmp_path, image, depth, image.replace("45", "46"), depth.replace("45", "46"))
    data = open_folder(tmp_path)
    assert len(data) == 2 and data.read(1).depth is not None


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_letters_that_a_mac_writes_as_two_signs_match_and_make_one_name(
    tmp_path: Path, forms: tuple[Literal["NFC", "NFD"], ...]
) -> None:
    image, depth = (
        unicodedata.normalize(form, f"K\u00fcche{suffix}") for form, suffix in zip(forms, (".jpg", ".png"), strict=True)
    )
    put(tmp_path, f"images/{image}", f"depths/{depth}")
    camera = {unicodedata.normalize("NFD", "K\u00fcche"): {"fx": 5, "fy": 6, "cx": 2, "cy": 3}}
    (tmp_path / "intrinsics.json").write_text(json.dumps(camera), encoding="utf-8-sig")
    data = open_folder(tmp_path, depths="depths")
    assert list(data.names) == ["K\u00fcche"] and data.read(0).depth is not None and data.read(0).intrinsics is not None


def test_patterns_match_by_what_their_wildcards_stand_for(tmp_path: Path) -> None:
    put(tmp_path, "a/rgb/1.png", "a/depth/1.png", "b/rgb/1.png", "b/depth/1.png", "b/other/1.png")
    data = open_folder(tmp_path, images="*/rgb/*.png", depths="*/depth/*.png")
    assert list(data.names) == ["a/1", "b/1"]


def test_images_without_depth_are_counted_and_kept_or_dropped_as_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, *(f"images/{i}.png" for i in range(9)))
    assert len(open_folder(tmp_path, require_depth=False)) == 9
    with pytest.raises(DataError, match="depths: no such folder"):
        open_folder(tmp_path)
    put(tmp_path, "depths/depth_0.png", "depths/depth_1.png")
    with pytest.raises(DataError, match="7 of 9 images have no depth") as error:
        open_folder(tmp_path)
    assert str(error.value).count("\n  ") == 6 and "and 2 more" in str(error.value)
    assert open_folder(tmp_path, require_depth=False).read(8).depth is None
    assert list(open_folder(tmp_path, subset="available").names) == ["0", "1"] and "7 of 9" in caplog.text


def test_depth_without_an_image_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, "images/0.png", "depths/depth_0.png", "depths/depth_9.png")
    with pytest.raises(DataError, match=r"no image for 1 of the files of `depths`:.*\n.*depth_9.png"):
        open_folder(tmp_path)
    assert len(open_folder(tmp_path, subset="available")) == 1 and "depth_9" in caplog.text


@pytest.mark.parametrize("extra", ["images/0.jpg", "depths/0.npy", "depths/depth_0.tiff"])
def test_two_files_for_one_name_are_ambiguous(tmp_path: Path, extra: str) -> None:
    put(tmp_path, "images/0.png", "images/1.png", *(f"depths/{n}.png" for n in ("0_depth", "1_depth", "0_depths")))
    put(tmp_path, extra)
    with pytest.raises(DataError, match="ambiguous|several files"):
        open_folder(tmp_path)


def test_an_empty_or_missing_images_folder_says_what_would_fit(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="images: no such folder. There are no folders in .*: the root is the one a"):
        open_folder(tmp_path)
    (tmp_path / "Images").mkdir()
    with pytest.raises(DataError, match=r"images: no such folder. In .* there are Images; options say"):
        open_folder(tmp_path)
    (tmp_path / "Images").rename(tmp_path / "images")
    with pytest.raises(DataError, match=r"no images \(.avif, .bmp"):
        open_folder(tmp_path)


def test_split_folders_are_taken(tmp_path: Path) -> None:
    for split, name in (("train", "0"), ("test", "9")):
        put(tmp_path, f"{split}/images/{name}.png", f"{split}/depths/depth_{name}.png")
        assert list(open_folder(tmp_path, split=split).names) == [name]
    with pytest.raises(DataError, match="no such folder"):
        open_folder(tmp_path)


def test_a_drawn_split_is_disjoint_complete_and_stays_when_files_are_added(tmp_path: Path) -> None:
    names = [f"{i:03d}x" for i in range(200)]  # numbered ones are split as videos
    put(tmp_path, *(f"images/{n}.png" for n in names), *(f"depths/{n}_depth.png" for n in names))
    train = set(open_folder(tmp_path, split="train", val_fraction=0.2).names)
    val = set(open_folder(tmp_path, split="val", val_fraction=0.2).names)
    assert not train & val and train | val == set(names)
    assert 25 <= len(val) <= 55  # 40 expected, standard deviation 5.7
    put(tmp_path, "images/new.png", "depths/new_depth.png")
    assert set(open_folder(tmp_path, split="val", val_fraction=0.2).names) - {"new"} == val
    assert hash_fraction("000") == hash_fraction("000") and 0 <= hash_fraction("x") < 1


@pytest.mark.parametrize("count", [2, 3, 9])
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.99])
def test_few_images_have_at_least_one_in_each_split(tmp_path: Path, count: int, fraction: float) -> None:
    put(tmp_path, *(f"images/{n}.png" for n in range(count)), *(f"depths/{n}_depth.png" for n in range(count)))
    names = [open_folder(tmp_path, split=split, val_fraction=fraction).names for split in ("train", "val")]
    assert sorted([*names[0], *names[1]]) == [str(n) for n in range(count)] and all(names)
    shares = [[hash_fraction(name) for name in part] for part in names]
    assert max(shares[1]) < min(shares[0])


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_that_nothing_defines_is_refused(tmp_path: Path, split: str) -> None:
    put(tmp_path, "images/0.png", "depths/depth_0.png")
    with pytest.raises(DataError, match="val_fraction"):
        open_folder(tmp_path, split=split)


BAD_CAMERAS = ['{"0": {"fx": 5}}', "[1, 2, 3]", '{"0": "wide"}', "not json"]
BAD_CAMERAS += ['{"fx": 0, "fy": 6, "cx": 2, "cy": 3}', '[[1,0,0],[0,1,0],[0,0,"NaN"]]']
BAD_CAMERAS += ["[[5,0,0],[0,6,0],[2,3,1]]", "[[10,0,4],[0,12,6],[0,0,2]]", '{"fx": 50, "fy": 60, "cx": 20, "cy": 3}']


def test_one_camera_serves_all_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "images/0.png", "depths/depth_0.png")
    (tmp_path / "intrinsics.json").write_text(json.dumps({"fx": 5, "fy": 6, "cx": 2, "cy": 3}))
    np.testing.assert_array_equal(open_folder(tmp_path).read(0).intrinsics, [[5, 0, 2], [0, 6, 3], [0, 0, 1]])
    for bad in BAD_CAMERAS:
        (tmp_path / "intrinsics.json").write_text(bad)
        with pytest.raises(DataError, match="intrinsics.json"):
            open_folder(tmp_path)


def test_a_table_names_its_files_cameras_and_splits(tmp_path: Path) -> None:
    put(tmp_path, "x/a.png", "y/depth_a.png", "x/b.png", "y/depth_b.png")
    (tmp_path / "m.csv").write_text(
        "image,depth,fx,fy,cx,cy,split\nx/a.png,y/depth_a.png,5,6,2,3,train\nx/b.png,y/depth_b.png,,,,,val\n"
    )
    train, val = (open_folder(tmp_path, manifest="m.csv", split=split) for split in ("train", "val"))
    assert [*train.names, *val.names] == ["x/a", "x/b"] and val.read(0).intrinsics is None
    np.testing.assert_array_equal(train.read(0).intrinsics, [[5, 0, 2], [0, 6, 3], [0, 0, 1]])
    with pytest.raises(DataError, match="splits are train, val"):
        open_folder(tmp_path, manifest="m.csv", split="test")
    (tmp_path / "m.jsonl").write_text('{"image": "x/a.png", "depth": "y/depth_a.png", "name": "first", "fx": null}\n\n')
    data = open_folder(tmp_path, manifest="m.jsonl")
    assert list(data.names) == ["first"] and data.read(0).valid.any()
    (tmp_path / "x/b.png").unlink()
    with pytest.raises(DataError, match="1 of 2 samples lack a file"):
        open_folder(tmp_path, manifest="m.csv", split="all")


@pytest.mark.parametrize(
    ("path", "came"), [("labels/a.jpg", ".jpg, and can be .bmp"), ("depths/a.mat", ".mat"), ("depths/a", "none")]
)
def test_maps_of_a_format_that_is_not_read_are_named(tmp_path: Path, path: str, came: str) -> None:
    put(tmp_path, "images/a.png", path)
    with pytest.raises(DataError, match=rf"{path.partition('/')[0]}: none .* suffixes are {came}"):
        open_folder(tmp_path, subset="available")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("image,detph\nx/a.png,b\n", r"m.csv:2: no such column 'detph'. Did you mean 'depth'"),
        ("depth\nx/a.png\n", "'image' is required"),
        ("image\nx/a.png,b,c\n", "no such column"),
        ("image;depth\nx/a.png;b\n", "no such column 'image;depth'. Commas separate columns."),
        ("image,fx\nx/a.png,5\n", "four numbers"),
        ("image,time\nx/a.png,nan\n", "m.csv:2: time is seconds, got 'nan'"),
        ("image,fx,fy,cx,cy\nx/a.png,5,6,wide,3\n", "four numbers"),
        ("image,fx,fy,cx,cy\nx/a.png,5,nan,2,3\n", "four numbers"),
        ("image,fx,fy,cx,cy\nx/a.png,-5,6,2,3\n", "fx and fy over 0"),
        ("image,name\nx/a.png,1\nx/a.png,1\n", "more than once"),
        ('image\n"x/a.png\nx/b.png\n', "cannot be read"),  # a stray quote: one image of two lines, else
        ("image\n", "no samples"),
        ("", "no samples"),
    ],
)
def test_a_bad_table_names_its_line(tmp_path: Path, text: str, reason: str) -> None:
    put(tmp_path, "x/a.png")
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(DataError, match=reason):
        open_folder(tmp_path, manifest="m.csv", require_depth=False)


def test_however_a_table_spells_a_path_the_name_is_the_one_under_the_root(tmp_path: Path) -> None:
    put(tmp_path, "x/a.png")
    for image in (f"{tmp_path}/x/a.png", "x/../x/a.png", "x\\a.png"):
        (tmp_path / "m.jsonl").write_text(json.dumps({"image": image}))
        assert list(open_folder(tmp_path, manifest="m.jsonl", require_depth=False).names) == ["x/a"]


def test_a_bad_jsonl_an_address_a_nul_or_a_name_that_leads_out_is_a_data_error(tmp_path: Path) -> None:
    put(tmp_path, "x/a.png")
    with pytest.raises(DataError, match="none.csv"):
        open_folder(tmp_path, manifest="none.csv")
    bad = [{"image": "file:///etc/passwd"}, {"image": "a\0b"}, {"image": "x/a.png", "name": "../n"}]
    lines = {"[1]\n": "", "{not json\n": "", "\xff\xfe": "", **{json.dumps(cells): ":1" for cells in bad}}
    for text, line in lines.items():
        (tmp_path / "m.jsonl").write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match=f"m.jsonl{line}"):
            open_folder(tmp_path, manifest="m.jsonl", require_depth=False)


@pytest.mark.parametrize("path", ["../secret.png", "x/../../secret.png", "ABSOLUTE", "link.png", "..\\secret.png"])
def test_a_table_may_not_lead_out_of_its_root_unless_allowed(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    put(tmp_path, "secret.png", "root/x/a.png")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    text = str(tmp_path / "secret.png") if path == "ABSOLUTE" else path
    (root / "m.jsonl").write_text(json.dumps({"image": text}))
    with pytest.raises(DataError, match="allow_outside_root"):
        open_folder(root, manifest="m.jsonl", require_depth=False)
    data = open_folder(root, manifest="m.jsonl", require_depth=False, allow_outside_root=True)
    assert len(data) == 1 and not Path(data.names[0]).is_absolute() and ".." not in data.names[0]


def test_links_are_followed_inside_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "all/a.png", "depths/depth_a.png")
    (root / "images").symlink_to(root / "all")
    put(tmp_path, "other/b.png")
    assert list(open_folder(root).names) == ["a"]
    (root / "all" / "more").symlink_to(tmp_path / "other")
    with pytest.raises(DataError, match="allow_outside_root"):
        open_folder(root)
    assert list(open_folder(root, allow_outside_root=True, require_depth=False).names) == ["a", "more/b"]
    (root / "all" / "more").unlink()
    (root / "all" / "circle").symlink_to(root / "all")
    with pytest.raises(DataError, match="holds it"):
        open_folder(root)


@pytest.mark.parametrize("target", ["gone.png", "b.png"], ids=["nothing", "itself"])
def test_a_link_that_leads_nowhere_is_a_missing_sample_not_a_silent_loss(tmp_path: Path, target: str) -> None:
    put(tmp_path, "images/a.png", "depths/depth_a.png", "depths/depth_b.png")
    (tmp_path / "images/b.png").symlink_to(target)
    with pytest.raises(DataError, match=r"1 of 2 samples lack a file:\n.*images/b\.png"):
        open_folder(tmp_path)
    (tmp_path / "m.csv").write_text("image,depth\nimages/b.png,depths/depth_b.png\n")
    with pytest.raises(DataError, match=r"b\.png"):
        open_folder(tmp_path, manifest="m.csv")


def test_a_name_that_no_report_could_write_is_refused_at_once(tmp_path: Path) -> None:
    put(tmp_path, "images/a.png", "depths/depth_a.png")
    try:
        put(tmp_path, os.fsdecode(b"images/caf\xe9.png"))
    except OSError:
        pytest.skip("this disk takes UTF-8 only")
    with pytest.raises(DataError, match=r"caf\\udce9.*not UTF-8"):
        open_folder(tmp_path, require_depth=False)


def test_labels_of_another_size_and_a_missing_scale_are_told_at_the_first_read(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames("a"))
    with pytest.raises(DataError, match=r"depths.a.png.*depth_scale"):
        open_folder(tmp_path, depth_scale=None).read(0)
    (tmp_path / "labels/a.png").write_bytes(encode(".png", np.zeros((5, 6), np.uint8)))
    with pytest.raises(DataError, match=r"images.a.jpg is 48 x 64.*labels.a.png is 5 x 6"):
        open_folder(tmp_path).read(0)


def test_options_are_checked_before_anything_is_opened() -> None:
    for wrong in ({"root": None}, {"val_fraction": 1.5}, {"depth_scale": 0}, {"spilt": "all"}):
        with pytest.raises(ConfigError):
            DATASETS.check({"type": "folder", "root": "x", **wrong}, "data")
