"""How the losses of several tasks become one objective: weighted as the config says, or by learned uncertainty."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

Terms = Mapping[str, Tensor]


class LossWeighting(nn.Module):
    """Sums the losses with the weights that they already bear."""

    def forward(self, terms: Mapping[str, Terms]) -> dict[str, Tensor]:
        """Task -> its named losses becomes one name -> loss; the names of several tasks begin with theirs."""
        if len(terms) == 1:
            return dict(next(iter(terms.values())))
        return {f"{task}/{name}": loss for task, losses in terms.items() for name, loss in losses.items()}


class UncertaintyWeighting(LossWeighting):
    """exp(-s) * loss + s / 2 for each task, s = ln(sigma^2) learned with the weights (Kendall et al. 2018, eq. 10).

    The paper halves the losses of regression, which moves their s by ln 2 and nothing else. The objective is at rest
    where exp(-s) * loss is 1/2 for every task, so that none drowns the others.

    A task whose loss is exactly 0 had no truth in the batch: it has nothing to say of its uncertainty either.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__()
        self.places = {name: i for i, name in enumerate(tasks)}
        self.log_variances = nn.Parameter(torch.zeros(len(self.places)))

    def forward(self, terms: Mapping[str, Terms]) -> dict[str, Tensor]:
        balanced = {}
        for task, losses in terms.items():
            s = self.log_variances[self.places[task]]
            weight = torch.exp(-s)
            present = torch.stack(list(losses.values())).detach().sum() != 0
            balanced[task] = {name: weight * loss for name, loss in losses.items()} | {"balance": present * s / 2}
        return super().forward(balanced)


BALANCES = {"fixed": lambda tasks: LossWeighting(), "uncertainty": UncertaintyWeighting}
