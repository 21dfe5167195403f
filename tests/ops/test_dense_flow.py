"""Dense optical flow depends on its two frames alone."""

import cv2
import numpy as np

from densevit.ops.flow import Gray, dense_flow


def texture(size: tuple[int, int]) -> Gray:
    pixels = np.random.default_rng(0).random(size) * 255
    return cv2.normalize(cv2.GaussianBlur(pixels, (0, 0), 3), None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def test_large_motion_is_found_after_small_frames() -> None:
    a = texture((240, 320))
    b = np.roll(a, 20, axis=1)
    before = dense_flow(a, b)
    dense_flow(a[:20, :24].copy(), b[:20, :24].copy())
    after = dense_flow(a, b)
    assert np.array_equal(before, after)
    assert np.abs(np.median(after[40:-40, 60:-60], axis=(0, 1)) - [20, 0]).max() < 0.5
