"""The moving average of the weights as a teacher of images without ground truth (mean teacher, Tarvainen & Valpola
2017; for dense prediction UniMatch V2, arXiv:2410.10777). b images, h x w pixels."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from densevit.engine.ema import EMA
from densevit.structures import Batch


class ConsistencyTeacher:
    """Predicts from the weak views of a batch, in evaluation mode and without gradients.

    Args:
        model: of the student; its weights are not touched.
        ema: whose average teaches.
        sources: the data sets of the mixture whose images it teaches.
        inputs: what the model takes beside images (cameras).
    """

    def __init__(
        self, model: nn.Module, ema: EMA, sources: frozenset[str], inputs: Callable[[Batch], Mapping[str, Tensor]]
    ) -> None:
        self.model, self.ema, self.sources, self.inputs = model, ema, sources, inputs

    def rows(self, batch: Batch) -> list[int]:
        """The images of a batch that it teaches."""
        return [row for row, source in enumerate(batch.sources) if source in self.sources]

    @torch.no_grad()
    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """By head, the predictions for `rows(batch)`, of CutMix those of both images put together as the images are;
        empty where there are no such images."""
        taught = batch.take(rows) if (rows := self.rows(batch)) else None
        if taught is None or taught.weak is None:
            return {}
        with evaluating(self.model):
            found = self._predict(taught.weak, taught)
            mixed = [] if taught.pasted is None else taught.pasted.flatten(1).any(1).nonzero().flatten().tolist()
            if mixed and taught.pasted is not None and taught.weak_pasted is not None:
                inside = taught.pasted[mixed][:, None]
                for head, values in self._predict(taught.weak_pasted[mixed], taught.take(mixed)).items():
                    found[head][mixed] = torch.where(inside, values, found[head][mixed])
        return found

    def _predict(self, image: Tensor, batch: Batch) -> dict[str, Tensor]:
        image = image.contiguous(memory_format=torch.channels_last)
        found = functional_call(self.model, self.ema.average, (image,), dict(self.inputs(batch)))
        return {head: values.float() for head, values in found.items() if "/" not in head}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside the block the model is in evaluation mode; after it every part is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
