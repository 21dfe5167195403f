"""Unpacking and converting what is downloaded of the published sets of label maps."""

import runpy
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import layouts
import numpy as np
import pytest
from layouts.common import opened
from layouts.segmentation_cases import samples

from densevit.data.prepare.convert_mat_labels import convert_context, convert_voc
from densevit.data.prepare.fetch import unpack, unpack_all
from densevit.errors import DataError

SCRIPT = Path(__file__).parents[3] / "datasets/prepare_segmentation.py"


def zipped(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))


def test_archives_are_unpacked_to_where_the_reader_looks(tmp_path: Path) -> None:
    made, downloads, root = tmp_path / "made", tmp_path / "downloads", tmp_path / "root"
    layouts.write_coco_stuff(made, samples(171))
    downloads.mkdir()
    zipped(made / "images", downloads / "train2017.zip")
    zipped(made / "annotations", downloads / "stuffthingmaps_trainval2017.zip")
    lines = unpack_all("coco_stuff", downloads, root)
    assert lines == ["train2017.zip: 2 files", "stuffthingmaps_trainval2017.zip: 2 files", "val2017.zip: not there"]
    assert len(opened("coco_stuff", root)) == 2
    kept = root / "images/train2017/000000000000.jpg"
    stamp = kept.stat().st_mtime_ns
    (root / "images/train2017/000000000001.jpg").write_bytes(b"cut off")
    unpack_all("coco_stuff", downloads, root)
    assert kept.stat().st_mtime_ns == stamp and opened("coco_stuff", root).read(1).labels is not None


def test_a_tar_is_unpacked_too(tmp_path: Path) -> None:
    layouts.write_voc(tmp_path / "made", samples(21))
    with tarfile.open(tmp_path / "VOCtrainval_11-May-2012.tar", "w") as file:
        file.add(tmp_path / "made/VOCdevkit", "VOCdevkit")
    assert unpack(tmp_path / "VOCtrainval_11-May-2012.tar", tmp_path / "root") == 5
    assert len(opened("voc", tmp_path / "root")) == 2


def test_a_damaged_or_missing_archive_is_refused(tmp_path: Path) -> None:
    layouts.write_ade20k(tmp_path / "made", samples(150))
    archive = tmp_path / "ADEChallengeData2016.zip"
    zipped(tmp_path / "made", archive)
    archive.write_bytes(archive.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"2016\.zip: is damaged"):
        unpack(archive, tmp_path / "root")
    with pytest.raises(DataError, match=r"none of ADEChallengeData2016\.zip"):
        unpack_all("ade20k", tmp_path / "made", tmp_path / "root")


def test_converted_sbd_reads_as_its_matlab_files_do(tmp_path: Path) -> None:
    made = samples(21, 5)
    layouts.write_voc(tmp_path, made[:1], "train")
    layouts.write_voc(tmp_path, made[1:2], "val")
    layouts.write_sbd(tmp_path, made[2:4], "train")
    layouts.write_sbd(tmp_path, made[4:], "val")
    before = opened("voc", tmp_path, split="train_aug")
    assert convert_voc(tmp_path) == 3
    after = opened("voc", tmp_path, split="train_aug")
    assert list(after.names) == list(before.names) and len(after) == 4
    for i in range(4):
        np.testing.assert_array_equal(before.label_map(i), after.label_map(i))
        assert after.files(i)["labels"].suffix == ".png"
    assert convert_voc(tmp_path) == 0  # again: nothing is left to do


def test_converted_context_reads_as_its_matlab_files_do(tmp_path: Path) -> None:
    layouts.write_pascal_context(tmp_path, samples(60), "train")
    layouts.write_pascal_context(tmp_path, [replace(s, name=f"1{s.name[-1]}") for s in samples(60)], "val")
    before = opened("pascal_context", tmp_path)
    assert convert_context(tmp_path) == 4
    after = opened("pascal_context", tmp_path)
    assert after.files(0)["labels"].suffix == ".png"
    np.testing.assert_array_equal(before.label_map(0), after.label_map(0))
    assert convert_context(tmp_path) == 0


def test_the_script_unpacks_and_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made, downloads, root = tmp_path / "made", tmp_path / "downloads", tmp_path / "root"
    layouts.write_coco_stuff(made, samples(171))
    downloads.mkdir()
    zipped(made / "images", downloads / "train2017.zip")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "coco_stuff", str(root), "--unpack", str(downloads)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "train2017.zip: 2 files" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "coco_stuff", str(root), "--unpack", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "none of train2017.zip" in capsys.readouterr().err
