"""Tiled prediction: tiles of any scale and shift become one map without seams, in constant memory."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn
from toy_models import fp32

from densevit.errors import ConfigError
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.output_plan import OutputPlan
from densevit.inference.predict.pipeline import ImageExporter
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import Tiling, predict_tiled, upsample_tile
from densevit.inference.writers.base import Png16
from densevit.inference.writers.labels import Labels
from densevit.model_card import HeadSpec, Kind, ModelCard
from densevit.model_inputs import ModelInputs
from densevit.ops.camera import Camera
from densevit.preprocess_config import PreprocessConfig
from densevit.speed.timing import STATUS, peak_memory_growth

TILING = Tiling(96, 0.25)


def scene(h: int, w: int) -> UInt8[np.ndarray, "h w 3"]:
    """Smooth light, so that what it becomes when made small is nearly itself."""
    y, x = np.mgrid[:h, :w] / max(h, w)
    light = 128 + 60 * np.sin(5 * x + 2 * y) + 50 * np.cos(4 * y - x)
    return np.repeat(light.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)


class Fickle:
    """Light, up to a scale and, unless it gives metres, a shift that it chooses anew at each look."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.random = np.random.default_rng(0)
        self.looks = 0

    def __call__(self, images: np.ndarray, camera: object) -> dict[str, np.ndarray]:
        self.looks += 1
        answers = []
        for image in images:
            scale, shift = self.random.uniform(0.5, 2), self.random.uniform(-3, 3)
            light = image[..., 0].astype(np.float32) / 50 + 0.5
            answers.append(scale * light + (0 if self.kind == "metric" else shift))
        return {"depth": np.stack(answers)[:, None].astype(np.float32)}


@pytest.mark.parametrize("kind", ["metric", "affine", "disparity"])
def test_tiles_of_any_scale_and_shift_become_one_map_without_seams(kind: Kind) -> None:
    image = scene(250, 330)
    found = predict_tiled(Fickle(kind), image, {"depth": kind}, TILING)["depth"]
    truth = image[..., 0] / 50 + 0.5
    correlation = np.corrcoef(found.ravel(), truth.ravel())[0, 1]
    assert correlation > 0.9995
    assert seam_visibility(found, TILING) < 1.3  # the scene's own steps are of whole grey values
    naive = stitched(Fickle(kind), image)
    assert seam_visibility(naive, TILING) > 3  # the same answers side by side, as they come


def stitched(look: Fickle, image: np.ndarray) -> np.ndarray:
    found = np.zeros(image.shape[:2], np.float32)
    for rows, columns in TILING.tiles(*image.shape[:2]):
        found[rows.slice, columns.slice] = look(image[rows.slice, columns.slice][None], None)["depth"][0, 0]
    return found


CAMERA = Camera(torch.tensor([[1.0, 1.0, 0.0, 0.0]]))


def is_whole(inputs: ModelInputs) -> bool:
    """The whole image is resized, and its camera with it."""
    return bool(inputs["camera"][0, 0] < 1)


def test_a_tile_that_says_the_opposite_of_the_whole_is_not_believed() -> None:
    noise = np.random.default_rng(0)

    def look(images: np.ndarray, inputs: ModelInputs) -> dict[str, np.ndarray]:
        light = images[:, None, ..., 0].astype(np.float32)
        return {"depth": light if is_whole(inputs) else noise.normal(0, 20, light.shape).astype(np.float32) - light}

    image = scene(200, 200)
    found = predict_tiled(look, image, {"depth": "affine"}, TILING, inputs={"camera": CAMERA.values})["depth"]
    assert np.abs(found - image[..., 0]).max() < 6  # the whole, seen at half the size


def test_zeros_in_metres_of_the_whole_are_left_out_of_the_fit() -> None:
    def look(images: np.ndarray, inputs: ModelInputs) -> dict[str, np.ndarray]:
        light = images[:, None, ..., 0].astype(np.float32)
        if not is_whole(inputs):
            return {"depth": 3 * light}
        light[..., :40] = 0  # of 96
        return {"depth": light}

    image = scene(200, 200)
    found = predict_tiled(look, image, {"depth": "metric"}, TILING, inputs={"camera": CAMERA.values})["depth"]
    assert np.abs(found / image[..., 0] - 1)[:, 150:].max() < 0.02  # where the last tile stands alone


def test_the_part_of_the_whole_that_a_tile_is_fitted_to_lies_where_resizing_would_put_it() -> None:
    small = np.random.default_rng(0).normal(size=(20, 26)).astype(np.float32)
    large = F.interpolate(torch.from_numpy(small)[None, None], size=(200, 260), mode="bilinear", align_corners=False)
    for rows, columns in TILING.tiles(200, 260):
        part = large[0, 0, rows.slice, columns.slice].numpy()
        # OpenCV's warp places pixels to 1/32 of a small one.
        assert np.abs(upsample_tile(small, (200, 260), rows, columns) - part).max() < 4 / 32


def test_tiles_may_share_a_batch_and_other_heads_are_left_out() -> None:
    image, look = scene(200, 300), Fickle("affine")

    def two(images: np.ndarray, camera: object) -> dict[str, np.ndarray]:
        return {**look(images, camera), "labels": np.zeros((len(images), 5, *images.shape[1:3]), np.float32)}

    assert set(predict_tiled(two, image, {"depth": "affine", "labels": "labels"}, TILING, batch_size=4)) == {"depth"}
    tiles = len(list(TILING.tiles(200, 300)))
    assert look.looks == 1 + -(-tiles // 4)
    with pytest.raises(ConfigError, match="depth only"):
        predict_tiled(two, image, {"labels": "labels"}, TILING)


class Joint(nn.Module):
    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        grey = 1 + image.mean(1, keepdim=True)
        return {"depth": grey, "labels": torch.cat([grey, 2 - grey], 1)}


def predictor(tiling: Tiling | int | None) -> Predictor:
    depth, labels = HeadSpec(kind="metric", range=(1e-3, 10.0)), HeadSpec(kind="labels", classes=("a", "b"))
    outputs = {"depth": depth, "labels": labels}
    card = ModelCard(outputs=outputs, multiple=14, resize=PreprocessConfig(mode="lower_bound", size=(70, 70)))
    return fp32((Joint(), card), tiling=tiling)


def test_classes_of_pixels_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    tiled, image = predictor(70), scene(60, 90)
    with pytest.raises(ConfigError, match=r"not for labels \(labels\); leave tiles out, or name heads of depth"):
        tiled(image, head="labels")
    with pytest.raises(ConfigError, match=r"tiles: for depth only, not for labels \(labels\)"):
        tiled.classes(image)
    assert tiled(image).shape == (60, 90)
    Image.fromarray(image).save(tmp_path / "a.png")
    outputs = {"png16": Png16(), "labels": Labels()}
    with pytest.raises(ConfigError, match="depth only"):
        ImageExporter(tiled, OutputPlan([Item(tmp_path / "a.png", "a")], outputs, tmp_path / "out")).export()
    assert not (tmp_path / "out").exists()


def test_a_predictor_with_tiles_is_sharper_than_without_and_leaves_small_pictures_alone() -> None:
    image = np.random.default_rng(0).integers(0, 256, (210, 280, 3), dtype=np.uint8)
    truth = 1 + image.mean(-1) / 255
    tiled, whole = predictor(Tiling(70))(image), predictor(None)(image)
    assert tiled.shape == whole.shape == (210, 280)
    # A tile of 70 meets this network at 70: nothing of the noise is lost but what tiles' fits add.
    assert np.abs(tiled - truth).mean() < 0.2 * np.abs(whole - truth).mean()
    small = image[:60, :70]
    assert np.array_equal(predictor(Tiling(70))(small), predictor(None)(small))


def test_a_window_holds_under_tiles_too_and_around_it_there_is_no_value() -> None:
    image = scene(200, 260)
    found = predictor(Tiling(70))(image, box=(20, 180, 0, 260))
    assert np.isnan(found[:20]).all()
    assert np.isnan(found[180:]).all()
    assert np.isfinite(found[20:180]).all()


def prepare_tiles(megapixels: int) -> Callable[[], np.ndarray]:
    """For a process of its own, where nothing that other tests left behind is freed or grows meanwhile."""
    torch.set_num_threads(1)
    predict, side = predictor(Tiling(512)), int((megapixels * 1e6) ** 0.5)
    predict(np.zeros((600, 600, 3), np.uint8))
    return partial(predict, np.full((side, side, 3), 100, np.uint8))


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells how much memory is held")
def test_beside_picture_and_map_the_memory_of_tiles_does_not_grow_with_the_picture() -> None:
    grown = {m: (peak_memory_growth(prepare_tiles, m) or 0) - 4e6 * m / 2**20 for m in (2, 24)}
    # A float copy of 24 megapixels would be 275 MB, a second map 92 MB.
    assert grown[24] < grown[2] + 40


def test_weights_add_up_to_one_in_every_pixel_and_neighbours_share_at_least_the_overlap() -> None:
    for length, overlap in product((7, 64, 65, 100, 333, 1000), (0.05, 0.25, 0.5)):
        total, spans = np.zeros(length), Tiling(64, overlap).spans(length)
        for span in spans:
            assert 0 <= span.start < span.stop <= length
            assert span.weights.shape == (span.stop - span.start,)
            total[span.slice] += span.weights
        np.testing.assert_allclose(total, 1, atol=1e-6)
        assert {span.stop - span.start for span in spans} == {min(64, length)}
        assert all(a.stop - b.start >= int(64 * overlap) for a, b in pairwise(spans))
        assert (spans[0].start, spans[-1].stop) == (0, length)
    ((rows, columns),) = Tiling(64).tiles(64, 40)
    assert (rows.slice, columns.slice) == (slice(0, 64), slice(0, 40)) and np.all(rows.weights == 1)
    for side, overlap in ((1, 0.25), (64, 0.0), (64, 0.6)):
        with pytest.raises(ConfigError, match="tile"):
            Tiling(side, overlap)


def seam_visibility(values: Float[np.ndarray, "h w"], tiling: Tiling, reach: int = 8) -> float:
    """How much steeper a map is where tiles begin and end than a few pixels beside: 1 where no seam is visible.

    The mean absolute step from one pixel to the next across each such line, over the same across the lines up to
    `reach` pixels away; NaN is left out. 1 for a map that is one tile.
    """
    at: list[float] = []
    beside: list[float] = []
    for axis in (0, 1):
        jumps = np.abs(np.diff(values, axis=axis))
        known = ~np.isnan(jumps)
        steps = np.where(known, jumps, 0).sum(1 - axis) / np.maximum(known.sum(1 - axis), 1)
        lines = seam_lines(tiling, values.shape[axis])
        near = {i for line in lines for i in range(line - reach, line + reach + 1)} - set(lines)
        seen = known.sum(1 - axis) > 0
        at += [steps[line] for line in lines if seen[line]]
        beside += [steps[i] for i in sorted(near) if 0 <= i < len(steps) and seen[i]]
    usual = float(np.mean(beside)) if beside else 0.0
    return float(np.mean(at)) / usual if usual > 0 else 1.0


def seam_lines(tiling: Tiling, length: int) -> list[int]:
    """Where tiles begin and end: the indices of the steps into and out of them."""
    spans = tiling.spans(length)
    begins = [span.start - 1 for span in spans[1:]]
    ends = [span.stop - 1 for span in spans[:-1]]
    return sorted({*begins, *ends})
