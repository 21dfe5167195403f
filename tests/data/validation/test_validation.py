"""The doctor finds planted faults, each by its path and a reason, in one pass; and leaves sound data alone."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from photo_samples import photo, sample
from PIL import Image

from densevit.cli.main import main
from densevit.data.datasets.base import DATASETS, Dataset
from densevit.data.io.writers import encode, encode_depth
from densevit.data.synthetic import layouts
from densevit.data.validation import KINDS, SplitToValidate, ValidationReport, examine, text
from densevit.data.validation.sample_stats import measure, white_border
from densevit.structures import Sample

SIZE = (96, 128)


def frames(*names: str) -> list[Sample]:
    """Parts of a photograph that do not overlap, so that no two look alike."""
    whole = photo()
    assert whole.depth is not None
    made = []
    for i, name in enumerate(names):
        window = np.s_[SIZE[0] * (i // 5 % 5) :, SIZE[1] * (i % 5) :]
        image = np.roll(whole.image[window][: SIZE[0], : SIZE[1]], i // 25, axis=2)
        depth = np.ascontiguousarray(whole.depth[window][: SIZE[0], : SIZE[1]])
        labels = np.full(SIZE, i % 4)
        made.append(Sample(name=name, image=np.ascontiguousarray(image), depth=depth, valid=depth > 0, labels=labels))
    return made


def patient(
    split: str, root: Path, memory: Path | None = None, classes: int | None = None, **options: Any
) -> SplitToValidate:
    spec = {"type": "folder", "root": str(root), "depth_scale": 1000, **options}
    return SplitToValidate(split, DATASETS.check(spec, "data").build, memory, classes)


def found(examination: ValidationReport) -> dict[str, set[str]]:
    """Kind -> the names of the files."""
    kinds: dict[str, set[str]] = {}
    for finding in examination.findings:
        kinds.setdefault(finding.kind, set()).add(Path(finding.path).name)
    return kinds


def depth(value: float) -> np.ndarray:
    return np.full(SIZE, value, np.float32)


NAMES = [f"{i:02d}" for i in range(24)]


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """24 sound samples, then one of each of the 16 faults."""
    root = tmp_path / "sick"
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
    (map_ / "13.npy").write_bytes(b"")
    (map_ / "13.npy").unlink()
    replace_map("13", np.full(SIZE, 2.5e6, np.float32))  # 14 millimetres for metres: 2500 m
    (label / "14.png").write_bytes(encode(".png", np.full(SIZE, 7, np.uint8)))  # 15 beyond 4 classes
    (image / "15.png").write_bytes(encode(".png", frames("x")[0].image))  # 16 a second file for one name
    return root


def test_all_of_the_16_faults_are_found_in_one_pass_with_path_and_reason(sick: Path) -> None:
    examination = examine([patient("train", sick, classes=4, depth_range=(0.1, 10.0))])
    kinds = found(examination)
    assert kinds["damaged"] == {"00.jpg", "01.png", "02.png"}
    assert kinds["empty"] == {"03.jpg"}
    assert kinds["not_a_picture"] == {"04.jpg"}
    assert kinds["unpaired"] == {"05.png"}  # a depth map whose image is not there
    assert kinds["missing"] == {"06.jpg"}  # an image whose depth map is not there
    assert kinds["size_mismatch"] == {"07.png"}
    assert kinds["coarse_depth"] == {"08.png", "09.png"}
    assert kinds["empty_depth"] == {"10.png", "11.npy", "12.npy"}
    assert kinds["negative_depth"] == {"12.npy"}
    assert kinds["units"] == {"13.npy"}
    assert kinds["label_beyond_classes"] == {"14.png"}
    assert kinds["duplicate_name"] == {"15.png"}
    assert all(f.path and f.reason for f in examination.findings if f.level == "fault")
    reasons = {Path(f.path).name: f.reason for f in examination.findings if f.kind in ("coarse_depth", "empty_depth")}
    assert "8 bits" in reasons["08.png"] and "colours (RGB)" in reasons["09.png"]
    assert "all are NaN" in reasons["11.npy"] and "all are below zero" in reasons["12.npy"]
    assert "2,500 m" in text(examination) and "in millimetres it would be 2.5 m" in text(examination)
    assert not examination.healthy and examination.samples == 22


def test_sound_data_has_no_findings_and_says_good_to_go(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*NAMES))
    examination = examine([patient("train", tmp_path, classes=4)])
    assert examination.findings == [] and examination.healthy
    said = text(examination)
    assert "24 of 24 samples are readable; 96 x 128 (24)" in said and "Good to go" in said


def test_what_a_subset_leaves_out_is_a_warning_only(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*NAMES[:6]))
    (tmp_path / "depths/02.png").unlink()
    (tmp_path / "images/03.jpg").unlink()
    (tmp_path / "labels/03.png").unlink()
    assert found(examine([patient("train", tmp_path)])) == {"missing": {"02.jpg"}, "unpaired": {"03.png"}}
    examination = examine([patient("train", tmp_path, subset="available")])
    assert found(examination) == {"left_out": {"02.jpg", "03.png"}} and examination.healthy


def test_a_split_of_which_nothing_is_there_is_a_fault_even_where_a_part_will_do(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [replace(frames("a")[0], labels=None)])
    (tmp_path / "depths/a.png").unlink()
    examination = examine([patient("train", tmp_path, subset="available")])
    assert not examination.healthy and "not one of its samples" in text(examination)


def test_links_to_nothing_are_missing_files(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames("a", "b", "c"))
    for name, target in (("a", "gone.jpg"), ("b", "b.jpg")):  # the second leads to itself
        (tmp_path / f"images/{name}.jpg").unlink()
        (tmp_path / f"images/{name}.jpg").symlink_to(target)
    assert found(examine([patient("train", tmp_path)])) == {"missing": {"a.jpg", "b.jpg"}}


@pytest.mark.parametrize("turned", [False, True], ids=["upright", "turned by EXIF"])
def test_a_jpeg_with_a_hole_in_its_data_is_damaged_though_every_decoder_takes_it(tmp_path: Path, turned: bool) -> None:
    """Its end is there; the pixels that the lost bytes held are plain gray, at the end of the picture."""
    layouts.write_folder(tmp_path, frames("a", "b"))
    path = tmp_path / "images/a.jpg"
    if turned:
        exif = Image.Exif()
        exif[274] = 8
        Image.open(path).rotate(-90, expand=True).save(path, exif=exif)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + whole[-40:])
    assert found(examine([patient("train", tmp_path)])) == {"damaged": {"a.jpg"}}


def test_gray_bars_above_and_below_are_no_damage(tmp_path: Path) -> None:
    made = frames("a", "b")
    made[0].image[:16] = made[0].image[-16:] = 128
    layouts.write_folder(tmp_path, made)
    assert not found(examine([patient("train", tmp_path)]))


def test_listed_files_that_are_not_there_are_missing_by_path(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames("a", "b", "c"))
    (tmp_path / "images/a.jpg").unlink()
    (tmp_path / "depths/b.png").unlink()
    (tmp_path / "m.csv").write_text("image,depth\n" + "".join(f"images/{n}.jpg,depths/{n}.png\n" for n in "abc"))
    examination = examine([patient("train", tmp_path, manifest="m.csv")])
    assert found(examination) == {"missing": {"a.jpg", "b.png"}} and examination.samples == 1


def test_a_file_that_goes_away_during_the_examination_is_missing(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames("a", "b"))
    opened = patient("train", tmp_path).open()
    (tmp_path / "images/a.jpg").unlink()
    assert found(examine([SplitToValidate("train", lambda: opened)])) == {"missing": {"a.jpg"}}


def test_a_picture_named_as_another_format_is_read_and_said(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames("a", "b"))
    (tmp_path / "images/a.jpg").write_bytes(encode(".png", frames("a")[0].image))
    examination = examine([patient("train", tmp_path)])
    assert found(examination) == {"renamed": {"a.jpg"}} and examination.healthy


def test_a_second_look_remembers_by_content_and_tells_the_same(sick: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory" / "m.json"
    options: dict[str, Any] = {"classes": 4, "depth_range": (0.1, 10.0)}
    first = examine([patient("train", sick, memory, **options)])
    assert len(json.loads(memory.read_text())) >= 20
    moved = sick.rename(tmp_path / "moved")
    second = examine([blind(patient("train", moved, memory, **options))])

    def told(examination: ValidationReport, root: Path) -> list[tuple[str, str, str]]:
        return [(f.kind, f.path.removeprefix(str(root)), f.reason.replace(str(root), "")) for f in examination.findings]

    assert told(second, moved) == told(first, sick)
    (moved / "images/16.jpg").write_bytes((moved / "images/16.jpg").read_bytes() + b"new")
    third = examine([blind(patient("train", moved, memory, **options))])
    assert {Path(f.name).name for f in third.findings if f.kind == "unreadable"} == {"16"}  # looked at anew


def blind(one: SplitToValidate) -> SplitToValidate:
    """The same, but it cannot decode."""

    def open_() -> Dataset:
        data = one.open()
        data.read = None  # type: ignore[method-assign, assignment]
        return data

    return replace(one, open=open_)


def test_files_of_the_user_are_never_touched(sick: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sick.rglob("*") if path.is_file()}
    examine([patient("train", sick, classes=4)])
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sick.rglob("*") if path.is_file()}


def test_the_same_image_or_depth_under_two_names_is_found(tmp_path: Path) -> None:
    made = frames(*NAMES[:6])
    layouts.write_folder(tmp_path, made)
    (tmp_path / "images/03.jpg").write_bytes((tmp_path / "images/01.jpg").read_bytes())
    (tmp_path / "depths/05.png").write_bytes((tmp_path / "depths/04.png").read_bytes())
    kinds = found(examine([patient("train", tmp_path)]))
    assert kinds == {"duplicate_image": {"03.jpg"}, "duplicate_depth": {"05.png"}}


def test_virtual_kittis_weathers_share_their_depth(tmp_path: Path) -> None:
    """Fog and rain over one geometry: the same depth files under other pictures are how it was published."""
    one, other, another = (sample(name, 375, 1242, shift=shift) for name, shift in (("0", 0), ("0", 40), ("1", 80)))
    depth = np.minimum(one.depth, 70).astype(np.float32)  # nothing else to find
    for variation, image in (("clone", one.image), ("fog", other.image), ("rain", another.image)):
        layouts.write_vkitti2(tmp_path, [replace(one, image=image, depth=depth)], variation=variation)
    spec = {"type": "vkitti2", "root": str(tmp_path)}
    assert found(examine([SplitToValidate("all", DATASETS.check(spec, "data").build)])) == {}


def test_evaluation_images_in_the_training_set_are_found_by_bytes_by_look_and_by_scene(tmp_path: Path) -> None:
    made = frames(*(f"kitchen/{i}" for i in range(8)), "hall/8", "hall/9")
    layouts.write_folder(tmp_path / "train", made[:8])
    others = [replace(s, name=s.name.replace("kitchen", "bath")) for s in made[2:4]] + made[8:]
    layouts.write_folder(tmp_path / "val", others[1:])
    layouts.write_folder(tmp_path / "val", [others[0]], image=".png")  # encoded anew
    examination = examine([patient("train", tmp_path / "train"), patient("val", tmp_path / "val")])
    assert found(examination) == {"leaked_image": {"2.png", "3.jpg"}}
    by_name = {Path(f.path).name: f.reason for f in examination.findings}
    assert by_name["3.jpg"].startswith("is the training image") and "shows the same" in by_name["2.png"]
    layouts.write_folder(tmp_path / "val", [replace(made[9], name="kitchen/9")])
    assert found(examine([patient("train", tmp_path / "train"), patient("val", tmp_path / "val")]))["leaked_scene"]


def test_frames_of_one_large_file_are_told_by_their_look(tmp_path: Path) -> None:
    made = [holed(f"kitchen/{i}", shift) for i, shift in enumerate((0, 60, 0))]
    layouts.write_nyu_labeled(tmp_path / "nyu_depth_v2_labeled.mat", made)

    def split(name: str) -> SplitToValidate:
        return SplitToValidate(
            name, DATASETS.check({"type": "nyu", "root": str(tmp_path), "split": name}, "data").build
        )

    examination = examine([split("train"), split("test")])
    assert found(examination)["missing"] == {"nyu_depth_v2_labeled.mat"}  # 3 of 1449 frames
    # Of the three, the official split has 0 and 1 to test and 2 to train.
    assert [f.name for f in examination.findings if f.kind == "leaked_image"] == ["kitchen/rgb_00000"]


@pytest.mark.parametrize(("orientation", "finding"), [(1, set()), (3, {"exif"}), (6, {"exif", "size_mismatch"})])
def test_an_image_turned_by_exif_without_its_depth_is_found(
    tmp_path: Path, orientation: int, finding: set[str]
) -> None:
    made = frames("a", "b", "c")
    layouts.write_folder(tmp_path, made)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(made[0].image).save(tmp_path / "images/a.jpg", exif=exif)
    examination = examine([patient("train", tmp_path)])
    assert found(examination).keys() == finding
    assert all(Path(f.path).stem == "a" for f in examination.findings)


def test_depth_made_from_the_upright_image_is_no_finding(tmp_path: Path) -> None:
    made = frames("a", "b")
    layouts.write_folder(tmp_path, made)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned; upright it is as its depth map
    Image.fromarray(np.rot90(made[0].image)).save(tmp_path / "images/a.jpg", exif=exif, quality=95)
    assert examine([patient("train", tmp_path)]).healthy


def nyu(root: Path, **options: Any) -> SplitToValidate:
    spec = {"type": "nyu", "root": str(root), "list_file": "nyu_sync_train.txt", **options}
    return SplitToValidate("train", DATASETS.check(spec, "data").build)


def holed(name: str, shift: int = 0) -> Sample:
    """A frame as NYU has them: 30 % unmeasured."""
    one = sample(name, shift=shift)
    assert one.depth is not None and one.valid is not None
    valid = one.valid & (np.arange(640) % 10 >= 3)
    return replace(one, depth=np.where(valid, one.depth, np.float32(0)), valid=valid)


def framed(one: Sample) -> Sample:
    image = one.image.copy()
    image[:8], image[-8:], image[:, :8], image[:, -8:] = 255, 255, 255, 255
    return replace(one, image=image)


def test_nyu_as_published_is_sound_and_its_white_frame_a_warning(tmp_path: Path) -> None:
    plain = [holed(f"kitchen_0001/rgb_{i:05d}", 40 * i) for i in range(3)]
    layouts.write_nyu_sync(tmp_path, plain)
    assert found(examine([nyu(tmp_path)])) == {}
    layouts.write_nyu_sync(tmp_path / "framed", [framed(one) for one in plain])
    examination = examine([nyu(tmp_path / "framed")])
    assert found(examination).keys() == {"white_border"} and examination.healthy


def test_filled_depth_is_told_from_raw(tmp_path: Path) -> None:
    full = []
    for i in range(3):
        one = sample(f"kitchen_0001/rgb_{i:05d}", shift=40 * i)
        assert one.depth is not None
        whole = layouts.fill(one.depth)
        full.append(replace(one, depth=whole, valid=whole > 0))
    layouts.write_nyu_sync(tmp_path, full)
    examination = examine([nyu(tmp_path)])
    assert found(examination).keys() == {"density"}
    assert "holes seem to be filled" in examination.findings[0].reason


def test_depth_of_another_scale_is_told_by_what_the_data_set_usually_shows(tmp_path: Path) -> None:
    listed = layouts.write_nyu_sync(tmp_path, [holed(f"kitchen_0001/rgb_{i:05d}", 40 * i) for i in range(3)])
    for line in listed.read_text().splitlines():
        path = tmp_path / "sync" / line.split()[1].lstrip("/")
        stored = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        cv2.imwrite(str(path), np.rint(stored * 0.256).astype(np.uint16))  # 1/256 m, as KITTI's
    examination = examine([nyu(tmp_path)])
    assert found(examination).keys() == {"units"}
    assert "stored" not in examination.findings[0].reason
    assert "1/256 m read as 1/1000 m" in examination.findings[0].reason


def test_kitti_images_of_a_size_that_cannot_be_cropped_are_found(tmp_path: Path) -> None:
    listed = layouts.write_kitti(tmp_path, [sample("0000000005", 320, 1216)])
    spec = {"type": "kitti", "root": str(tmp_path), "list_file": listed.name}
    cropped = SplitToValidate("train", DATASETS.check({**spec, "crop": "kb"}, "data").build)
    reasons = [(Path(f.path).name, f.reason) for f in examine([cropped]).findings if f.level == "fault"]
    assert reasons == [
        ("0000000005.png", "320x1216 is too small for KITTI's 352x1216 benchmark window; leave the KB crop out.")
    ]
    whole = SplitToValidate("train", DATASETS.check(spec, "data").build)
    assert "unusual_size" in found(examine([whole]))


def test_the_45_test_images_without_truth_are_noted_not_counted_as_faults(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    examination = examine(
        [SplitToValidate("test", DATASETS.check({"type": "kitti", "root": tmp_path, "split": "test"}, "").build)]
    )
    kinds = [f.kind for f in examination.findings]
    assert kinds.count("no_truth") == 45  # 697 listed, 652 with truth
    assert kinds.count("missing") == 2 * 652


def test_recorded_sums_tell_a_flipped_bit_that_no_decoder_sees(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path / "data", frames("a", "b"))
    sums = tmp_path / "sums.txt"
    assert examine([patient("train", tmp_path / "data")], sums=sums).healthy
    path = tmp_path / "data/images/a.jpg"
    line = next(line for line in sums.read_text().splitlines() if line.endswith("a.jpg"))
    assert line == f"{line[:64]}  {path}"  # as sha256sum writes them
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    assert found(examine([patient("train", tmp_path / "data")], sums=sums))["changed"] == {"a.jpg"}


def test_a_white_frame_is_measured_on_its_thinnest_side() -> None:
    image = np.zeros((100, 120, 3), np.uint8)
    image[:9], image[-7:], image[:, :12], image[:, -30:] = 250, 250, 250, 250
    assert white_border(image) == 7
    assert white_border(np.full((100, 120, 3), 255, np.uint8)) == 0  # snow, or nothing
    assert white_border(np.zeros((3, 3, 3), np.uint8)) == 0


def test_the_numbers_of_a_look_are_those_of_the_map() -> None:
    one = sample("a")
    look = measure(one, {})
    assert one.depth is not None
    measured = one.depth[one.depth > 0]
    assert look.share == pytest.approx((one.depth > 0).mean())
    assert (look.low, look.high) == pytest.approx((measured.min(), measured.max()), rel=0.02)
    assert look.median == pytest.approx(np.median(measured), rel=0.02)  # of every 16th pixel


def command(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    assert main(["check-data", *words]) == code
    out = capsys.readouterr()
    return out.out + out.err


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_command_examines_a_folder_and_writes_its_report(
    sick: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    words = ["--data-option", "depth_scale=1000", "--data-option", "depth_range=[0.1, 10]", "--classes", "4"]
    said = command(capsys, str(sick), *words, "--output", str(out), code=2)
    assert "fault: files of 0 bytes (1)" in said and "Training or scores would suffer" in said
    tree = json.loads((out / "report.json").read_text())
    assert len({f["kind"] for f in tree["findings"] if f["level"] == "fault"}) == 12 and not tree["healthy"]
    html = (out / "report.html").read_text()
    assert html.count("data:image/jpeg") >= 4 and "404" in html and "http://" not in html and "https://" not in html
    assert list(cache.rglob("*.json"))
    again = command(capsys, "--data", "folder", "--root", str(sick), *words, code=2)
    assert again.splitlines()[:-1] == said.splitlines()[:-2]  # the last line tells the time, and where it is written


def test_the_command_takes_a_config_and_looks_before_anything_is_built(
    sick: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layouts.write_folder(tmp_path / "val", frames("z0", "z1", "z2"))
    for name in ("z0", "z1", "z2"):  # no picture of the training set
        image = cv2.imread(str(tmp_path / f"val/images/{name}.jpg"))
        cv2.imwrite(str(tmp_path / f"val/images/{name}.jpg"), image[::-1])
    config = tmp_path / "c.yaml"
    config.write_text(
        "model: {encoder: {type: none}, decoder: {type: linear}, heads: {depth: {type: metric}}}\n"
        "steps: 1\nbatch_size: 1\n"
        f"data:\n  train: {{type: folder, root: {sick}, depth_scale: 1000, depth_range: [0.1, 10]}}\n"
        f"  val: {{type: folder, root: {tmp_path / 'val'}, depth_scale: 1000}}\n"
        "tasks: {depth: {losses: [{type: silog}], protocol: plain}}\n"
    )
    said = command(capsys, str(config), code=2)
    assert "val: 3 of 3 samples" in said and "[train]" in said and "[val]" not in said
    assert "Good to go" in command(
        capsys, str(config), f"data.train.root={tmp_path / 'val'}", "--ignore", "leaked_image", code=0
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give a config"),
        (["--data", "nyuu"], "Did you mean 'nyu'"),
        (["--data", "folder", "--root", "x", "--ignore", "mising"], "Did you mean 'missing'"),
        (["--data", "folder", "--root", "no/such/folder"], "no data at"),
        (["--data", "folder", "--data-option", "rot=3"], "rot"),
        (["--data", "middlebury_motorcycle", "--threads", "-2"], "at least 1"),
        (["--data", "middlebury_motorcycle", "--output", __file__], "cannot be made"),
    ],
)
def test_what_cannot_be_examined_ends_with_2_and_a_message(
    words: list[str], reason: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(capsys, *words, code=2)
    assert reason in said and "samples are readable" not in said


def test_a_memory_that_somebody_wrote_into_is_made_anew(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layouts.write_folder(tmp_path / "d", frames("a", "b"))
    words = [str(tmp_path / "d"), "--data-option", "depth_scale=1000"]
    command(capsys, *words, code=0)
    (kept,) = cache.rglob("*.json")
    kept.write_text(json.dumps({key: {"size": None} for key in json.loads(kept.read_text())}))
    assert "2 of 2 samples are readable" in command(capsys, *words, code=0)


def test_every_kind_has_words_and_a_remedy() -> None:
    for name, kind in KINDS.items():
        assert name == name.lower() and kind.title and kind.remedy.endswith(".")


@pytest.mark.skipif(os.environ.get("DENSEVIT_SAMPLES") is None, reason="$DENSEVIT_SAMPLES names no folder of samples")
def test_real_pairs_are_sound(tmp_path: Path) -> None:
    samples = Path(os.environ["DENSEVIT_SAMPLES"])
    (tmp_path / "sync/scene_0001").mkdir(parents=True)
    lines = []
    for number in ("00000", "00050"):
        for source, name in (("rgb/rgb_{}.jpg", "rgb_{}.jpg"), ("depth/sync_depth_{}.png", "sync_depth_{}.png")):
            data = (samples / "nyu_v2" / source.format(number)).read_bytes()
            (tmp_path / "sync/scene_0001" / name.format(number)).write_bytes(data)
        lines.append(f"/scene_0001/rgb_{number}.jpg /scene_0001/sync_depth_{number}.png 518.8579\n")
    (tmp_path / "nyu_sync_train.txt").write_text("".join(lines))
    examination = examine([nyu(tmp_path)])
    assert examination.healthy and found(examination).keys() <= {"white_border"}
