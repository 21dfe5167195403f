"""Distortion beside OpenCV's own functions, and views beside its maps; what the lens does is undone."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from densevit.data.recordings.distortion import CameraModel, Distortion
from densevit.errors import DataError
from densevit.ops.geometry import pinhole

LENSES = {
    "freiburg1": Distortion("plumb_bob", (0.2624, -0.9531, 1.1633), (-0.0054, 0.0026)),
    "barrel": Distortion("RADIAL", (-0.28, 0.07)),
    "rational": Distortion("rational_polynomial", (-0.3, 0.1, -0.02, 0.05, 0.01, 0.002), (1e-3, -2e-3)),
    "fisheye": Distortion("equidistant", (0.05, -0.01, 0.004, -0.001), fisheye=True),
    "pure_fisheye": Distortion("equidistant", (0.0,), fisheye=True),
}


def opencv(lens: Distortion) -> np.ndarray:
    """The coefficients in OpenCV's order."""
    k = np.zeros(6)
    k[: len(lens.radial)] = lens.radial
    return k[:4] if lens.fisheye else np.array([*k[:2], *lens.tangential, *k[2:]])


def rays_within(lens: Distortion, count: int = 500) -> np.ndarray:
    rays = np.random.default_rng(0).uniform(-1, 1, (count, 2))
    return rays * min(2.0 if lens.fisheye else 0.6, 0.65 * lens.reach)


@pytest.mark.parametrize("name", LENSES)
def test_distortion_is_opencvs_and_undone_exactly(name: str) -> None:
    lens = LENSES[name]
    rays, k = rays_within(lens), opencv(lens)
    if lens.fisheye:
        expected = cv2.fisheye.distortPoints(rays[None], np.eye(3), k)[0]
    else:
        points = np.hstack([rays, np.ones((len(rays), 1))])
        expected = cv2.projectPoints(points, np.zeros(3), np.zeros(3), np.eye(3), k)[0][:, 0]
    bent = lens.distort(rays)
    np.testing.assert_allclose(bent, expected, atol=1e-12)
    np.testing.assert_allclose(lens.undistort(bent), rays, atol=1e-9)
    if not lens.fisheye:
        stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 500, 1e-14)
        undistort = getattr(cv2, "undistortPointsIter", cv2.undistortPoints)  # of OpenCV 4, and 5
        theirs = undistort(bent[:, None], np.eye(3), k, R=np.eye(3), P=np.eye(3), criteria=stop)[:, 0]
        np.testing.assert_allclose(lens.undistort(bent), theirs, atol=1e-6)


@pytest.mark.parametrize("name", LENSES)
@pytest.mark.parametrize("size", [(480, 640), (120, 160)])
def test_a_view_is_opencvs_map_and_has_no_borders(name: str, size: tuple[int, int]) -> None:
    lens, (h, w) = LENSES[name], size
    camera = CameraModel(517.3, 516.5, 318.6, 235.3, (480, 640), lens)
    view = camera.undistorted(size)
    own = camera.of_size(size)
    assert own.fx == pytest.approx(517.3 * w / 640) and own.cx == pytest.approx((318.6 + 0.5) * w / 640 - 0.5)
    makes = cv2.fisheye.initUndistortRectifyMap if lens.fisheye else cv2.initUndistortRectifyMap
    expected = makes(
        pinhole(own.fx, own.fy, own.cx, own.cy), opencv(lens), np.eye(3), view.matrix, (w, h), cv2.CV_32FC1
    )
    for ours, theirs, last in zip(view.places, expected, (w - 1, h - 1), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
        assert ours.min() >= 0 and ours.max() <= last
    ends = [abs(ours - at).min() for ours, last in zip(view.places, (w - 1, h - 1), strict=True) for at in (0, last)]
    assert min(ends) < 0.01  # as wide as it can be
    corners = np.array([(u, v) for u in (3.0, w - 4) for v in (3.0, h - 4)])
    columns, rows = corners.astype(int).T
    there = np.stack([places[rows, columns] for places in view.places], 1)
    np.testing.assert_allclose(view.pixels(there.astype(np.float64)), corners, atol=1e-3)


def test_a_lens_that_bends_nothing_changes_nothing() -> None:
    image = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    view = CameraModel(30.0, 31.0, 15.0, 12.0).undistorted((24, 32))
    assert view.image(image) is image and view.nearest(image) is image and view.bend == 0
    assert np.array_equal(view.pixels(np.ones((1, 2))), np.ones((1, 2)))
    tiny = CameraModel(30.0, 31.0, 15.0, 12.0, None, Distortion("radtan", (1e-9,))).undistorted((24, 32))
    assert np.array_equal(tiny.image(image), image) and tiny.matrix[0, 0] == pytest.approx(30.0, abs=1e-2)


def test_rays_beyond_the_turning_point_of_the_polynomial_are_none() -> None:
    """r (1 - 0.5 r^2) has its maximum at r = sqrt(2 / 3), where it is 0.544."""
    lens = Distortion("SIMPLE_RADIAL", (-0.5,))
    assert lens.reach == pytest.approx(np.sqrt(2 / 3))
    assert np.isnan(lens.undistort(np.array([[0.6, 0.0]]))).all()
    np.testing.assert_allclose(lens.undistort(np.array([[0.5, 0.0]])), [[0.6180339887, 0.0]], atol=1e-9)
    view = CameraModel(20.0, 20.0, 15.5, 11.5, None, lens).undistorted((24, 32))  # its corners lie beyond
    assert np.hypot(*((view.matrix[[0, 1], 2] + 0.5) / view.matrix[0, 0])) <= lens.reach + 0.05


def test_images_of_another_shape_and_impossible_lenses_are_refused() -> None:
    camera = CameraModel(517.3, 516.5, 318.6, 255.3, (480, 640), LENSES["barrel"])
    with pytest.raises(DataError, match=r"of images of 480 x 640 \(h x w\), this one is 640 x 480, of another shape"):
        camera.undistorted((640, 480))
    with pytest.raises(
        DataError, match=r"distortion RADIAL \(k1 -5e\+06\): no view without borders is left of 480 x 640"
    ):
        replace(camera, distortion=Distortion("RADIAL", (-5e6,))).undistorted((480, 640))
