"""Counts of classes and the weights that follow, by hand; classes of a head in the order of its data."""

import math
from dataclasses import replace
from pathlib import Path

import layouts
import numpy as np
import pytest
import yaml
from photo_samples import sample
from shell import Shell

from densevit.data.labels.class_frequencies import METHODS, ClassCounts, count_classes, pixel_counts
from densevit.data.labels.class_table import refuse_reordered
from densevit.errors import ConfigError, DataError
from densevit.structures import IGNORE, Sample

NAMES = ("wall", "floor", "bed", "chair")


def frame(name: str, rows: list[int]) -> Sample:
    """An image of 12 x 10 pixels whose rows have these classes."""
    labels = np.repeat(np.array(rows)[:, None], 10, axis=1)
    return replace(sample(name, len(rows), 10), depth=None, valid=None, labels=labels)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Pixels: wall 90 in both, floor 60 in both, bed 30 in b alone, no chair, 60 ignored."""
    a = frame("a", [0] * 6 + [1] * 3 + [IGNORE] * 3)
    b = frame("b", [0] * 3 + [1] * 3 + [2] * 3 + [IGNORE] * 3)
    layouts.write_folder(tmp_path, [a, b], classes=NAMES)
    return tmp_path


def test_pixels_and_images_of_each_class_are_counted_and_ignored_ones_apart(root: Path) -> None:
    counts = count_classes(layouts.opened("folder", root), threads=2)
    assert counts.pixels.tolist() == [90, 60, 30, 0] and counts.images.tolist() == [2, 2, 1, 0]
    assert counts.present.tolist() == [180, 180, 90, 0] and (counts.ignored, counts.total) == (60, 2)
    np.testing.assert_allclose(counts.shares, [1 / 2, 1 / 3, 1 / 6, 0])


def test_weights_are_those_of_the_papers_formulas(root: Path) -> None:
    counts = count_classes(layouts.opened("folder", root))
    # shares 1/2, 1/3, 1/6 of three classes that occur; frequencies 90/180, 60/180, 30/90 with the median 1/3
    expected = {
        "inverse": [2 / 3, 1, 2, 0],
        "enet": [1 / math.log(1.02 + s) for s in (1 / 2, 1 / 3, 1 / 6)] + [0],
        "median": [2 / 3, 1, 1, 0],
    }
    assert METHODS.keys() == expected.keys()
    for method, weights in expected.items():
        np.testing.assert_allclose(METHODS[method](counts), weights)  # type: ignore[index]


def test_inverse_weights_have_a_mean_of_one_over_the_pixels() -> None:
    pixels = np.array([10, 1000, 7, 0])
    counts = ClassCounts(NAMES, pixels, pixels, pixels, 0, 1)
    assert (METHODS["inverse"](counts) * pixels).sum() / pixels.sum() == pytest.approx(1)


def test_counting_agrees_with_numpy_for_any_ids() -> None:
    rng = np.random.default_rng(0)
    for labels in (rng.integers(0, 300, (40, 50)), rng.integers(-5, 5, (4, 5)), np.array([[0, 10**9]])):
        ids, counts = pixel_counts(labels)
        expected = np.unique(labels, return_counts=True)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(counts, expected[1])


def test_images_without_labels_are_passed_over_and_data_without_any_refused(root: Path) -> None:
    layouts.write_folder(root, [replace(sample("c", 12, 10), labels=None, depth=None, valid=None)])
    data = layouts.opened("folder", root, require_labels=False)
    assert len(data) == 3 and count_classes(data).total == 2
    (root / "images/c.jpg").unlink()
    (root / "classes.json").write_text('[{"id": 0, "name": "a", "ignore": true}, {"id": 9, "name": "b"}]')
    with pytest.raises(DataError, match=r"a\.png: id 1 in 30 pixels"):
        count_classes(layouts.opened("folder", root))
    (root / "classes.json").write_text(
        '[{"id": 9, "name": "b"}, {"id": 0, "name": "x", "ignore": true}, '
        '{"id": 1, "name": "y", "ignore": true}, {"id": 2, "name": "z", "ignore": true}]'
    )
    with pytest.raises(DataError, match="none of the 2 samples has a label"):
        count_classes(layouts.opened("folder", root))
    (root / "classes.json").unlink()
    with pytest.raises(DataError, match="names no classes"):
        count_classes(layouts.opened("folder", root))


def test_the_command_prints_a_table_and_a_line_that_a_config_takes(root: Path, shell: Shell) -> None:
    said = shell("check-data", root, "--class-weights", "inverse").out.splitlines()
    assert said[0] == "all: 2 label maps; 75.0% of the pixels have a class"
    assert said[2].split() == ["0", "wall", "90", "50.0000%", "2", "0.6667", "2.388", "0.6667"]
    [loss] = yaml.safe_load(said[-1])["losses"]
    assert loss == {"type": "cross_entropy", "weights": [0.6667, 1, 2, 0]}
    assert "invalid choice: 'inverted'" in shell.refused("check-data", root, "--class-weights", "inverted")


def test_two_classes_of_one_name_are_in_order() -> None:
    names = ("crane", "boat", "crane")  # the bird and the machine, as in ImageNet
    refuse_reordered("head", names, names)
    refuse_reordered("head", ("dock", "boat", "quay", "lock"), names)
    with pytest.raises(ConfigError, match="0 is 'boat', in the data 'crane'"):
        refuse_reordered("head", ("boat", "crane", "crane"), names)
