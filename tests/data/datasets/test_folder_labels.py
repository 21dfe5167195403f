"""Label maps of one's own: ids, palettes, colours, and lists of classes in every form."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import layouts
import numpy as np
import pytest
from layouts.encoders import LabelFormat
from photo_samples import sample
from PIL import Image

from densevit.data.datasets.base import Dataset
from densevit.data.io.writers import encode, encode_palette
from densevit.data.labels.class_lists import read_classes
from densevit.data.labels.class_table import EMPTY
from densevit.errors import DataError
from densevit.structures import IGNORE, Sample

NAMES = ("wall", "floor", "bed", "chair")
COLOURS = ((120, 120, 120), (80, 50, 50), (204, 5, 255), (204, 70, 3))


def frame(name: str = "a", classes: int = 4) -> Sample:
    """A photograph without depth, with every class, and none in its first column."""
    made = sample(name, 48, 64)
    labels = np.arange(48 * 64).reshape(48, 64) % classes
    labels[:, 0] = IGNORE
    return replace(made, depth=None, valid=None, labels=labels)


def open_folder(root: Path, **options: Any) -> Dataset:
    return layouts.opened("folder", root, **options)


def stored(root: Path, ids: np.ndarray, name: str = "a") -> None:
    (root / f"labels/{name}.png").write_bytes(encode(".png", ids))


@pytest.mark.parametrize("form", get_args(LabelFormat))
def test_ids_palettes_and_colours_read_alike_and_ids_without_a_list_as_stored(
    tmp_path: Path, form: LabelFormat
) -> None:
    layouts.write_folder(tmp_path, [frame()], labels=form, classes=NAMES, palette=COLOURS)
    data = open_folder(tmp_path)
    np.testing.assert_array_equal(data.read(0).labels, frame().labels)
    np.testing.assert_array_equal(data.label_map(0), frame().labels)
    assert tuple(data.classes) == NAMES and data.palette == COLOURS and data.read(0).depth is None
    if form == "ids":
        (tmp_path / "classes.json").unlink()
        data = open_folder(tmp_path)
        np.testing.assert_array_equal(data.read(0).labels, frame().labels)
        assert data.classes == () and data.palette == ()


def test_sixteen_bit_pngs_hold_classes_beyond_255_whose_seat_stays_empty(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [frame(classes=200)])
    ids = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) % 300 + 1000
    stored(tmp_path, ids)
    entries = [{"id": 1000 + i, "name": f"c{i}"} for i in range(300)]
    (tmp_path / "classes.json").write_text(json.dumps(entries))
    data = open_folder(tmp_path)
    labels = data.read(0).labels
    position = ids.astype(int) - 1000
    np.testing.assert_array_equal(labels, position + (position >= 255))
    assert len(data.classes) == 301 and data.classes[255] == EMPTY and data.classes[256] == "c255"


def test_more_than_255_names_without_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "classes.txt"
    path.write_text("\n".join(f"c{i}" for i in range(300)))
    with pytest.raises(DataError, match="'c255' would have id 255"):
        read_classes(path)
    path.write_text("\n".join(f"c{i}" for i in range(255)))
    assert len(read_classes(path)) == 255


def test_ids_beyond_the_classes_are_named_with_their_file_and_pixels(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [frame()], classes=NAMES)
    ids = np.zeros((48, 64), np.uint8)
    ids[:2, :6], ids[5, 5] = 4, 17
    stored(tmp_path, ids)
    with pytest.raises(DataError, match=r"a\.png: id 4 in 12 pixels, id 17 in 1 pixels .*classes\.json has no class"):
        open_folder(tmp_path).read(0)
    np.testing.assert_array_equal(open_folder(tmp_path, classes=None).classes, NAMES)


def test_colours_without_a_class_are_named_and_without_any_list_explained(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [frame()], labels="colours", classes=NAMES, palette=COLOURS)
    pixels = np.asarray(Image.open(tmp_path / "labels/a.png")).copy()
    pixels[0, 1:3] = (1, 2, 3)
    stored(tmp_path, pixels)
    with pytest.raises(DataError, match=r"a\.png: 2 pixels of colour \(1, 2, 3\), for which"):
        open_folder(tmp_path).read(0)
    (tmp_path / "classes.json").write_text(json.dumps(NAMES))
    with pytest.raises(DataError, match=r"a\.png: holds colours, not class ids"):
        open_folder(tmp_path).read(0)
    (tmp_path / "classes.json").unlink()
    with pytest.raises(DataError, match="say in a file of classes"):
        open_folder(tmp_path).read(0)


def test_a_palette_in_an_order_of_its_own_is_refused_rather_than_misread(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [frame()], labels="palette", classes=NAMES, palette=COLOURS)
    shuffled = (COLOURS[2], *COLOURS[1:2], COLOURS[0], COLOURS[3])
    (tmp_path / "labels/a.png").write_bytes(encode_palette(np.zeros((48, 64), np.uint8), shuffled))
    with pytest.raises(DataError, match="index 0 of its palette has the colour of 'bed', but id 0 is 'wall'"):
        open_folder(tmp_path).read(0)
    # A palette of other colours says nothing.
    (tmp_path / "labels/a.png").write_bytes(encode_palette(np.zeros((48, 64), np.uint8), ((9, 9, 9),)))
    assert (open_folder(tmp_path).label_map(0) == 0).all()  # type: ignore[union-attr]


def test_stored_ids_may_be_any_and_some_of_them_ignored(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [frame()])
    entries = [
        {"id": 0, "name": "void", "ignore": True},
        {"id": 7, "name": "road", "color": [128, 64, 128]},
        {"id": 3, "name": "car", "colour": "#00008e"},
    ]
    (tmp_path / "classes.json").write_text(json.dumps(entries))
    stored(tmp_path, np.array([[0, 3, 7, 255]] * 48, np.uint8).repeat(16, axis=1))
    data = open_folder(tmp_path)
    labels = data.read(0).labels
    assert labels is not None and labels[0, ::16].tolist() == [IGNORE, 1, 0, IGNORE]
    assert data.classes == ("road", "car") and data.palette == ((128, 64, 128), (0, 0, 142))


# Each form says: road is 0, car is 1.
FORMS = [
    ("classes.json", '["road", "car"]', False),
    ("classes.json", '{"0": "road", "1": "car"}', False),
    ("classes.json", '{"road": 0, "car": 1}', False),
    ("classes.json", '{"road": [128, 64, 128], "car": "#00008E"}', True),
    ("classes.json", '[{"id": 0, "name": "road"}, {"id": 1, "name": "car"}]', False),
    ("classes.txt", "road\n\ncar\n", False),
    ("classes.txt", "\ufeff# mine\n0: road\n1: car\n", False),
    ("classes.txt", "0\troad\n1\tcar\n", False),
    ("labelmap.txt", "# label:color_rgb:parts:actions\nroad:128,64,128::\ncar:0,0,142::\n", True),
]


def test_a_list_of_classes_has_many_forms(tmp_path: Path) -> None:
    for file, text, coloured in FORMS:
        (tmp_path / file).write_text(text, encoding="utf-8")
        table = read_classes(tmp_path / file)
        assert table.names == ("road", "car") and table.places == {0: 0, 1: 1, IGNORE: IGNORE}, text
        assert table.palette == (((128, 64, 128), (0, 0, 142)) if coloured else ()), text


TOO_LARGE = ".*ids go to 65535, colours to 255"
BAD_LISTS = [
    ("json", "", "JSON"),
    ("json", "[]", "no class"),
    ("json", "3", "list or an object"),
    ("json", '["a", "a"]', "class a occurs more than once"),
    ("json", '[{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]', "id 1 occurs more than once"),
    ("json", '["a", " "]', "the class with id 1 is named ' '; a name is one line of text"),
    ("json", r'["a\nb", "c"]', "the class with id 0 is named .*; a name is one line of text"),
    ("json", '[{"name": "a"}]', "expected"),
    ("json", '[{"id": -1, "name": "a"}]', "expected"),
    ("json", '[{"id": true, "name": "a"}]', "expected"),
    ("json", '{"a": [1, 2]}', "colour"),
    ("json", '{"a": [1, 2, 256]}', "colour"),
    ("json", '{"a": "#12345"}', "colour"),
    ("json", '[{"id": 0, "name": "a", "ignore": true}]', "no class"),
    ("json", '[{"id": 0, "name": "a", "ignore": "false"}]', 'ignore of .a. is true or false, got "false"'),
    ("json", '[{"id": 0, "name": "a", "isthing": "0"}]', 'isthing of .a. is true or false, got "0"'),
    ("json", '{"wall": 0, "wall": 1}', "key 'wall' occurs more than once"),
    ("json", '{"70000": "wall", "1": "floor"}', "'wall' has id 70000"),
    ("txt", "1: wall\n99999999999: floor", f"'floor' has id 99999999999{TOO_LARGE}"),
    ("txt", "road:999,0,0::", f"colour .999{TOO_LARGE}"),
    ("txt", "name\n0: wall\n1: floor", "'name' lacks an id, which other lines have"),
    ("txt", "road:1,2,3::\ncar", "'car' lacks a colour, which other lines have"),
]


def test_a_bad_list_of_classes_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the list of classes cannot be read .No such file"):
        read_classes(tmp_path / "none.json")
    for suffix, text, reason in BAD_LISTS:
        (tmp_path / f"classes.{suffix}").write_text(text)
        with pytest.raises(DataError, match=rf"classes\.{suffix}: .*{reason}"):
            read_classes(tmp_path / f"classes.{suffix}")


def test_ids_saved_as_rgb_are_told_from_blurred_colours(tmp_path: Path) -> None:
    (tmp_path / "classes.json").write_text('{"road": [128, 64, 128], "car": [0, 0, 142]}')
    table = read_classes(tmp_path / "classes.json")
    with pytest.raises(DataError, match="has no class. All are gray: store ids in one channel."):
        table.map_colours(Path("a.png"), np.full((2, 2, 3), 1, np.uint8))
    with pytest.raises(DataError, match="has no class. Anti-aliased or lossy"):
        table.map_colours(Path("a.png"), np.array([[[128, 64, 128], [128, 64, 127]]], np.uint8))


def test_where_labels_are_alone_every_image_needs_them_and_none_needs_depth(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [frame("a"), frame("b")])
    assert len(open_folder(tmp_path)) == 2
    (tmp_path / "labels/b.png").unlink()
    with pytest.raises(DataError, match="1 of 2 images have no labels"):
        open_folder(tmp_path)
    assert list(open_folder(tmp_path, subset="available").names) == ["a"]
    assert open_folder(tmp_path, require_labels=False).read(1).labels is None
    with pytest.raises(DataError, match="depths: no such folder"):
        open_folder(tmp_path, require_depth=True)


def test_beside_depth_either_truth_may_lack_unless_required(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, [frame("a"), replace(sample("b", 48, 64), labels=None)])
    data = open_folder(tmp_path, depth_scale=1000, require_depth=False)
    assert data.read(0).depth is None and data.read(0).labels.any()
    assert data.read(1).depth.any() and data.read(1).labels is None
    layouts.write_folder(tmp_path, [replace(sample("a", 48, 64), labels=frame().labels)])
    assert open_folder(tmp_path, depth_scale=1000).read(1).labels is None
    with pytest.raises(DataError, match="1 of 2 images have no labels"):
        open_folder(tmp_path, depth_scale=1000, require_labels=True)
