"""The stabiliser on known scenes: a textured plane that a camera pans over or walks towards, and maps that flicker."""

import cv2
import numpy as np
import pytest
from films import frame

from densevit.errors import ConfigError
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream
from densevit.model_card import Kind

SIZE = (96, 128)
COUNT = 24


def pan() -> list[tuple[np.ndarray, np.ndarray]]:
    """Images and depth of a slanted floor that shifts by two pixels a frame."""
    rows = np.linspace(2, 6, SIZE[0], dtype=np.float32)[::-1, None]
    return [(frame(2 * i, SIZE), np.broadcast_to(rows, SIZE).copy()) for i in range(COUNT)]


def approach() -> list[tuple[np.ndarray, np.ndarray]]:
    """A wall that comes nearer by 2% a frame: its picture grows as its depth falls."""
    wall, found = frame(0, (400, 540)), []
    for i in range(COUNT):
        depth = 4.0 * 0.98**i
        h, w = (side * depth / 4 * 2 for side in SIZE)
        centre = (270.0, 200.0)
        patch = cv2.getRectSubPix(wall, (max(8, round(w)), max(8, round(h))), centre)
        found.append((cv2.resize(patch, SIZE[::-1], interpolation=cv2.INTER_AREA), np.full(SIZE, depth, np.float32)))
    return found


def scales(maps: list[np.ndarray], true: list[np.ndarray]) -> np.ndarray:
    return np.array([np.median(m / t) for m, t in zip(maps, true, strict=True)])


def flickering(kind: Kind, scene: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    if kind == "metric":
        return [(image, depth * np.float32(np.exp(draw.normal(0, 0.05)))) for image, depth in scene]
    values = [(image, 1 / depth) for image, depth in scene]
    return [(i, v * np.float32(draw.uniform(0.9, 1.1)) + np.float32(draw.uniform(-0.02, 0.02))) for i, v in values]


@pytest.mark.parametrize("future", [0, 6])
@pytest.mark.parametrize("scene", [pan, approach])
def test_a_scale_that_flickers_is_steadied_and_true_motion_stays(scene, future: int) -> None:
    given = scene()
    noisy = flickering("metric", given)
    out = list(stabilize_stream(iter(noisy), Stabilizer("metric", future=future)))
    assert len(out) == COUNT
    true = [depth for _, depth in given]
    before, after = scales([d for _, d in noisy], true), scales(out, true)
    jitter = np.abs(np.diff(np.log(before))).mean(), np.abs(np.diff(np.log(after))).mean()
    assert jitter[1] < 0.5 * jitter[0]
    assert abs(np.log(after).mean() - np.log(before).mean()) < 0.02  # no lag behind the wall that comes nearer
    assert np.abs(np.log(after)).mean() <= np.abs(np.log(before)).mean()


@pytest.mark.parametrize(
    ("kind", "future", "lag"), [("metric", 0, 0.005), ("disparity", 6, 0.01), ("disparity", 0, 0.1)]
)
def test_maps_without_unit_lag_behind_a_walk_without_lookahead_and_a_warning_says_so(
    kind: Kind, future: int, lag: float, caplog: pytest.LogCaptureFixture
) -> None:
    scene = approach()
    exact = [(image, depth if kind == "metric" else 1 / depth) for image, depth in scene]
    out = list(stabilize_stream(iter(exact), Stabilizer(kind, future=future)))
    ratios = scales(out, [values for _, values in exact])[COUNT // 3 : -COUNT // 3]
    assert abs(np.log(ratios).mean()) < lag
    assert ("lag by some per cent" in caplog.text) == (kind != "metric" and not future)


@pytest.mark.slow
def test_scale_and_shift_of_relative_maps_are_steadied_and_steady_maps_stay_what_they_are() -> None:
    given = pan()
    noisy = flickering("disparity", given)
    out = list(stabilize_stream(iter(noisy), Stabilizer("disparity", future=6)))
    change = [np.abs(np.diff(np.stack(maps), axis=0)).mean() for maps in ([v for _, v in noisy], out)]
    assert change[1] < 0.5 * change[0]
    for fuse in (False, True):
        out = list(stabilize_stream(iter(given), Stabilizer("metric", future=3, fuse=fuse)))
        np.testing.assert_allclose(np.stack(out), np.stack([d for _, d in given]), rtol=0.02)


def test_the_first_frame_behind_a_cut_takes_nothing_from_before() -> None:
    first, second = pan()[:8], [(frame(2 * i, SIZE, seed=9), np.full(SIZE, 20.0, np.float32)) for i in range(8)]
    for future in (0, 4):
        stabilizer = Stabilizer("metric", future=future)
        out = list(stabilize_stream(iter([*first, *second]), stabilizer))
        assert stabilizer.cuts == 1
        np.testing.assert_allclose(out[8], 20.0, rtol=0.01)  # optical flow differs with the threads of OpenCV
        np.testing.assert_allclose(out[7], first[7][1], rtol=0.02)


def test_fusing_averages_noise_of_places_that_are_seen_again() -> None:
    draw = np.random.default_rng(1)
    given = pan()
    blobs = [cv2.GaussianBlur(draw.normal(0, 1, SIZE).astype(np.float32), (0, 0), 8) for _ in given]
    noisy = [(i, d * np.exp(0.03 * b / b.std())) for (i, d), b in zip(given, blobs, strict=True)]

    def error(fuse: bool) -> float:
        out = stabilize_stream(iter(noisy), Stabilizer("metric", future=4, fuse=fuse))
        return float(np.mean([np.abs(m / d - 1).mean() for m, (_, d) in zip(out, given, strict=True)]))

    assert error(True) < 0.7 * error(False)


def test_unknown_pixels_stay_unknown_and_limits_hold() -> None:
    given = flickering("metric", pan())
    for _, depth in given:
        depth[:10, :10] = np.nan
    out = list(stabilize_stream(iter(given), Stabilizer("metric", future=2, fuse=True, limits=(0.5, 5.0))))
    assert all(np.isnan(m[:10, :10]).all() and np.isfinite(m[12:, 12:]).all() for m in out)
    assert max(np.nanmax(m) for m in out) <= 5.0


def test_the_unit_of_disparity_changes_nothing_where_most_of_the_image_is_unknown() -> None:
    maps = [(image, values.copy()) for image, values in flickering("disparity", pan())[:6]]
    for _, values in maps:
        values[:, :70] = np.nan
    one, thousand = (
        np.stack(list(stabilize_stream([(i, k * v) for i, v in maps], Stabilizer("disparity", future=2))))
        for k in (np.float32(1), np.float32(1024))
    )
    np.testing.assert_allclose(thousand, 1024 * one, rtol=1e-4)


def test_a_window_begun_anywhere_gives_the_same_bits() -> None:
    noisy = flickering("metric", pan())
    whole = list(stabilize_stream(iter(noisy), Stabilizer("metric", past=3, future=2, fuse=True)))
    part = list(stabilize_stream(iter(noisy[7:]), Stabilizer("metric", past=3, future=2, fuse=True)))
    for a, b in zip(whole[10:], part[3:], strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_be_stabilised_is_refused() -> None:
    with pytest.raises(ConfigError, match="only depth"):
        Stabilizer("labels")
    with pytest.raises(ConfigError, match="0 or more"):
        Stabilizer("metric", future=-1)
