"""Cross entropy by hand."""

import math

import pytest
import torch

from densevit.losses.image_level import CrossEntropy
from densevit.structures import NO_LABEL


def test_cross_entropy_is_minus_the_log_of_the_share() -> None:
    # Shares 1/4, 3/4 and 1/2, 1/2.
    logits = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
    loss = CrossEntropy()(logits, torch.tensor([0, 1]))
    assert loss.item() == pytest.approx((math.log(4) + math.log(2)) / 2)


def test_label_smoothing_spreads_its_share_over_all_classes() -> None:
    logits = torch.tensor([[0.0, math.log(3)]])
    smooth = CrossEntropy(label_smoothing=0.2)(logits, torch.tensor([0]))
    # 0.9 of the truth is on class 0, 0.1 on class 1.
    assert smooth.item() == pytest.approx(0.9 * math.log(4) + 0.1 * math.log(4 / 3))


def test_images_without_a_class_do_not_count() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    cross_entropy = CrossEntropy(label_smoothing=0.1)
    loss = cross_entropy(logits, torch.tensor([2, NO_LABEL, NO_LABEL]))
    assert loss.item() == pytest.approx(cross_entropy(logits[:1], torch.tensor([2])).item())
    loss.backward()
    assert logits.grad is not None and not logits.grad[1:].any()


def test_a_batch_without_any_class_costs_nothing_and_keeps_the_graph() -> None:
    logits = torch.randn(2, 5, requires_grad=True)
    loss = CrossEntropy()(logits, torch.full((2,), NO_LABEL))
    loss.backward()
    assert loss.item() == 0 and logits.grad is not None and not logits.grad.any()


def test_half_precision_logits_are_taken_in_fp32() -> None:
    loss = CrossEntropy()(torch.tensor([[100.0, 0.0]], dtype=torch.bfloat16), torch.tensor([1]))
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(100)
