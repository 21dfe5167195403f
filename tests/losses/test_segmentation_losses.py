"""Segmentation losses: by hand, by slow and obvious definitions, and on the inputs that break published ones."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor

from densevit.errors import ConfigError
from densevit.losses.segmentation import LABEL_LOSSES, CrossEntropy, LabelLoss, dice, lovasz
from densevit.structures import IGNORE

OURS = ("cross_entropy", "ohem", "focal", "dice", "lovasz")
VARIANTS = [
    *({"type": name} for name in OURS),
    {"type": "cross_entropy", "weights": [1, 2, 0.5], "label_smoothing": 0.1, "pool": "image"},
    {"type": "ohem", "weights": [1, 2, 0.5], "threshold": 0.2},
    {"type": "focal", "gamma": 0.0, "weights": [1, 2, 0.5]},
    {"type": "focal", "gamma": 0.5},
    {"type": "dice", "exponent": 2, "classes": "all", "pool": "image"},
    {"type": "dice", "smooth": 0, "pool": "image"},
    {"type": "lovasz", "pool": "image"},
]


def loss(spec: dict[str, object]) -> LabelLoss:
    return LABEL_LOSSES.check(spec, "loss").build()


def value(name: str, logits: Tensor, labels: Tensor, **options: object) -> float:
    return loss({"type": name, **options})(logits, labels, {}).item()


def maps(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Logits and labels of three classes, a fifth of the pixels without one."""
    b, h, w = shape or (2, 5, 7)
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(b, 3, h, w, generator=g, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 3, (b, h, w), generator=g)
    labels[torch.rand(b, h, w, generator=g) < 0.2] = IGNORE
    return logits, labels


def test_cross_entropy_by_hand() -> None:
    # Two pixels with p(label) 1/2 and 1/4, one without a label: (ln 2 + ln 4) / 2 = 1.5 ln 2.
    logits = torch.tensor([[0.5, 0.25, 0.9], [0.25, 0.5, 0.05], [0.25, 0.25, 0.05]]).log()[None, :, None]
    labels = torch.tensor([[[0, 2, IGNORE]]])
    assert value("cross_entropy", logits, labels) == pytest.approx(1.5 * np.log(2))
    # Weights 1 and 3 weigh the pixels and leave the divisor: (ln 2 + 3 ln 4) / 2.
    assert value("cross_entropy", logits, labels, weights=[1, 1, 3]) == pytest.approx(3.5 * np.log(2))


def test_pooled_by_image_an_image_without_labels_is_0_and_the_others_do_not_see_it() -> None:
    logits, labels = maps(3, 4, 4)
    labels[1] = IGNORE
    for name in ("cross_entropy", "dice", "lovasz", "focal"):
        alone = [value(name, logits[i : i + 1], labels[i : i + 1]) for i in range(3)]
        assert alone[1] == 0
        assert value(name, logits, labels, pool="image") == pytest.approx(sum(alone) / 3)


def test_label_smoothing_mixes_in_the_mean_over_all_classes() -> None:
    logits, labels = maps()
    logs = logits.log_softmax(1)
    labelled = labels != IGNORE
    true = logs.gather(1, labels.where(labelled, 0)[:, None])[:, 0][labelled]
    by_hand = -(0.9 * true + 0.1 * logs.mean(1)[labelled]).mean()
    assert value("cross_entropy", logits, labels, label_smoothing=0.1) == pytest.approx(by_hand.item(), rel=1e-6)


def test_ohem_keeps_what_is_below_the_threshold_and_at_least_its_share() -> None:
    # p(label) of ten pixels: 0.05, 0.15, ... 0.95.
    shares = torch.arange(0.05, 1, 0.1)
    logits = torch.stack([shares, 1 - shares]).log()[None, :, None]
    labels = torch.zeros(1, 1, 10, dtype=torch.int64)
    hard = -shares.log()
    assert value("ohem", logits, labels, threshold=0.5, keep=0.2) == pytest.approx(hard[:5].mean().item(), rel=1e-5)
    assert value("ohem", logits, labels, threshold=0.01, keep=0.3) == pytest.approx(hard[:3].mean().item(), rel=1e-5)
    assert value("ohem", logits, labels, threshold=0.5, keep=1.0) == pytest.approx(hard.mean().item(), rel=1e-5)


def test_focal_by_hand_and_without_gamma_cross_entropy() -> None:
    shares = torch.tensor([0.9, 0.2])
    logits = torch.stack([shares, 1 - shares]).log()[None, :, None]
    labels = torch.zeros(1, 1, 2, dtype=torch.int64)
    by_hand = (0.1**2 * -np.log(0.9) + 0.8**2 * -np.log(0.2)) / 2
    assert value("focal", logits, labels) == pytest.approx(by_hand, rel=1e-5)
    without_gamma = value("focal", *maps(), gamma=0, weights=[1, 2, 0.5])
    assert without_gamma == pytest.approx(value("cross_entropy", *maps(), weights=[1, 2, 0.5]), rel=1e-5)


def test_dice_is_the_overlap_of_each_class() -> None:
    logits, labels = maps()
    labels[labels == 2] = 1  # class 2 does not occur
    shares = logits.softmax(1) * (labels != IGNORE)[:, None]
    for exponent in (1, 2):
        losses = []
        for c in range(3):
            member, share = (labels == c)[:, None].float(), shares[:, c : c + 1]
            losses.append(1 - (2 * (share * member).sum() + 1) / ((share**exponent).sum() + member.sum() + 1))
        found = dice(logits, labels, exponent=exponent)
        assert found.item() == pytest.approx(sum(losses[:2]).item() / 2, rel=1e-5)
        every = dice(logits, labels, exponent=exponent, classes="all")
        assert every.item() == pytest.approx(sum(losses).item() / 3, rel=1e-5)


def test_lovasz_is_the_extension_of_one_less_iou() -> None:
    """The definition: errors in falling order, each times the growth of 1 - IoU when one more pixel is mispredicted."""
    logits, labels = maps(1, 4, 5)
    labelled = labels[0] != IGNORE
    shares, truth = logits[0].softmax(0)[:, labelled].numpy(), labels[0][labelled].numpy()

    def lost(member: np.ndarray, wrong: np.ndarray) -> float:
        predicted = member ^ wrong
        return 1 - (member & predicted).sum() / (member | predicted).sum()

    losses = []
    for c in np.unique(truth):
        member = truth == c
        errors = np.abs(member - shares[c])
        order = np.argsort(-errors, kind="stable")
        sets = [np.isin(np.arange(len(truth)), order[:n]) for n in range(len(truth) + 1)]
        growth = [lost(member, more) - lost(member, less) for less, more in pairwise(sets)]
        losses.append((errors[order] * growth).sum())
    assert lovasz(logits, labels).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_lovasz_of_certain_predictions_is_one_less_iou() -> None:
    labels = torch.tensor([[[0, 0, 0, 1]]])
    predicted = torch.tensor([0, 0, 1, 1])
    logits = 60.0 * torch.nn.functional.one_hot(predicted, 2).float().T[None, :, None]
    # Class 0: 2 of 3; class 1: 1 of 2.
    assert lovasz(logits, labels).item() == pytest.approx(1 - (2 / 3 + 1 / 2) / 2, abs=1e-6)


@pytest.mark.parametrize("spec", VARIANTS, ids=str)
def test_a_perfect_prediction_costs_next_to_nothing_and_a_wrong_one_more(spec: dict[str, object]) -> None:
    _, labels = maps(2, 16, 16)
    right = 40.0 * torch.nn.functional.one_hot(labels.where(labels != IGNORE, 0), 3).movedim(-1, 1).float()
    smooth = float(spec.get("label_smoothing", 0))  # type: ignore[arg-type]
    best, worst = loss(spec)(right, labels, {}).item(), loss(spec)(-right, labels, {}).item()
    assert best == pytest.approx(smooth * 40 * 2 / 3, rel=0.6, abs=0.02) and worst > best + 0.3


@pytest.mark.parametrize("spec", VARIANTS, ids=str)
def test_losses_and_gradients_are_finite_and_exactly_0_without_labels(spec: dict[str, object]) -> None:
    for empty, dtype in product((2, 1, 0), (torch.float32, torch.bfloat16)):
        logits, labels = maps(dtype=dtype)
        labels[:empty] = IGNORE  # images
        logits = (30 * logits).requires_grad_()
        found = loss(spec)(logits, labels, {})
        found.backward()
        assert found.dtype == torch.float32 and torch.isfinite(found) and torch.isfinite(logits.grad).all()
        assert not logits.grad.movedim(1, -1)[labels == IGNORE].any()
        assert (found.item() == 0 and not logits.grad.any()) if empty == 2 else found.item() > 0
    # What is predicted where nothing is known does not matter.
    logits, labels = maps()
    other = torch.where((labels == IGNORE)[:, None], 100 * logits, logits)
    assert torch.equal(loss(spec)(logits, labels, {}), loss(spec)(other, labels, {}))


def test_weights_for_other_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 numbers for the 3 classes"):
        CrossEntropy(weights=(1.0, 2.0)).check(3)
