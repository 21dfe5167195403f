"""Weighting of the losses of several tasks: fixed, as the config says, or by learned uncertainty."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

Terms = Mapping[str, Tensor]


class LossWeighting(nn.Module):
    """Fixed weights: the losses come with them already."""

    def forward(self, terms: Mapping[str, Terms]) -> dict[str, Tensor]:
        """{task: {name: loss}} becomes {name: loss}, with several tasks {task/name: loss}."""
        if len(terms) == 1:
            return dict(next(iter(terms.values())))
        return {f"{task}/{name}": loss for task, losses in terms.items() for name, loss in losses.items()}


class UncertaintyWeighting(LossWeighting):
    """exp(-s) * loss + s / 2 for each task, s = ln(sigma^2) learned with the weights (Kendall et al. 2018, eq. 10).

    The paper halves the losses of regression, which moves their s by ln 2 and nothing else. At the minimum
    exp(-s) * loss is 1/2 for every task, so that none outweighs the others.

    A task whose loss is exactly 0 has no ground truth in the batch, and its s gets no gradient.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__()
        self.index = {name: i for i, name in enumerate(tasks)}
        self.log_variances = nn.Parameter(torch.zeros(len(self.index)))

    def forward(self, terms: Mapping[str, Terms]) -> dict[str, Tensor]:
        weighted = {}
        for task, losses in terms.items():
            s = self.log_variances[self.index[task]]
            weight = torch.exp(-s)
            present = torch.stack(list(losses.values())).detach().sum() != 0
            weighted[task] = {name: weight * loss for name, loss in losses.items()} | {"uncertainty": present * s / 2}
        return super().forward(weighted)


LOSS_WEIGHTINGS = {"fixed": lambda tasks: LossWeighting(), "uncertainty": UncertaintyWeighting}
