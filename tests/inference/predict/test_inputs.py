"""Which images an export takes, and the names it gives their outputs."""

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from densevit.errors import DataError, StorageError
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.inputs import find_items as select
from densevit.inference.predict.output_plan import check_writable


def find_items(*inputs: object, suffixes: Sequence[str] = (".png",), output: Path = Path("out")) -> list[Item]:
    return list(select([str(given) for given in inputs], list(suffixes), output).items)


def make(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


def named(*inputs: object, **options: Any) -> list[str]:
    return [item.name for item in find_items(*inputs, **options)]


def test_a_folder_keeps_its_structure_and_takes_images_and_links_to_nothing_only(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "b.JPG", "s/t/a.png", "notes.txt", ".hidden.jpg", "s/.x.png.1.2.densevit-tmp")
    (root / "c.png").symlink_to("gone.png")  # which will fail
    found = {item.source.name: item.name for item in find_items(root)}
    assert found == {"b.JPG": "b", "c.png": "c", "a.png": "s/t/a"}


def test_images_that_would_share_an_output_keep_their_suffix(tmp_path: Path) -> None:
    assert named(make(tmp_path / "a", "a.jpg", "a.png", "s/a.jpg", "b.jpg")) == ["a.jpg", "a.png", "b", "s/a"]
    clash = make(tmp_path / "b", "a.jpg", "a.png", "a.jpg.png")
    assert sorted(named(clash)) == ["a.jpg", "a.jpg.png", "a.png"]
    # The colours of a would be a.color.png, as would the 16-bit map of a.color.
    suffixes = (".png", ".color.png")
    names = named(make(tmp_path / "c", "a.jpg", "a.color.jpg"), suffixes=suffixes)
    assert len({name + suffix for name in names for suffix in suffixes}) == 4


def test_several_inputs_are_named_below_the_deepest_folder_that_holds_them_all(tmp_path: Path) -> None:
    make(tmp_path, "train/1.jpg", "val/1.jpg", "val/2.jpg")
    assert named(tmp_path / "train", tmp_path / "val") == ["train/1", "val/1", "val/2"]
    assert named(tmp_path / "val/2.jpg") == ["2"]
    # An image that is given twice counts once.
    assert len(named(tmp_path / "val", tmp_path / "val/1.jpg", f"{tmp_path}/val/*.jpg")) == 2


def test_globs_keep_the_structure_below_their_fixed_part_and_files_may_look_like_one(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "x/1/a.jpg", "x/2/a.jpg", "y/a.jpg", "x/1/readme.md", "a[1].jpg", "a1.jpg")
    assert named(f"{root}/x/**/*") == ["1/a", "2/a"]
    assert named(root / "a[1].jpg") == ["a[1]"]


def test_lists_start_at_their_folder_and_names_never_leave_the_output_folder(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "s/a.jpg", "t/b c.jpg", "../a.jpg")
    (root / "l.txt").write_text(f"# mine\ns/a.jpg\n\n{root}/t/b c.jpg\nt/gone.jpg\n")
    (root / "l.csv").write_text("image,depth\ns/a.jpg,1\nt/b c.jpg,2\n")
    assert named(root / "l.txt") == ["s/a", "t/b c", "t/gone"]  # a missing one is that image's failure, not the list's
    assert named(root / "l.csv") == ["s/a", "t/b c"]
    (root / "l.txt").write_text("../a.jpg\ns/a.jpg\n")
    assert named(root / "l.txt") == ["a", "in/s/a"]


def test_an_output_below_the_input_is_not_taken_for_images(tmp_path: Path) -> None:
    root = make(tmp_path / "in", "a.jpg", "depth/a.png")
    assert named(root, output=root / "depth") == ["a"]
    with pytest.raises(DataError, match="both input and output"):
        find_items(root, output=root)
    with pytest.raises(StorageError, match="cannot be made"):
        check_writable(tmp_path / ("long" * 100))


NO_IMAGES = {
    "none.jpg": "no such file or folder",
    "empty": "holds no image",
    "*.webp": "matches no image",
    "empty.txt": "lists no image",
    "bad.csv": "needs a column 'image'; it has .'file'.",
    "latin.txt": "the list of images cannot be read .'utf-8'",
    "stray.csv": r"stray\.csv:3: is no CSV from here on .*stray quote",
    "long.csv": r"long\.csv:2: is no CSV from here on .*stray quote",
    "pipe": "neither file nor folder",
    "a.tar.gz": "Compressed archives cannot be read in place: gunzip it",
}


def test_inputs_without_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "bad.csv").write_text("file\na.jpg\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9.jpg\n")
    (tmp_path / "stray.csv").write_text('image\na.jpg\n"b.jpg\nc.jpg\n')  # else one image `b.jpgc.jpg`
    (tmp_path / "long.csv").write_text('image\n"b.jpg\n' + "c.jpg\n" * 30_000)  # past what a cell may hold
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(2000)))
    for given, message in NO_IMAGES.items():
        with pytest.raises(DataError, match=message):
            find_items(tmp_path / given)


def test_folders_behind_links_are_taken_as_by_a_glob_but_for_circles(tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", "1.jpg", "deep/2.jpg")
    root = make(tmp_path / "in", "a.jpg")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/deep/up").symlink_to(tmp_path / "elsewhere")
    assert named(root) == ["a", "linked/1", "linked/deep/2"]
