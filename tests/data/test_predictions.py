"""Which saved map belongs to which image: by the names that other programs save, or by a table."""

from pathlib import Path

import numpy as np
import pytest

from densevit.data.predictions import SavedMaps
from densevit.errors import DataError

NYU = ["bathroom/rgb_00045", "kitchen/rgb_00045"]
KITTI = ["2011_09_26/2011_09_26_drive_0002_sync/image_02/data/0000000069"]


def save(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    ("names", "saved"),
    [
        (NYU, ["bathroom_rgb_00045", "kitchen_rgb_00045"]),  # bts_test.py
        (NYU, ["out/bathroom__rgb_00045", "out/kitchen__rgb_00045"]),  # AdaBins' evaluate.py
        (NYU, ["bathroom/rgb_00045_pred", "kitchen/rgb_00045_pred"]),  # Marigold's run.py
        (KITTI, ["2011_09_26_drive_0002_sync_0000000069"]),  # bts_test.py
        (KITTI, ["2011_09_26__2011_09_26_drive_0002_sync__image_02__data__0000000069"]),
        (["K\u00fcche"], ["Ku\u0308che"]),  # two signs, as a Mac writes the letter
    ],
)
def test_maps_are_found_under_the_names_that_others_save(tmp_path: Path, names: list[str], saved: list[str]) -> None:
    save(tmp_path, *saved, "unrelated")
    found = SavedMaps(tmp_path, names).paths
    assert [found[name].relative_to(tmp_path).as_posix() for name in names] == [f"{path}.npy" for path in saved]


@pytest.mark.parametrize(
    ("names", "saved", "told"),
    [
        (NYU, ["rgb_00045"], r"several images each:\n  rgb_00045: bathroom/rgb_00045, kitchen/rgb_00045"),
        (NYU, ["frame_0", "frame_1"], r"no map for 2 of 2 images(.|\n)*It has frame_0, frame_1"),
        (["a"], ["a_depth", "a_pred"], r"ambiguous(.|\n)*--manifest"),
    ],
    ids=["one map for two images", "no map of that name", "told apart by their kind alone"],
)
def test_names_that_leave_a_doubt_are_refused(tmp_path: Path, names: list[str], saved: list[str], told: str) -> None:
    save(tmp_path, *saved)
    with pytest.raises(DataError, match=told):
        SavedMaps(tmp_path, names)


def test_a_suffix_needs_no_dot(tmp_path: Path) -> None:
    save(tmp_path, "a")
    (tmp_path / "a.png").touch()
    assert SavedMaps(tmp_path, ["a"], suffix="npy").paths == {"a": tmp_path / "a.npy"}


def test_infinitely_far_stays_what_a_prediction_says(tmp_path: Path) -> None:
    """Programs score inf as the far end of their range and NaN as the near one; the protocol does, if it is told."""
    np.save(tmp_path / "a.npy", np.array([[2.0, np.inf, np.nan, -1.0]], np.float32))
    np.testing.assert_array_equal(SavedMaps(tmp_path, ["a"]).read("a"), [[2, np.inf, 0, 0]])


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("m.csv", "name,prediction\na,a.npy\nb\n", r"m\.csv:3: lacks `name` or `prediction`"),
        ("m.csv", "name;prediction\na;a.npy\n", r"m\.csv:2: .*it has 'name;prediction'"),
        ("m.csv", "name,prediction\na,a.npy\na,a.npy\n", r"m\.csv:3: a stands in it twice"),
        ("m.jsonl", '{"name": "a", "prediction": null}\n', r"m\.jsonl:1: lacks"),
        ("m.jsonl", '{"name": "a", "prediction": "a.npy"}\n{oops\n', r"m\.jsonl:2: is not readable JSON"),
        ("m.csv", "name,prediction\na,gone.npy\n", "1 of its files are not there"),
        ("m.csv", "", "no map for 1 of 1 images(.|\n)*It is empty"),
    ],
)
def test_a_bad_table_names_its_line_and_what_it_holds(tmp_path: Path, name: str, text: str, told: str) -> None:
    save(tmp_path, "a")
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=told):
        SavedMaps(tmp_path, ["a"], manifest=tmp_path / name)
    with pytest.raises(DataError, match=r"gone\.csv: cannot be read \(No such file or directory\)\.$"):
        SavedMaps(tmp_path, ["a"], manifest=tmp_path / "gone.csv")


def test_blanks_around_the_columns_of_a_table_do_not_matter(tmp_path: Path) -> None:
    save(tmp_path, "a")
    (tmp_path / "m.csv").write_text("name, prediction\na, a.npy\n")
    assert SavedMaps(tmp_path, ["a"], manifest=tmp_path / "m.csv").paths == {"a": tmp_path / "a.npy"}
