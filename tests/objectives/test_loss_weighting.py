"""How the losses of several tasks become one: by fixed weights, and by learned uncertainty."""

import math

import pytest
import torch

from densevit.objectives.supervised import LOSS_WEIGHTINGS, LossWeighting, UncertaintyWeighting


def uncertainty(splits: int = 1, others: float = 0) -> UncertaintyWeighting:
    """Of depth and labels. `others`: processes beside this one that have ground truth of every task."""
    balance = UncertaintyWeighting(["depth", "labels"])
    balance.attach(splits, lambda present: present + others)
    return balance


def terms(depth: float, labels: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"depth": {"silog": torch.tensor(depth)}, "labels": {"cross_entropy": torch.tensor(labels)}}


def test_fixed_weights_change_nothing_and_names_say_whose_a_loss_is() -> None:
    assert LossWeighting()(terms(2.0, 3.0)) == {"depth/silog": 2.0, "labels/cross_entropy": 3.0}
    assert LossWeighting()({"depth": {"silog": torch.tensor(2.0)}}) == {"silog": 2.0}
    assert not list(LOSS_WEIGHTINGS["fixed"](["depth", "labels"]).parameters())


def test_uncertainty_by_hand() -> None:
    balance = uncertainty()
    balance.log_variances.data = torch.tensor([math.log(4.0), 0.0])
    found = {name: value.item() for name, value in balance(terms(2.0, 3.0)).items()}
    # exp(-ln 4) * 2 and ln 4 / 2; 3 and 0.
    assert found == pytest.approx(
        {"depth/silog": 0.5, "depth/uncertainty": math.log(2.0), "labels/cross_entropy": 3.0, "labels/uncertainty": 0.0}
    )


def test_at_rest_every_task_weighs_the_same_however_large_its_loss() -> None:
    balance = uncertainty()
    optimizer = torch.optim.Adam(balance.parameters(), lr=0.2)
    for _ in range(150):
        balance.on_train_step(0)
        optimizer.zero_grad()
        torch.stack(list(balance(terms(0.02, 5.0)).values())).sum().backward()
        optimizer.step()
    balance.on_train_step(0)
    found = balance(terms(0.02, 5.0))
    # d/ds (exp(-s) L + s / 2) = 0 at exp(-s) L = 1/2.
    assert found["depth/silog"].item() == pytest.approx(0.5, abs=0.01)
    assert found["labels/cross_entropy"].item() == pytest.approx(0.5, abs=0.01)


def test_a_batch_without_the_truth_of_a_task_leaves_its_uncertainty_alone() -> None:
    balance = uncertainty()
    torch.stack(list(balance(terms(0.7, 0.0)).values())).sum().backward()
    gradient = balance.log_variances.grad
    assert gradient is not None and gradient[0] != 0 and gradient[1] == 0


def test_ground_truth_in_some_micro_batches_weighs_as_in_all() -> None:
    """(0 + 4 + 6) / 3 and (3 + 3 + 3) / 3, split and whole; of two processes, the others have every ground truth."""
    for splits, others, parts in (
        (1, 0, [terms(10 / 3, 3.0)]),
        (3, 0, [terms(depth, 3.0) for depth in (0.0, 4.0, 6.0)]),
        (3, 2, [terms(10 / 3, 3.0)]),
    ):
        balance = uncertainty(splits, others)
        for part in parts:
            (torch.stack(list(balance(part).values())).sum() / len(parts)).backward()
        assert balance.log_variances.grad is not None
        assert balance.log_variances.grad.tolist() == pytest.approx([1 / 2 - 10 / 3, 1 / 2 - 3])
