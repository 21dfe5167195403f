"""Tiles of a network that changes its mind about scale and shift come out as one map, in memory that stays flat."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn

from densevit.benchmark.isolated import STATUS, status
from densevit.errors import ConfigError
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.output_plan import Plan
from densevit.inference.predict.pipeline import export
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import Tiling, predict_tiled, seam, stretched
from densevit.inference.writers import Png16
from densevit.inference.writers.labels import Labels
from densevit.model_card import HeadSpec, Kind, ModelCard, PreprocessConfig

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

    def __call__(self, images: np.ndarray, zoom: float) -> dict[str, np.ndarray]:
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
    assert seam(found, TILING) < 1.3  # the scene's own steps are of whole grey values
    naive = stitched(Fickle(kind), image)
    assert seam(naive, TILING) > 3  # the same answers side by side, as they come


def stitched(look: Fickle, image: np.ndarray) -> np.ndarray:
    found = np.zeros(image.shape[:2], np.float32)
    for rows, columns in TILING.over(*image.shape[:2]):
        found[rows.slice, columns.slice] = look(image[rows.slice, columns.slice][None], 1.0)["depth"][0, 0]
    return found


def test_a_tile_that_says_the_opposite_of_the_whole_is_not_believed() -> None:
    noise = np.random.default_rng(0)

    def look(images: np.ndarray, zoom: float) -> dict[str, np.ndarray]:
        light = images[:, None, ..., 0].astype(np.float32)
        return {"depth": light if zoom < 1 else noise.normal(0, 20, light.shape).astype(np.float32) - light}

    image = scene(200, 200)
    found = predict_tiled(look, image, {"depth": "affine"}, TILING)["depth"]
    assert np.abs(found - image[..., 0]).max() < 6  # the whole, seen at half the size


def test_zeros_in_metres_of_the_whole_are_left_out_of_the_fit() -> None:
    def look(images: np.ndarray, zoom: float) -> dict[str, np.ndarray]:
        light = images[:, None, ..., 0].astype(np.float32)
        if zoom == 1:
            return {"depth": 3 * light}
        light[..., :40] = 0  # of 96
        return {"depth": light}

    image = scene(200, 200)
    found = predict_tiled(look, image, {"depth": "metric"}, TILING)["depth"]
    assert np.abs(found / image[..., 0] - 1)[:, 150:].max() < 0.02  # where the last tile stands alone


def test_the_part_of_the_whole_that_a_tile_is_fitted_to_lies_where_resizing_would_put_it() -> None:
    small = np.random.default_rng(0).normal(size=(20, 26)).astype(np.float32)
    large = F.interpolate(torch.from_numpy(small)[None, None], size=(200, 260), mode="bilinear", align_corners=False)
    for rows, columns in TILING.over(200, 260):
        part = large[0, 0, rows.slice, columns.slice].numpy()
        # OpenCV's warp places pixels to 1/32 of a small one.
        assert np.abs(stretched(small, (200, 260), rows, columns) - part).max() < 4 / 32


def test_tiles_may_share_a_batch_and_other_heads_are_left_out() -> None:
    image, look = scene(200, 300), Fickle("affine")

    def two(images: np.ndarray, zoom: float) -> dict[str, np.ndarray]:
        return {**look(images, zoom), "labels": np.zeros((len(images), 5, *images.shape[1:3]), np.float32)}

    assert set(predict_tiled(two, image, {"depth": "affine", "labels": "labels"}, TILING, batch_size=4)) == {"depth"}
    tiles = len(list(TILING.over(200, 300)))
    assert look.looks == 1 + -(-tiles // 4)
    with pytest.raises(ConfigError, match="depth only"):
        predict_tiled(two, image, {"labels": "labels"}, TILING)


class Joint(nn.Module):
    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        grey = 1 + image.mean(1, keepdim=True)
        return {"depth": grey, "labels": torch.cat([grey, 2 - grey], 1)}


def test_classes_of_pixels_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    card = ModelCard(
        outputs={"depth": HeadSpec(kind="metric"), "labels": HeadSpec(kind="labels", classes=("a", "b"))},
        multiple=14,
    )
    tiled = Predictor(Joint(), card, device="cpu", precision="fp32", tiling=70)
    image = scene(60, 90)
    with pytest.raises(ConfigError, match=r"tiles: for depth only, not for labels \(labels\)"):
        tiled(image, head="labels")
    assert tiled(image).shape == (60, 90)
    Image.fromarray(image).save(tmp_path / "a.png")
    items = [Item(tmp_path / "a.png", "a")]
    outputs = {"png16": Png16(), "labels": Labels()}
    with pytest.raises(ConfigError, match="depth only"):
        export(tiled, Plan(items, outputs, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


class Grey(nn.Module):
    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        return {"depth": 1 + image.mean(1, keepdim=True)}


def predictor(tiling: Tiling | int | None, **options: object) -> Predictor:
    card = ModelCard(
        outputs={"depth": HeadSpec(kind="metric", range=(1e-3, 10.0))},
        multiple=14,
        resize=PreprocessConfig(mode="lower_bound", size=(70, 70)),
    )
    return Predictor(Grey(), card, device="cpu", precision="fp32", tiling=tiling, **options)  # type: ignore[arg-type]


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


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells how much memory is held")
def test_beside_picture_and_map_the_memory_of_tiles_does_not_grow_with_the_picture() -> None:
    torch.set_num_threads(1)
    predict = predictor(Tiling(512))
    grown = {}
    predict(np.zeros((600, 600, 3), np.uint8))
    for megapixels in (2, 24):
        side = int((megapixels * 1e6) ** 0.5)
        image = np.zeros((side, side, 3), np.uint8)
        image[:] = 100
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        depth = predict(image)
        grown[megapixels] = status("VmHWM") - before - depth.nbytes / 2**20
    # A float copy of 24 megapixels would be 275 MB, a second map 92 MB.
    assert grown[24] < grown[2] + 40
