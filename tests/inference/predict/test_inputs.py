"""Which images an export takes, and the names it gives their outputs."""

import gzip
import os
from pathlib import Path

import pytest

from densevit.errors import DataError, StorageError
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.inputs import find_items as select
from densevit.inference.predict.output_plan import check_writable

DEPTH = [".png"]


def find_items(inputs: list[str], suffixes: list[str], output: Path) -> list[Item]:
    return list(select(inputs, suffixes, output).items)


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


def names(*inputs: object, output: Path, suffixes: list[str] = DEPTH) -> dict[str, str]:
    return {item.source.name: item.name for item in find_items([str(i) for i in inputs], suffixes, output)}


def test_a_folder_keeps_its_structure_and_takes_images_only(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "b.JPG", "s/t/a.png", "notes.txt", ".hidden.jpg", "s/.x.png.1.2.densevit-tmp")
    assert names(root, output=tmp_path / "out") == {"b.JPG": "b", "a.png": "s/t/a"}


def test_a_link_to_nothing_is_an_image_that_will_fail_not_one_that_is_not(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "a.png")
    (root / "b.png").symlink_to("gone.png")
    assert set(names(root, output=tmp_path / "out")) == {"a.png", "b.png"}


def test_an_output_that_no_disk_takes_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be made"):
        check_writable(tmp_path / ("long" * 100))


def test_images_that_would_share_an_output_keep_their_suffix(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "a.jpg", "a.png", "s/a.jpg", "b.jpg")
    found = [item.name for item in find_items([str(root)], DEPTH, tmp_path / "out")]
    assert found == ["a.jpg", "a.png", "b", "s/a"]


def test_a_name_that_clashes_with_a_kept_suffix_keeps_its_own(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "a.jpg", "a.png", "a.jpg.png")
    assert sorted(names(root, output=tmp_path / "out").values()) == ["a.jpg", "a.jpg.png", "a.png"]


def test_formats_whose_suffixes_meet_are_kept_apart(tmp_path: Path) -> None:
    # The colours of a would be a.color.png, as would the 16-bit map of a.color.
    root = make(tmp_path / "in", "a.jpg", "a.color.jpg")
    items = find_items([str(root)], [".png", ".color.png"], tmp_path / "out")
    files = [item.name + suffix for item in items for suffix in (".png", ".color.png")]
    assert len(set(files)) == 4


def test_several_inputs_are_named_below_the_deepest_folder_that_holds_them_all(tmp_path: Path) -> None:
    make(tmp_path, "train/1.jpg", "val/1.jpg", "val/2.jpg")
    items = find_items([str(tmp_path / "train"), str(tmp_path / "val")], DEPTH, tmp_path / "out")
    assert [item.name for item in items] == ["train/1", "val/1", "val/2"]
    alone = find_items([str(tmp_path / "val/2.jpg")], DEPTH, tmp_path / "out")
    assert [item.name for item in alone] == ["2"]


def test_an_image_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "a.jpg", "b.jpg")
    assert len(find_items([str(root), str(root / "a.jpg"), str(root / "*.jpg")], DEPTH, tmp_path / "out")) == 2


def test_globs_keep_the_structure_below_their_fixed_part(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "x/1/a.jpg", "x/2/a.jpg", "y/a.jpg", "x/1/readme.md")
    assert [i.name for i in find_items([f"{root}/x/**/*"], DEPTH, tmp_path / "out")] == ["1/a", "2/a"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "a[1].jpg", "a1.jpg")
    assert names(root / "a[1].jpg", output=tmp_path / "out") == {"a[1].jpg": "a[1]"}


def test_lists_start_at_their_folder_and_take_text_and_csv(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "s/a.jpg", "t/b c.jpg")
    (root / "l.txt").write_text(f"# mine\ns/a.jpg\n\n{root}/t/b c.jpg\nt/gone.jpg\n")
    (root / "l.csv").write_text("image,depth\ns/a.jpg,1\nt/b c.jpg,2\n")
    texts = [i.name for i in find_items([str(root / "l.txt")], DEPTH, tmp_path / "out")]
    assert texts == ["s/a", "t/b c", "t/gone"]  # a missing one is that image's failure, not the list's
    assert [i.name for i in find_items([str(root / "l.csv")], DEPTH, tmp_path / "out")] == ["s/a", "t/b c"]


def test_names_never_leave_the_output_folder(tmp_path: Path) -> None:
    make(tmp_path, "a.jpg", "in/b.jpg")
    (tmp_path / "in" / "l.txt").write_text("../a.jpg\nb.jpg\n")
    found = [item.name for item in find_items([str(tmp_path / "in" / "l.txt")], DEPTH, tmp_path / "out")]
    assert found == ["a", "in/b"]


def test_an_output_below_the_input_is_not_taken_for_images(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "a.jpg", "depth/a.png")
    assert names(root, output=root / "depth") == {"a.jpg": "a"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none.jpg", "no such file or folder"),
        ("empty", "holds no image"),
        ("*.webp", "matches no image"),
        ("empty.txt", "lists no image"),
        ("bad.csv", "needs a column 'image'; it has .'file'."),
        ("latin.txt", "is UTF-8 text"),
        ("stray.csv", r"stray\.csv:3: is no CSV from here on .*stray quote"),
        ("long.csv", r"long\.csv:2: is no CSV from here on .*stray quote"),
        ("pipe", "neither file nor folder"),
        ("a.tar.gz", "Compressed archives cannot be read in place: gunzip it"),
    ],
)
def test_inputs_without_images_are_refused(tmp_path: Path, given: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "bad.csv").write_text("file\na.jpg\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9.jpg\n")
    (tmp_path / "stray.csv").write_text('image\na.jpg\n"b.jpg\nc.jpg\n')  # else one image `b.jpgc.jpg`
    (tmp_path / "long.csv").write_text('image\n"b.jpg\n' + "c.jpg\n" * 30_000)  # past what a cell may hold
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(DataError, match=message):
        find_items([str(tmp_path / given)], DEPTH, tmp_path / "out")


def test_a_folder_cannot_be_input_and_output(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="both input and output"):
        find_items([str(make(tmp_path / "in", "a.jpg"))], DEPTH, tmp_path / "in")
