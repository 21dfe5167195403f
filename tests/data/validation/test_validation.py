"""Validation finds planted errors, each with its path and a reason, in one pass; and reports nothing on valid data."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import layouts
import numpy as np
import pytest
from orientations import oriented
from photo_samples import photo, sample
from PIL import Image
from scipy.stats import spearmanr
from shell import Shell
from small import small_folder

from densevit.data.datasets.base import Dataset
from densevit.data.io.writers import encode, encode_depth
from densevit.data.validation import ISSUE_TYPES, SplitToValidate, ValidationReport, format_text, validate
from densevit.data.validation.sample_stats import compute_stats, row_correlation, white_border
from densevit.structures import Sample

SIZE = (96, 128)


def frames(*names: str) -> list[Sample]:
    """Parts of a photograph that do not overlap, so that no two look alike."""
    whole, made = photo(), []
    for i, name in enumerate(names):
        window = np.s_[SIZE[0] * (i // 5 % 5) :, SIZE[1] * (i % 5) :]
        image = np.roll(whole.image[window][: SIZE[0], : SIZE[1]], i // 25, axis=2)
        depth = np.ascontiguousarray(whole.depth[window][: SIZE[0], : SIZE[1]])
        labels = np.full(SIZE, i % 4)
        made.append(Sample(name=name, image=np.ascontiguousarray(image), depth=depth, valid=depth > 0, labels=labels))
    return made


def folder_split(
    split: str, root: Path, cache: Path | None = None, classes: int | None = None, **options: Any
) -> SplitToValidate:
    opened = partial(layouts.opened, "folder", root, **{"depth_scale": 1000, **options})
    return SplitToValidate(split, opened, cache, classes)


def found(report: ValidationReport) -> dict[str, set[str]]:
    """Type of issue -> the names of the files."""
    kinds: dict[str, set[str]] = {}
    for issue in report.issues:
        kinds.setdefault(issue.type, set()).add(Path(issue.path).name)
    return kinds


def found_in(root: Path, **options: Any) -> dict[str, set[str]]:
    return found(validate([folder_split("train", root, **options)]))


def depth(value: float) -> np.ndarray:
    return np.full(SIZE, value, np.float32)


NAMES = [f"{i:02d}" for i in range(24)]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """24 valid samples, then one of each of the 16 errors."""
    root = tmp_path / "broken"
    layouts.write_folder(root, frames(*NAMES))
    image, map_, label = root / "images", root / "depths", root / "labels"

    def replace_map(name: str, array: np.ndarray) -> None:
        (map_ / f"{name}.png").unlink()
        np.save(map_ / f"{name}.npy", array)

    jpeg = (image / "00.jpg").read_bytes()
    (image / "00.jpg").write_bytes(jpeg[: len(jpeg) // 2])  # 1 truncated JPEG
    png = (map_ / "01.png").read_bytes()
    (map_ / "01.png").write_bytes(png[: len(png) // 2])  # 2 truncated PNG
    flipped = bytearray((map_ / "02.png").read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (map_ / "02.png").write_bytes(bytes(flipped))  # 3 a flipped bit in a PNG
    (image / "03.jpg").write_bytes(b"")  # 4 0 bytes
    (image / "04.jpg").write_text("<html>404 Not Found</html>")  # 5 text for a picture
    (image / "05.jpg").unlink()  # 6 no image
    (label / "05.png").unlink()
    (map_ / "06.png").unlink()  # 7 no depth
    (map_ / "07.png").write_bytes(encode_depth(np.ones((48, 64), np.float32), 1000))  # 8 another size
    (map_ / "08.png").write_bytes(encode(".png", np.full(SIZE, 90, np.uint8)))  # 9 8 bits
    (map_ / "09.png").write_bytes(encode(".png", np.full((*SIZE, 3), 90, np.uint8)))  # 10 colours
    (map_ / "10.png").write_bytes(encode_depth(depth(0), 1000))  # 11 zeros
    replace_map("11", depth(np.nan))  # 12 NaN
    replace_map("12", depth(-1500))  # 13 below zero
    replace_map("13", np.full(SIZE, 2.5e6, np.float32))  # 14 millimetres for metres: 2500 m
    (label / "14.png").write_bytes(encode(".png", np.full(SIZE, 7, np.uint8)))  # 15 beyond 4 classes
    (image / "15.png").write_bytes(encode(".png", frames("x")[0].image))  # 16 a second file for one name
    return root


def test_all_16_errors_are_found_in_one_pass_with_path_and_reason_and_no_file_is_touched(broken: Path) -> None:
    def contents() -> dict[Path, tuple[bytes, int]]:
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in broken.rglob("*") if path.is_file()}

    before = contents()
    report = validate([folder_split("train", broken, classes=4, depth_range=(0.1, 10.0))])
    errors = {issue.type for issue in report.issues if issue.level == "error"}
    assert before == contents()
    assert {kind: names for kind, names in found(report).items() if kind in errors} == {
        "damaged": {"00.jpg", "01.png", "02.png"},
        "empty": {"03.jpg"},
        "not_an_image": {"04.jpg"},
        "unpaired": {"05.png"},  # a depth map whose image is not there
        "missing": {"06.jpg"},  # an image whose depth map is not there
        "size_mismatch": {"07.png"},
        "coarse_depth": {"08.png", "09.png"},
        "empty_depth": {"10.png", "11.npy", "12.npy"},
        "negative_depth": {"12.npy"},
        "units": {"13.npy"},
        "label_beyond_classes": {"14.png"},
        "duplicate_name": {"15.png"},
    }
    assert all(f.path and f.reason for f in report.issues if f.level == "error")
    reasons = {Path(f.path).name: f.reason for f in report.issues if f.type in ("coarse_depth", "empty_depth")}
    assert "is PNG L, too coarse" in reasons["08.png"] and "is PNG RGB, too coarse" in reasons["09.png"]
    assert "all are NaN" in reasons["11.npy"] and "all are below zero" in reasons["12.npy"]
    assert "2,500 m" in format_text(report) and "in millimetres it would be 2.5 m" in format_text(report)
    assert not report.ok and report.samples == 22


def test_valid_data_has_no_issues_and_is_good_to_go(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*NAMES))
    report = validate([folder_split("train", tmp_path, classes=4)])
    assert report.issues == [] and report.ok
    said = format_text(report)
    assert "24 of 24 samples are readable; 96 x 128 (24)" in said and "Good to go" in said


def test_what_a_subset_leaves_out_is_a_warning_unless_nothing_is_left(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*NAMES[:6]))
    (tmp_path / "depths/02.png").unlink()
    (tmp_path / "images/03.jpg").unlink()
    (tmp_path / "labels/03.png").unlink()
    assert found_in(tmp_path) == {"missing": {"02.jpg"}, "unpaired": {"03.png"}}
    report = validate([folder_split("train", tmp_path, subset="available")])
    assert found(report) == {"left_out": {"02.jpg", "03.png"}} and report.ok
    layouts.write_folder(tmp_path / "one", [replace(frames("a")[0], labels=None)])
    (tmp_path / "one/depths/a.png").unlink()
    report = validate([folder_split("train", tmp_path / "one", subset="available")])
    assert not report.ok and "not one of its samples" in format_text(report)


@pytest.mark.parametrize("turned", [False, True], ids=["upright", "turned by EXIF"])
def test_a_jpeg_with_a_hole_in_its_data_is_damaged_though_every_decoder_takes_it(tmp_path: Path, turned: bool) -> None:
    """Its end is there; the pixels that the lost bytes held are plain gray, at the end of the picture."""
    layouts.write_folder(tmp_path, frames("a", "b"))
    path = tmp_path / "images/a.jpg"
    if turned:
        Image.open(path).rotate(-90, expand=True).save(path, exif=oriented(8))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + whole[-40:])
    assert found_in(tmp_path) == {"damaged": {"a.jpg"}}


def test_gray_bars_above_and_below_are_no_damage(tmp_path: Path) -> None:
    made = frames("a", "b")
    made[0].image[:16] = made[0].image[-16:] = 128
    layouts.write_folder(tmp_path, made)
    assert not found_in(tmp_path)


def test_listed_and_deleted_files_that_are_not_there_are_missing_by_path(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames("a", "b", "c"))
    opened = folder_split("train", tmp_path).open()
    (tmp_path / "images/a.jpg").unlink()
    assert found(validate([SplitToValidate("train", lambda: opened)])) == {"missing": {"a.jpg"}}
    (tmp_path / "depths/b.png").unlink()
    (tmp_path / "m.csv").write_text("image,depth\n" + "".join(f"images/{n}.jpg,depths/{n}.png\n" for n in "abc"))
    report = validate([folder_split("train", tmp_path, manifest="m.csv")])
    assert found(report) == {"missing": {"a.jpg", "b.png"}} and report.samples == 1


def test_an_image_with_the_suffix_of_another_format_is_read_with_a_warning(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames("a", "b"))
    (tmp_path / "images/a.jpg").write_bytes(encode(".png", frames("a")[0].image))
    report = validate([folder_split("train", tmp_path)])
    assert found(report) == {"wrong_suffix": {"a.jpg"}} and report.ok


def test_a_second_run_takes_statistics_from_the_cache_by_content(broken: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "m.json"
    options: dict[str, Any] = {"classes": 4, "depth_range": (0.1, 10.0)}
    first = validate([folder_split("train", broken, cache, **options)])
    assert len(json.loads(cache.read_text())) >= 20
    moved = broken.rename(tmp_path / "moved")
    second = validate([blind(folder_split("train", moved, cache, **options))])

    def told(report: ValidationReport, root: Path) -> list[tuple[str, str, str]]:
        return [(f.type, f.path.removeprefix(str(root)), f.reason.replace(str(root), "")) for f in report.issues]

    assert told(second, moved) == told(first, broken)
    (moved / "images/16.jpg").write_bytes((moved / "images/16.jpg").read_bytes() + b"new")
    third = validate([blind(folder_split("train", moved, cache, **options))])
    assert {Path(f.name).name for f in third.issues if f.type == "unreadable"} == {"16"}  # looked at anew


def blind(one: SplitToValidate) -> SplitToValidate:
    """The same, but it cannot decode."""

    def open_() -> Dataset:
        data = one.open()
        data.read = None  # type: ignore[method-assign, assignment]
        return data

    return replace(one, open=open_)


def test_the_same_image_or_depth_under_two_names_is_found(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*NAMES[:12]))
    (tmp_path / "images/03.jpg").write_bytes((tmp_path / "images/01.jpg").read_bytes())
    (tmp_path / "depths/05.png").write_bytes((tmp_path / "depths/04.png").read_bytes())
    assert found_in(tmp_path) == {"duplicate_image": {"03.jpg"}, "duplicate_depth": {"05.png"}}


def test_virtual_kittis_weathers_share_their_depth(tmp_path: Path) -> None:
    """Fog and rain over one geometry: the same depth files under other pictures are how it was published."""
    one, other, another = (sample(name, 375, 1242, shift=shift) for name, shift in (("0", 0), ("0", 40), ("1", 80)))
    depth = np.minimum(one.depth, 70).astype(np.float32)  # nothing else to find
    for variation, image in (("clone", one.image), ("fog", other.image), ("rain", another.image)):
        layouts.write_vkitti2(tmp_path, [replace(one, image=image, depth=depth)], variation=variation)
    assert found(validate([SplitToValidate("all", partial(layouts.opened, "vkitti2", tmp_path))])) == {}


def test_evaluation_images_in_the_training_set_are_found_by_bytes_by_thumbnail_and_by_scene(tmp_path: Path) -> None:
    made = frames(*(f"kitchen/{i}" for i in range(8)), "hall/8", "hall/9")
    layouts.write_folder(tmp_path / "train", made[:8])
    others = [replace(s, name=s.name.replace("kitchen", "bath")) for s in made[2:4]] + made[8:]
    layouts.write_folder(tmp_path / "val", others[1:])
    layouts.write_folder(tmp_path / "val", [others[0]], image=".png")  # encoded anew
    splits = [folder_split(name, tmp_path / name) for name in ("train", "val")]
    report = validate(splits)
    assert found(report) == {"leaked_image": {"2.png", "3.jpg"}}
    by_name = {Path(f.path).name: f.reason for f in report.issues}
    assert by_name["3.jpg"].startswith("is the training image") and "shows the same" in by_name["2.png"]
    layouts.write_folder(tmp_path / "val", [replace(made[9], name="kitchen/9")])
    assert found(validate(splits))["leaked_scene"]


def test_frames_of_one_large_file_are_compared_by_thumbnail(tmp_path: Path) -> None:
    made = [holed(f"kitchen/{i}", shift) for i, shift in enumerate((0, 60, 0))]
    layouts.write_nyu_labeled(tmp_path / "nyu_depth_v2_labeled.mat", made)
    names = ("train", "test")
    report = validate([SplitToValidate(n, partial(layouts.opened, "nyu", tmp_path, split=n)) for n in names])
    assert found(report)["missing"] == {"nyu_depth_v2_labeled.mat"}  # 3 of 1449 frames
    # Of the three, the official split has 0 and 1 to test and 2 to train.
    assert [f.name for f in report.issues if f.type == "leaked_image"] == ["kitchen/rgb_00000"]


@pytest.mark.parametrize(("orientation", "issue"), [(1, set()), (3, {"exif"}), (6, {"exif", "size_mismatch"})])
def test_an_image_turned_by_exif_without_its_depth_is_found(tmp_path: Path, orientation: int, issue: set[str]) -> None:
    made = frames("a", "b", "c")
    layouts.write_folder(tmp_path, made)
    path = tmp_path / "images/a.jpg"
    Image.fromarray(made[0].image).save(path, exif=oriented(orientation))
    report = validate([folder_split("train", tmp_path)])
    assert found(report).keys() == issue
    assert all(Path(f.path).stem == "a" for f in report.issues)
    # Stored turned; upright it is as its depth map.
    Image.fromarray(np.rot90(made[0].image)).save(path, exif=oriented(6), quality=95)
    assert validate([folder_split("train", tmp_path)]).ok


def nyu(root: Path, **options: Any) -> SplitToValidate:
    return SplitToValidate("train", partial(layouts.opened, "nyu", root, list_file="nyu_sync_train.txt", **options))


def holed(name: str, shift: int = 0) -> Sample:
    """A frame as NYU has them: 30 % unmeasured."""
    one = sample(name, shift=shift)
    valid = one.valid & (np.arange(640) % 10 >= 3)
    return replace(one, depth=np.where(valid, one.depth, np.float32(0)), valid=valid)


def kitchen() -> list[Sample]:
    return [holed(f"kitchen_0001/rgb_{i:05d}", 40 * i) for i in range(3)]


def framed(one: Sample) -> Sample:
    image = one.image.copy()
    image[:8], image[-8:], image[:, :8], image[:, -8:] = 255, 255, 255, 255
    return replace(one, image=image)


def test_nyu_as_published_is_valid_and_its_white_border_a_warning(tmp_path: Path) -> None:
    layouts.write_nyu_sync(tmp_path, kitchen())
    assert found(validate([nyu(tmp_path)])) == {}
    layouts.write_nyu_sync(tmp_path / "framed", [framed(one) for one in kitchen()])
    report = validate([nyu(tmp_path / "framed")])
    assert found(report).keys() == {"white_border"} and report.ok


def test_filled_depth_is_told_from_raw(tmp_path: Path) -> None:
    full = [replace(one, depth=layouts.fill(sample("x", shift=40 * i).depth)) for i, one in enumerate(kitchen())]
    layouts.write_nyu_sync(tmp_path, [replace(one, valid=one.depth > 0) for one in full])
    report = validate([nyu(tmp_path)])
    assert found(report).keys() == {"density"} and "holes seem to be filled" in report.issues[0].reason


def test_depth_of_another_scale_is_told_by_what_the_data_set_usually_shows(tmp_path: Path) -> None:
    listed = layouts.write_nyu_sync(tmp_path, kitchen())
    for line in listed.read_text().splitlines():
        path = str(tmp_path / "sync" / line.split()[1].lstrip("/"))
        stored = cv2.imread(path, cv2.IMREAD_UNCHANGED)
        cv2.imwrite(path, np.rint(stored * 0.256).astype(np.uint16))  # 1/256 m, as KITTI's
    report = validate([nyu(tmp_path)])
    reason = report.issues[0].reason
    assert found(report).keys() == {"units"} and "stored" not in reason and "1/256 m read as 1/1000 m" in reason


def folder_of(root: Path, convert: Callable[[np.ndarray], np.ndarray]) -> Path:
    """Six photographs with their depth converted, stored as floats."""
    (root / "depths").mkdir()
    for i in range(6):
        one = sample(f"{i}", 480, 640, shift=90 * i)
        layouts.write_folder(root, [Sample(name=one.name, image=np.ascontiguousarray(one.image[::4, ::4]))])
        depth = one.depth[::4, ::4]
        np.save(root / f"depths/{i}.npy", np.where(depth > 0, convert(np.maximum(depth, 0.1)), 0))
    return root


@pytest.mark.parametrize("convert", [lambda d: 1 / d, lambda d: 200 / d, lambda d: 2 / d - 0.3])
def test_inverse_depth_and_disparity_are_a_warning_with_evidence(
    tmp_path: Path, convert: Callable[[np.ndarray], np.ndarray]
) -> None:
    report = validate([folder_split("train", folder_of(tmp_path, convert), depth_scale=1)])
    said = format_text(report)
    assert "inverse_depth" in found(report) and report.ok
    assert "6 of 6 maps" in said and "rank correlation with the row +0." in said and "Good to go" not in said


def test_depth_of_the_same_photographs_is_none_and_of_a_scale_1000_times_too_large_a_warning(tmp_path: Path) -> None:
    root = folder_of(tmp_path, lambda d: d)
    report = validate([folder_split("train", root, depth_scale=1)])
    assert found(report) == {} and "Good to go" in format_text(report)
    report = validate([folder_split("train", root, depth_scale=1000)])
    assert found(report).keys() == {"unusual_depth"} and report.ok
    assert "`depth_scale` may be 1000 times too large" in format_text(report)


def test_row_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(0)
    depth = (rng.random((40, 50)) + np.linspace(1, 3, 40)[:, None]).astype(np.float32)
    rows, _ = np.nonzero(depth)
    assert row_correlation(depth.ravel(), rows) == pytest.approx(spearmanr(depth.ravel(), rows).statistic, abs=1e-3)
    assert row_correlation(np.ones(2000, np.float32), rows) is None


def test_kitti_images_of_a_size_that_cannot_be_cropped_are_found(tmp_path: Path) -> None:
    listed = layouts.write_kitti(tmp_path, [sample("0000000005", 320, 1216)])
    whole = partial(layouts.opened, "kitti", tmp_path, list_file=listed.name)
    cropped = SplitToValidate("train", partial(whole, crop="kb"))
    reasons = [(Path(f.path).name, f.reason) for f in validate([cropped]).issues if f.level == "error"]
    told = "320x1216 is too small for KITTI's 352x1216 benchmark window; leave the KB crop out."
    assert reasons == [("0000000005.png", told)]
    assert "unusual_size" in found(validate([SplitToValidate("train", whole)]))


def test_the_45_test_images_without_ground_truth_are_notes(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    report = validate([SplitToValidate("test", partial(layouts.opened, "kitti", tmp_path, split="test"))])
    kinds = [f.type for f in report.issues]
    assert kinds.count("no_ground_truth") == 45  # 697 listed, 652 with truth
    assert kinds.count("missing") == 2 * 652


def test_a_white_border_is_measured_on_its_thinnest_side() -> None:
    image = np.zeros((100, 120, 3), np.uint8)
    image[:9], image[-7:], image[:, :12], image[:, -30:] = 250, 250, 250, 250
    assert white_border(image) == 7
    assert white_border(np.full((100, 120, 3), 255, np.uint8)) == 0  # snow, or nothing
    assert white_border(np.zeros((3, 3, 3), np.uint8)) == 0


def test_depth_statistics_are_those_of_the_map() -> None:
    one = sample("a")
    one.depth[1, 1] = 0.01
    stats = compute_stats(one, {})
    measured = one.depth[one.depth > 0]
    assert stats.valid_fraction == pytest.approx((one.depth > 0).mean())
    assert (stats.depth_min, stats.depth_max) == (measured.min(), measured.max())
    assert stats.depth_median == pytest.approx(np.median(measured), rel=0.02)  # of every 16th pixel


def command(shell: Shell, *words: object, code: int) -> str:
    return "".join(shell("check-data", *words, code=code))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DENSEVIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_command_validates_a_folder_and_writes_its_report(
    broken: Path, tmp_path: Path, cache: Path, shell: Shell
) -> None:
    out = tmp_path / "report"
    words = ["--data-options", "depth_scale=1000", "--data-options", "depth_range=[0.1, 10]", "--classes", "4"]
    said = command(shell, str(broken), *words, "--output", str(out), code=2)
    assert "error: files of 0 bytes (1)" in said and "Do not train on this data yet" in said
    tree = json.loads((out / "report.json").read_text())
    assert len({f["type"] for f in tree["issues"] if f["level"] == "error"}) == 12 and not tree["ok"]
    html = (out / "report.html").read_text()
    assert html.count("data:image/jpeg") >= 4 and "404" in html and "http://" not in html and "https://" not in html
    # At 390 pixels the cells of the list of issues stand below each other, and long paths break.
    narrow = html[html.index("@media (max-width: 700px) {") :]
    assert ".issues td { display: block; }" in narrow and ".issues td { overflow-wrap: anywhere" in html
    assert html.count('class="issues"') >= 12 and '<meta name="viewport"' in html
    assert list(cache.rglob("*.json"))
    again = command(shell, "--data", "folder", "--root", str(broken), *words, code=2)
    assert again.splitlines()[:-1] == said.splitlines()[:-2]  # the last line tells the time, and where it is written


@pytest.mark.parametrize("split", ["", "train"])
def test_a_folder_needs_no_option_but_the_unit_and_is_told_which_whatever_its_folders_are_called(
    split: str, tmp_path: Path, cache: Path, shell: Shell
) -> None:
    root = small_folder(tmp_path / "mine" / split)
    (root / "images").rename(root / "rgb")
    (root / "depths").rename(root / "depth")
    printed = command(shell, str(tmp_path / "mine"), code=2)
    assert printed.count("Say how many units are a metre: --data-options depth_scale=1000") == 1
    assert "depth without a unit (6)" in printed and "--data-options depth_scale=1000" in printed
    assert "\n0 errors" in command(shell, str(tmp_path / "mine"), "--data-options", "depth_scale=1000", code=0)


def test_the_command_takes_a_config_and_looks_before_anything_is_built(
    broken: Path, tmp_path: Path, cache: Path, shell: Shell
) -> None:
    layouts.write_folder(tmp_path / "val", frames("z0", "z1", "z2"))
    for name in ("z0", "z1", "z2"):  # no picture of the training set
        image = cv2.imread(str(tmp_path / f"val/images/{name}.jpg"))
        cv2.imwrite(str(tmp_path / f"val/images/{name}.jpg"), image[::-1])
    config = tmp_path / "c.yaml"
    config.write_text(
        "model: {encoder: {type: none}, decoder: {type: linear}, heads: {depth: {type: metric}}}\n"
        "steps: 1\nbatch_size: 1\n"
        f"data:\n  train: {{type: folder, root: {broken}, depth_scale: 1000, depth_range: [0.1, 10]}}\n"
        f"  val: {{type: folder, root: {tmp_path / 'val'}, depth_scale: 1000}}\n"
        "tasks: {depth: {losses: [{type: silog}], protocol: plain}}\n"
    )
    said = command(shell, str(config), code=2)
    assert "val: 3 of 3 samples" in said and "[train]" in said and "[val]" not in said
    assert "Good to go" in command(
        shell, config, f"data.train.root={tmp_path / 'val'}", "--ignore", "leaked_image", code=0
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give a config"),
        (["--data", "nyuu"], "Did you mean 'nyu'"),
        (["--data", "folder", "--root", "x", "--ignore", "mising"], "Did you mean 'missing'"),
        (["--data", "folder", "--root", "no/such/folder"], "no data at"),
        (["--data", "folder", "--data-options", "rot=3"], "rot"),
        (["--data", "middlebury_motorcycle", "--output", __file__], "cannot be made"),
    ],
)
def test_what_cannot_be_validated_ends_with_2_and_a_message(
    words: list[str], reason: str, cache: Path, shell: Shell
) -> None:
    said = command(shell, *words, code=2)
    assert reason in said and "samples are readable" not in said


def test_a_damaged_cache_is_written_again(tmp_path: Path, cache: Path, shell: Shell) -> None:
    layouts.write_folder(tmp_path / "d", frames("a", "b"))
    words = [str(tmp_path / "d"), "--data-options", "depth_scale=1000"]
    command(shell, *words, code=0)
    (kept,) = cache.rglob("*.json")
    kept.write_text(json.dumps({key: {"size": None} for key in json.loads(kept.read_text())}))
    assert "2 of 2 samples are readable" in command(shell, *words, code=0)


def test_every_type_of_issue_has_a_title_and_a_remedy() -> None:
    assert all(name == name.lower() and kind.title and kind.remedy.endswith(".") for name, kind in ISSUE_TYPES.items())


@pytest.mark.skipif(os.environ.get("DENSEVIT_SAMPLES") is None, reason="$DENSEVIT_SAMPLES names no folder of samples")
def test_real_pairs_are_valid(tmp_path: Path) -> None:
    samples = Path(os.environ["DENSEVIT_SAMPLES"])
    (tmp_path / "sync/scene_0001").mkdir(parents=True)
    lines = []
    for number in ("00000", "00050"):
        for source, name in (("rgb/rgb_{}.jpg", "rgb_{}.jpg"), ("depth/sync_depth_{}.png", "sync_depth_{}.png")):
            data = (samples / "nyu_v2" / source.format(number)).read_bytes()
            (tmp_path / "sync/scene_0001" / name.format(number)).write_bytes(data)
        lines.append(f"/scene_0001/rgb_{number}.jpg /scene_0001/sync_depth_{number}.png 518.8579\n")
    (tmp_path / "nyu_sync_train.txt").write_text("".join(lines))
    report = validate([nyu(tmp_path)])
    assert report.ok and found(report).keys() <= {"white_border"}
