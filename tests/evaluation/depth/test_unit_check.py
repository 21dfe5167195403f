"""Predictions of a wrong unit are noticed, and the unit is named."""

import numpy as np
import pytest

from densevit.evaluation.depth.scores import Maps, unit_warning


def pairs(factor: float = 1.0, inverse: bool = False, noise: float = 0.2) -> list[Maps]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(3):
        depth = rng.uniform(0.8, 9, (24, 32)).astype(np.float32)
        prediction = depth * np.exp(rng.normal(0, noise, depth.shape))
        valid = rng.random(depth.shape) > 0.3
        found.append(((factor / prediction if inverse else factor * prediction).astype(np.float32), depth, valid))
    return found


@pytest.mark.parametrize(
    ("factor", "scale", "advice"),
    [
        (1000, None, "1000 units per metre. Use --scale 1000."),
        (256, None, "--scale 256."),
        (5000, None, "--scale 5000."),
        (100, None, "--scale 100."),
        (1 / 1000, None, "units of 1000 m. Use --scale 0.001."),
        (256 / 1000, 1000, "--scale 256."),  # KITTI's files read as millimetres
        (1000 / 256, 256, "--scale 1000."),
        (9, None, "--align median; if up to a factor and a shift, --prediction-type affine."),
    ],
)
def test_a_wrong_unit_is_named_with_its_remedy(factor: float, scale: float | None, advice: str) -> None:
    warning = unit_warning(pairs(factor), scale)
    assert advice in warning and "the median prediction is" in warning


def test_inverse_depth_is_told_by_its_order_and_a_poor_model_is_no_reason_to_warn() -> None:
    for factor in (1, 4, 5000):
        warning = unit_warning(pairs(factor, inverse=True))
        assert "inverse depth" in warning and "--prediction-type disparity" in warning
    depth = np.ones((4, 5), np.float32)
    nothing = [(np.zeros((4, 5), np.float32), depth, depth > 0)]  # no common pixel
    for quiet in (*(pairs(factor, noise=0.5) for factor in (0.6, 1, 1.7)), nothing, [(depth, depth, depth > 0)]):
        assert unit_warning(quiet) == ""
