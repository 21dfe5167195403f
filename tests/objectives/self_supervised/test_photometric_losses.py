"""Losses of neighbouring frames, beside the formulas of Monodepth2 and SC-Depth written out pixel by pixel."""

import math

import numpy as np
import torch
from torch import Tensor

from densevit.objectives.self_supervised import photometric

torch.manual_seed(0)
X, Y = torch.rand(2, 2, 3, 6, 7, dtype=torch.float64)


def windows(image: Tensor) -> np.ndarray:
    """The 3x3 window of each pixel: n c h w 9; row -1 is row 1, as of a mirror on the border."""
    padded = np.pad(image.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
    return np.stack([padded[..., i : i + 6, j : j + 7] for i in range(3) for j in range(3)], -1)


def test_the_photometric_error_is_85_parts_structural_and_15_parts_absolute() -> None:
    x, y = windows(X), windows(Y)
    mx, my = x.mean(-1), y.mean(-1)
    vx, vy = x.var(-1), y.var(-1)
    cov = ((x - mx[..., None]) * (y - my[..., None])).mean(-1)
    c1, c2 = 0.0001, 0.0009
    ssim = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    expected = 0.85 * np.clip((1 - ssim) / 2, 0, 1) + 0.15 * np.abs(X.numpy() - Y.numpy())
    found = photometric.photometric_error(X, Y)
    np.testing.assert_allclose(found[:, 0], expected.mean(1), atol=1e-12)
    assert photometric.photometric_error(X, X).abs().max() < 1e-12
    assert torch.autograd.gradcheck(photometric.photometric_error, (X.clone().requires_grad_(), Y))


def test_smoothness_is_edge_aware_and_knows_no_scale() -> None:
    disparity = X[:, :1] + 0.5
    d = disparity.numpy() / disparity.numpy().mean((2, 3), keepdims=True)
    total = 0.0
    for n, gaps in ((5 * 7, lambda a: a[..., 1:, :] - a[..., :-1, :]), (6 * 6, lambda a: a[..., 1:] - a[..., :-1])):
        total += (np.abs(gaps(d)) * np.exp(-np.abs(gaps(Y.numpy())).mean(1, keepdims=True))).sum() / (2 * n)
    loss = photometric.smoothness(disparity, Y)
    assert math.isclose(float(loss), total, rel_tol=1e-6)  # 1e-7 is added to the mean
    torch.testing.assert_close(photometric.smoothness(7 * disparity, Y), loss, rtol=1e-6, atol=0)
    assert torch.autograd.gradcheck(photometric.smoothness, (disparity.clone().requires_grad_(), Y))


def test_the_least_error_of_the_sources_counts_and_pixels_that_do_not_move_do_not() -> None:
    errors = torch.tensor([[0.3, 0.2, math.inf, 0.4, math.inf], [0.1, 0.5, 0.2, 0.6, math.inf]])
    unmoved = torch.tensor([[0.9, 0.9, 0.9, 0.35, 0.9], [0.9, 0.15, 0.9, 0.9, 0.9]])
    error, moves = photometric.minimum(errors[None, :, None], unmoved[None, :, None])
    torch.testing.assert_close(error.flatten(), torch.tensor([0.1, 0.15, 0.2, 0.35, 0.9]))
    assert moves.flatten().tolist() == [True, False, True, False, False]
    error, moves = photometric.minimum(errors[None, :, None])
    torch.testing.assert_close(error.flatten(), torch.tensor([0.1, 0.2, 0.2, 0.4, 0.0]))
    assert moves.flatten().tolist() == [True, True, True, True, False]
    _, moves = photometric.minimum(errors[None, :, None], errors[None, :, None])
    assert not moves.any()


def test_the_minimum_teaches_the_chosen_source_alone() -> None:
    errors = torch.tensor([[[[0.3, 0.2]], [[0.1, 0.5]]]], requires_grad=True)
    unmoved = torch.tensor([[[[0.9, 0.1]], [[0.9, 0.9]]]])
    photometric.minimum(errors, unmoved)[0].sum().backward()
    assert errors.grad.flatten().tolist() == [0, 0, 1, 0]


def test_geometric_consistency_is_the_difference_over_the_sum() -> None:
    a, b = torch.tensor([[[[2.0, 3.0]]]]), torch.tensor([[[[1.0, 3.0]]]])
    torch.testing.assert_close(photometric.geometric_difference(a, b), torch.tensor([[[[1 / 3, 0.0]]]]))
    torch.testing.assert_close(photometric.geometric_difference(5 * a, 5 * b), photometric.geometric_difference(b, a))


def test_brightness_that_changed_by_a_factor_and_an_offset_is_matched() -> None:
    target = 0.3 + 0.4 * X
    brighter = 1.3 * target + 0.1
    everywhere = torch.ones(2, 1, 6, 7, dtype=torch.bool)
    torch.testing.assert_close(photometric.matched_brightness(brighter, target, everywhere), target)
    part = everywhere.clone()
    part[..., :3] = False
    damaged = torch.where(part, brighter, 0.0)
    matched = photometric.matched_brightness(damaged, target, part)
    torch.testing.assert_close(matched[..., 3:], target[..., 3:])


def test_the_mean_over_a_mask_is_that_of_each_image_by_itself() -> None:
    values, mask = torch.tensor([[1.0, 3, 5], [2, 4, 6]])[:, None, None], torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()
    assert float(photometric.masked_mean(values, mask[:, None, None])) == (2 + 0) / 2


def test_the_census_error_is_the_soft_hamming_distance_of_7x7_windows() -> None:
    x, y = torch.rand(2, 1, 3, 9, 10, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    row, column, total = 4, 5, 0.0
    for dy in range(-3, 4):
        for dx in range(-3, 4):
            changes = []
            for image in (x, y):
                gray = 255 * image[0].mean(0)
                change = gray[row + dy, column + dx] - gray[row, column]
                changes.append(change / (0.81 + change**2) ** 0.5)
            square = (changes[0] - changes[1]) ** 2
            total += float(square / (0.1 + square)) / 49
    assert abs(float(photometric.census_error(x, y)[0, 0, row, column]) - total) < 1e-9
    small = x[..., :4, :5].clone().requires_grad_()
    assert torch.autograd.gradcheck(photometric.census_error, (small, y[..., :4, :5]))


def test_census_sees_no_exposure_that_changes_over_the_image() -> None:
    image = torch.rand(1, 3, 24, 32, generator=torch.Generator().manual_seed(5))
    ramp = torch.linspace(0.5, 1.0, 32)
    moved = image.roll(1, -1)
    same, other = (float(photometric.census_error(ramp * image, x).mean()) for x in (image, moved))
    assert same < 0.2 * other
    assert photometric.photometric_error(ramp * image, image).mean() > same
