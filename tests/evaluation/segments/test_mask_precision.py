"""Average precision and recall of masks against pycocotools."""

from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from densevit.data.io.coco import encode_mask, mask_of
from densevit.evaluation.segments.instances import Matches, average_precision, bootstrap_precision, match

CLASSES = 4
Image = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
SIZES = ("_small", "_medium", "_large")
NAMES = ("ap", "ap50", "ap75", *(f"ap{s}" for s in SIZES), "ar1", "ar10", "ar100", *(f"ar{s}" for s in SIZES))


def rle(mask: np.ndarray) -> dict[str, Any]:
    return coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))


def reference(images: list[Image]) -> dict[str, float]:
    truth, found = COCO(), COCO()
    listed = [{"id": i, "height": image[3].shape[1], "width": image[3].shape[2]} for i, image in enumerate(images)]
    categories = [{"id": k, "name": str(k)} for k in range(CLASSES)]
    rows: list[list[dict[str, Any]]] = [[], []]
    for i, (masks, classes, scores, true_masks, true_classes, crowd, areas) in enumerate(images):
        for mask, k, score in zip(masks, classes, scores, strict=True):
            rows[1].append({"image_id": i, "category_id": int(k), "score": float(score), "segmentation": rle(mask),
                            "area": int(mask.sum()), "iscrowd": 0, "id": len(rows[1]) + 1})  # fmt: skip
        for mask, k, group, area in zip(true_masks, true_classes, crowd, areas, strict=True):
            rows[0].append({"image_id": i, "category_id": int(k), "segmentation": rle(mask), "area": float(area),
                            "iscrowd": int(group), "id": len(rows[0]) + 1})  # fmt: skip
    for one, annotations in zip((truth, found), rows, strict=True):
        one.dataset = {"images": listed, "categories": categories, "annotations": annotations}
        one.createIndex()
    scorer = COCOeval(truth, found, "segm")
    scorer.evaluate()
    scorer.accumulate()
    scorer.summarize()
    return {name: float(value) for name, value in zip(NAMES, scorer.stats, strict=True) if value > -1}


def drawn(rng: np.random.Generator, objects: int, detections: int, size: tuple[int, int] = (150, 200)) -> Image:
    def paint(boxes: np.ndarray) -> np.ndarray:
        masks = np.zeros((len(boxes), *size), np.bool_)
        for mask, (y, x, h, w) in zip(masks, boxes, strict=True):
            mask[y : y + h, x : x + w] = True
        return masks

    def boxes(count: int) -> np.ndarray:
        corners, sides = rng.integers(0, size, (count, 2)), rng.choice([1, 8, 20, 60, 130], (count, 2))
        return np.concatenate([corners, sides], 1)

    true, classes = boxes(objects), rng.integers(0, CLASSES - 1, objects)
    copies = rng.integers(0, max(objects, 1), detections)
    near = true[copies] + rng.integers(-2, 3, (detections, 4)) if objects else boxes(detections)
    near = np.maximum(near, (0, 0, 1, 1))
    guessed = np.where(
        rng.random(detections) < 0.8, classes[copies] if objects else 0, rng.integers(0, CLASSES, detections)
    )
    masks = paint(true)
    return (paint(near), guessed, rng.random(detections), masks, classes, rng.random(objects) < 0.15,
            masks.sum((1, 2)) * rng.uniform(0.8, 1.2, objects))  # fmt: skip


def scores(images: list[Image]) -> tuple[dict[str, float], list[Matches]]:
    matches = [match(*image, CLASSES) for image in images]
    return average_precision(matches)[0], matches


@pytest.mark.parametrize("counts", [(1, 1), (6, 12), (25, 130), (0, 4), (5, 0)])
def test_random_images_have_the_scores_of_pycocotools(counts: tuple[int, int]) -> None:
    rng = np.random.default_rng(counts)
    images = [drawn(rng, *counts) for _ in range(4)] + [drawn(rng, 3, 3)]
    assert scores(images)[0] == pytest.approx(reference(images), abs=1e-9)


def test_equal_scores_200_segments_and_an_empty_image_too() -> None:
    rng = np.random.default_rng(0)
    images = [drawn(rng, 200, 250, (60, 80)), drawn(rng, 0, 0), drawn(rng, 4, 8)]
    images = [(masks, classes, np.round(values, 1), *rest) for masks, classes, values, *rest in images]
    assert scores(images)[0] == pytest.approx(reference(images), abs=1e-9)
    empty = [(*drawn(rng, 2, 0)[:3], *drawn(rng, 2, 0)[3:])]
    assert scores(empty)[0] == pytest.approx(reference(empty), abs=1e-9)


def test_intervals_hold_the_score_and_need_six_images() -> None:
    rng = np.random.default_rng(1)
    images = [drawn(rng, 4, 8) for _ in range(12)]
    found, matches = scores(images)
    names = [str(i) for i in range(12)]
    for name, redrawn in bootstrap_precision(matches, names).items():
        low, high = redrawn.interval()
        assert low < found[name] < high
    assert bootstrap_precision(matches[:5], names[:5]) == {}


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of pycocotools under NumPy 2
def test_polygons_and_run_lengths_are_those_of_pycocotools() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        h, w = (int(x) for x in rng.integers(5, 60, 2))
        outline = (rng.uniform(-0.01, 1.01, (int(rng.integers(3, 9)), 2)) * (w, h)).ravel().tolist()
        expected = coco_mask.decode(coco_mask.frPyObjects([outline], h, w))[..., 0].astype(bool)
        np.testing.assert_array_equal(mask_of([outline], (h, w), ""), expected)
        noise = rng.random((h, w)) < rng.random()
        assert encode_mask(noise) == rle(noise) | {"counts": rle(noise)["counts"].decode()}
        np.testing.assert_array_equal(mask_of(encode_mask(noise), (h, w), ""), noise)
