"""The moving average of the weights as a teacher of images without ground truth (mean teacher, Tarvainen & Valpola
2017; for dense prediction UniMatch V2, arXiv:2410.10777). b images, h x w pixels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from densevit.config.schema import Run
from densevit.data.datasets.base import MixtureSource
from densevit.engine.objective import Runtime, model_inputs
from densevit.structures import Batch
from densevit.utils.device import autocast


def misplaced(sources: Sequence[MixtureSource], run: Run) -> Iterator[str]:
    """Yield what keeps sources with `consistency` from being learned from."""
    for i, source in enumerate(sources):
        if source.strong is None:
            continue
        where = f"data.train.sources.{i}.consistency"
        if source.truths != ("none",):
            yield f"{where}: for images without ground truth; set `truth: none` beside it."
        if run.ema is None:
            yield f"{where}: its teacher is the moving average of the weights; set `ema`, to 0.996 say."
        if run.parallel == "fsdp" or run.compile:
            yield f"{where}: its teacher does not go with {'compile' if run.compile else 'parallel: fsdp'}."


class ConsistencyTeacher:
    """Predicts from the weak views of a batch, in evaluation mode and without gradients.

    Args:
        sources: the data sets of the mixture whose images it teaches.
    """

    def __init__(self, sources: frozenset[str]) -> None:
        self.sources = sources

    def rows(self, batch: Batch) -> list[int]:
        """Return the images of a batch that it teaches."""
        return [row for row, source in enumerate(batch.sources) if source in self.sources]

    @torch.no_grad()
    def __call__(self, batch: Batch, runtime: Runtime) -> dict[str, Tensor]:
        """Return the predictions for `rows(batch)` by head, of CutMix those of both images put together as the images
        are; empty where there are no such images."""
        taught = batch.take(rows) if (rows := self.rows(batch)) else None
        if taught is None or taught.weak is None:
            return {}
        with evaluating(runtime.state.model), autocast(runtime.precision, batch.image.device):
            predictions = self._predict(taught.weak, taught, runtime)
            mixed = [] if taught.pasted is None else taught.pasted.flatten(1).any(1).nonzero().flatten().tolist()
            if mixed and taught.pasted is not None and taught.weak_pasted is not None:
                inside = taught.pasted[mixed][:, None]
                for head, y in self._predict(taught.weak_pasted[mixed], taught.take(mixed), runtime).items():
                    predictions[head][mixed] = torch.where(inside, y, predictions[head][mixed])
        return predictions

    def _predict(self, image: Tensor, batch: Batch, runtime: Runtime) -> dict[str, Tensor]:
        model, ema = runtime.state.model, runtime.state.ema
        assert ema is not None
        image = image.contiguous(memory_format=torch.channels_last)
        inputs = model_inputs(model, replace(batch, features=None))  # cached ones are those of the strong view
        predictions = functional_call(model, ema.average, (image,), inputs)
        return {head: y.float() for head, y in predictions.items() if "/" not in head}


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
