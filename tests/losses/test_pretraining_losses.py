"""The losses of pre-training against formulas written out, and against known values."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from densevit.losses.pretraining import dino_loss, ibot_loss, koleo_loss, masked_patch_mse, normalise_patches, patchify


def test_patches_are_in_order_and_normalised_as_in_mae() -> None:
    image = torch.arange(3 * 4 * 6).reshape(1, 3, 4, 6).float()
    patches = patchify(image, 2)
    assert patches.shape == (1, 6, 12)
    assert patches[0, 1, :3].tolist() == [2, 26, 50]  # the colours of the first pixel of the second patch
    assert patches[0, 3].reshape(2, 2, 3)[1, 0].tolist() == [18, 42, 66]
    x = np.random.default_rng(0).normal(3, 2, (1, 5, 12))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + 1e-6)
    assert np.allclose(normalise_patches(torch.tensor(x)).numpy(), expected)


def test_only_masked_patches_count() -> None:
    target, prediction = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    prediction[0, 0], prediction[1, 2] = 3.0, 100.0
    mask = torch.tensor([[True, False, True], [True, False, False]])
    assert masked_patch_mse(prediction, target, mask) == pytest.approx((9 + 1 + 1) / 3)


def test_dino_averages_over_all_pairs_of_different_views() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(4, 3, 7), torch.randn(2, 3, 7).softmax(-1)
    terms = []
    for t in range(2):
        for s in range(4):
            if s != t:
                terms.append(-(teacher[t] * F.log_softmax(student[s] / 0.1, -1)).sum(-1).mean())
    assert len(terms) == 6
    assert dino_loss(student, teacher) == pytest.approx(float(torch.stack(terms).mean()), rel=1e-6)
    uniform = torch.full((2, 3, 4096), 1 / 4096)
    assert dino_loss(torch.zeros(2, 3, 4096), uniform) == pytest.approx(math.log(4096), rel=1e-5)  # 8.3178: collapse


def test_ibot_averages_over_the_masked_patches_of_each_image() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(3, 4, 7), torch.randn(3, 4, 7).softmax(-1)
    mask = torch.tensor([[True, True, False, False], [False] * 4, [True, False, False, False]])
    entropy = -(teacher * F.log_softmax(student / 0.1, -1)).sum(-1)
    expected = (entropy[0, :2].mean() + 0 + entropy[2, 0]) / 3
    assert ibot_loss(student, teacher, mask) == pytest.approx(float(expected), rel=1e-6)


def test_koleo_is_minus_the_log_of_the_nearest_distance() -> None:
    x = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    assert koleo_loss(x) == pytest.approx(-math.log(math.sqrt(2)), rel=1e-5)
    same = torch.ones(4, 384)
    assert koleo_loss(same) == pytest.approx(-math.log(1e-8 * math.sqrt(384) + 1e-8), rel=1e-3)  # 15.4: collapse
