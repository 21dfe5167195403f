"""Moves that heed label maps."""

from dataclasses import replace

import numpy as np
import pytest

from densevit.data.transforms.affine import TRANSFORMS
from densevit.data.transforms.geometric import GeometricTransform, LazySample, compose, has_several_classes
from densevit.structures import IGNORE, Sample

SEEDS = 400


def halves(ignored: int = 0) -> Sample:
    """30 x 100 pixels, class 0 to the left and class 1 to the right; the first rows ignored."""
    labels = np.zeros((30, 100), np.int64)
    labels[:, 50:] = 1
    labels[:ignored] = IGNORE
    return Sample(name="halves", image=np.zeros((30, 100, 3), np.uint8), labels=labels)


def crop(sample: Sample, seed: int, **options: float) -> Sample:
    transform = TRANSFORMS.check({"type": "random_crop", "size": (30, 20), **options}, "t").build()
    return compose([transform])(sample, np.random.default_rng(seed))


@pytest.mark.parametrize("ignored", [0, 20])
def test_a_crop_looks_at_ten_windows_for_a_varied_one(ignored: int) -> None:
    # Of 81 windows, those that begin at column 36 to 44 hold less than 3/4 of either class: one in nine.
    varied = [
        np.mean([has_several_classes(crop(halves(ignored), seed, **options).labels, 0.75) for seed in range(SEEDS)])  # type: ignore[arg-type]
        for options in ({}, {"max_share": 0.75})
    ]
    expected = np.array([1 / 9, 1 - (8 / 9) ** 10])
    deviation = np.sqrt(expected * (1 - expected) / SEEDS)
    assert (np.abs(varied - expected) < 4 * deviation).all()


def test_without_labels_and_without_a_wish_the_window_is_the_first() -> None:
    marked = halves()
    marked.image[...] = np.arange(100, dtype=np.uint8)[None, :, None]
    blind = replace(marked, labels=None)
    for seed in range(20):
        plain = crop(marked, seed).image
        np.testing.assert_array_equal(plain, crop(blind, seed, max_share=0.75).image)
        np.testing.assert_array_equal(plain, crop(marked, seed, max_share=1.0).image)


def test_one_class_alone_is_not_varied_and_ignored_pixels_do_not_count() -> None:
    assert not has_several_classes(np.zeros((2, 2), np.int64), 0.9)
    assert not has_several_classes(np.full((2, 2), IGNORE), 0.9)
    assert has_several_classes(np.array([[0, 1, IGNORE, IGNORE]]), 0.75)
    assert not has_several_classes(np.array([[0, 0, 0, 1]]), 0.75) and has_several_classes(
        np.array([[0, 0, 0, 1]]), 0.76
    )


@pytest.mark.parametrize(
    "spec", [{"type": "hflip", "p": 1.0}, {"type": "rotate", "degrees": 30}, {"type": "random_scale"}]
)
def test_labels_alone_are_those_of_the_whole(spec: dict[str, object]) -> None:
    move = TRANSFORMS.check(spec, "t").build()
    assert isinstance(move, GeometricTransform)
    view = LazySample.of(halves())
    moved = view.transform(move.draw_for(view, np.random.default_rng(3)))
    np.testing.assert_array_equal(moved.labels(), moved.render().labels)


def test_classes_beyond_255_keep_their_ids_and_255_fills_what_lies_outside() -> None:
    sample = replace(halves(), labels=np.full((30, 100), 65535))
    turned = compose([TRANSFORMS.check({"type": "rotate", "degrees": 30}, "t").build()])(
        sample, np.random.default_rng(3)
    )
    assert turned.labels is not None and set(np.unique(turned.labels)) == {IGNORE, 65535}
