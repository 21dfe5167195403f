"""Panoptic quality against a plain implementation of panopticapi's rules, segment by segment."""

from collections import defaultdict

import numpy as np
import pytest

from densevit.evaluation.segments.panoptic import as_row, count, pooled, quality

CLASSES, THINGS = 6, (0, 1, 2)
Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def reference(cases: list[Case]) -> dict[str, float]:
    """PQ, SQ and RQ of things, stuff and all by their definitions."""
    iou, tp, fp, fn = (defaultdict(float) for _ in range(4))
    for predicted, predicted_classes, ids, classes, crowd in cases:
        matched_true, matched = set(), set()
        for g, c in enumerate(classes, 1):
            for p, d in enumerate(predicted_classes, 1):
                common = ((ids == g) & (predicted == p)).sum()
                if crowd[g - 1] or c != d or not common:
                    continue
                union = (ids == g).sum() + (predicted == p).sum() - common - ((ids == 0) & (predicted == p)).sum()
                if common / union > 0.5:
                    iou[c] += common / union
                    tp[c] += 1
                    matched_true.add(g)
                    matched.add(p)
        crowds = {}
        for g, c in enumerate(classes, 1):
            if g in matched_true or not (ids == g).any():
                continue
            if crowd[g - 1]:
                crowds[c] = g
            else:
                fn[c] += 1
        for p, c in enumerate(predicted_classes, 1):
            area = (predicted == p).sum()
            if p in matched or not area:
                continue
            excused = ((ids == 0) & (predicted == p)).sum()
            if c in crowds:
                excused += ((ids == crowds[c]) & (predicted == p)).sum()
            fp[c] += excused / area <= 0.5
    found = {}
    for part, chosen in {"": range(CLASSES), "_things": THINGS, "_stuff": set(range(CLASSES)) - set(THINGS)}.items():
        seen = [c for c in chosen if tp[c] + fp[c] + fn[c]]
        total = {c: tp[c] + fp[c] / 2 + fn[c] / 2 for c in seen}
        values = {
            "pq": [iou[c] / total[c] for c in seen],
            "sq": [iou[c] / tp[c] if tp[c] else 0 for c in seen],
            "rq": [tp[c] / total[c] for c in seen],
        }
        found |= {name + part: float(np.mean(x)) for name, x in values.items() if x}
    return found


def drawn(rng: np.random.Generator, segments: int, size: tuple[int, int] = (40, 50)) -> Case:
    """Rectangles, and the same moved a little; some crowds, some void, some of one pixel."""

    def paint(boxes: np.ndarray) -> np.ndarray:
        ids = np.zeros(size, np.int32)
        for number, (y, x, h, w) in enumerate(boxes, 1):
            ids[y : y + h, x : x + w] = number
        return ids

    boxes = np.stack([rng.integers(0, size[0], segments), rng.integers(0, size[1], segments),
                      rng.integers(1, 14, segments), rng.integers(1, 14, segments)], 1)  # fmt: skip
    moved = np.maximum(boxes + rng.integers(-1, 2, boxes.shape), (0, 0, 1, 1))[rng.random(segments) < 0.9]
    classes = rng.integers(0, CLASSES, segments)
    guessed = np.where(rng.random(len(moved)) < 0.8, classes[: len(moved)], rng.integers(0, CLASSES, len(moved)))
    return paint(moved), guessed, paint(boxes), classes, rng.random(segments) < 0.15


@pytest.mark.parametrize("segments", [1, 8, 30, 200])
def test_random_segments_have_the_scores_of_the_definition(segments: int) -> None:
    rng = np.random.default_rng(segments)
    cases = [drawn(rng, segments) for _ in range(3 if segments == 200 else 8)]
    rows = [as_row(count(*case, CLASSES)) for case in cases]
    assert pooled(rows, CLASSES, THINGS) == pytest.approx(reference(cases), abs=1e-9)


def test_odd_images_have_the_scores_of_the_definition() -> None:
    none, one = np.zeros(0, np.int64), np.array([2])
    void, full, point = np.zeros((4, 4), np.int32), np.ones((4, 4), np.int32), np.eye(4, dtype=np.int32)
    single = np.zeros((4, 4), np.int32)
    single[1, 1] = 1
    no, yes = np.array([False]), np.array([True])
    cases: list[Case] = [
        (void, none, full, one, no),  # nothing is predicted
        (full, one, void, none, np.zeros(0, np.bool_)),  # all is void
        (full, one, full, one, yes),  # all is a crowd
        (single, one, single, one, no),  # of one pixel
        (point, one, full, np.array([4]), no),  # another class
        (void, none, void, none, np.zeros(0, np.bool_)),
        (full, one, single, one, no),  # void takes nothing from the union
    ]
    for case in cases:
        row = pooled([as_row(count(*case, CLASSES))], CLASSES, THINGS)
        assert row == pytest.approx(reference([case]), abs=1e-9)
    assert pooled([as_row(count(*case, CLASSES)) for case in cases], CLASSES, THINGS) == pytest.approx(reference(cases))


def test_a_class_that_does_not_occur_is_left_out_and_one_without_a_match_is_0() -> None:
    stats = np.array([[1.5, 2, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]])
    found = quality(stats, [0, 2])
    assert (found["pq"], found["sq"], found["rq"]) == pytest.approx((0.375, 0.375, 0.5))
    assert (found["pq_things"], found["pq_stuff"]) == pytest.approx((0.75, 0.0))
