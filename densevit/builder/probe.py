"""The probe of a pre-training: decoder and heads, trained anew on the frozen encoder before each validation."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from densevit.config import schema
from densevit.engine.distributed import DistributedContext
from densevit.engine.train_state import Scores, TrainState
from densevit.errors import Diverged
from densevit.structures import Batch, EncoderOutput
from densevit.tasks.base import Task
from densevit.utils.precision import Precision, autocast

COLLAPSED = 0.01  # of the features' norm: what is left of their differences when all images look alike
MOST_TOKENS = 2048  # whose spread is measured

Encode = Callable[[nn.Module, Tensor], tuple[Tensor, EncoderOutput]]
"""Images b 3 h w in [0, 1] -> the network's input, and the encoder's features of it."""

Decode = Callable[[nn.Module, Tensor, EncoderOutput, tuple[int, int]], dict[str, Tensor]]
"""Input, features, (h, w) of the images -> predictions and extras at that size, by head."""


class Probe:
    """Trains the parts between encoder and prediction on labelled images, from the same start each time.

    Args:
        parts: decoder and heads; nothing else trains them.
        batches: the labelled images.
        options: of the config.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        tasks: Mapping[str, Task],
        batches: Sequence[Batch],
        encode: Encode,
        decode: Decode,
        options: schema.Probe,
    ) -> None:
        self.parts, self.tasks, self.batches, self.options = nn.ModuleList(parts), tasks, batches, options
        self.encode, self.decode = encode, decode
        self.start = {name: value.detach().clone() for name, value in self.parts.state_dict().items()}

    def fit(self, state: TrainState, precision: Precision) -> Scores:
        """Trains the probe on the present encoder, on its moving average where there is one.

        Returns:
            `feature_std`, the spread of the last features as a share of their norm; `feature_rank`, their effective
            rank (Roy and Vetterli 2007).

        Raises:
            Diverged: the encoder gives all images the same features.
        """
        model, world = state.model, state.world
        model.eval()
        with state.ema.applied() if state.ema else nullcontext():
            features = [self._features(model, batch.to(world.device), precision) for batch in self.batches]
            with forked_random_state(world):
                if world.is_main:
                    self._train(model, features, precision, world)
            fitted = {name: value.detach().clone() for name, value in self.parts.state_dict().items()}
        world.broadcast(fitted.values())
        self.parts.load_state_dict(fitted)
        if state.ema:
            state.ema.copy_from(model, self.parts)
        return feature_spread([output for _, output in features], state.step)

    @torch.no_grad()
    def _features(self, model: nn.Module, batch: Batch, precision: Precision) -> tuple[Tensor, EncoderOutput]:
        with autocast(precision, batch.image.device):
            return self.encode(model, batch.image)

    def _train(
        self,
        model: nn.Module,
        features: Sequence[tuple[Tensor, EncoderOutput]],
        precision: Precision,
        world: DistributedContext,
    ) -> None:
        self.parts.load_state_dict(self.start)
        self.parts.requires_grad_(True).train()
        optimizer = torch.optim.AdamW(self.parts.parameters(), lr=self.options.lr, weight_decay=0.01)
        for step in range(self.options.steps):
            index = step % len(self.batches)
            batch, (image, output) = self.batches[index].to(world.device), features[index]
            for group in optimizer.param_groups:
                group["lr"] = self.options.lr * (1 + math.cos(math.pi * step / self.options.steps)) / 2
            with torch.enable_grad():
                with autocast(precision, world.device):
                    found = self.decode(model, image, output, (batch.image.shape[-2], batch.image.shape[-1]))
                losses: list[Tensor] = []
                for name, task in self.tasks.items():
                    extras = {key.partition("/")[2]: x for key, x in found.items() if key.startswith(f"{name}/")}
                    losses += task.losses(found[name].float(), batch, step, extras).values()
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(torch.stack(losses).sum())
            nn.utils.clip_grad_norm_(self.parts.parameters(), 1.0)
            optimizer.step()
        self.parts.requires_grad_(False).eval()


@contextmanager
def forked_random_state(world: DistributedContext) -> Iterator[None]:
    """Random numbers inside are the same each time, and those of the training go on behind as if there were none."""
    devices: list[Any] = [world.device] if world.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(0)
        yield


def feature_spread(outputs: Sequence[EncoderOutput], step: int) -> Scores:
    """How different the last features of all images and places are; see `Probe.fit`."""
    tokens = torch.cat([output.maps[-1].float().flatten(2).transpose(1, 2).flatten(0, 1) for output in outputs])
    x = tokens[:: max(1, len(tokens) // MOST_TOKENS)].double().cpu()
    centred = x - x.mean(0)
    std = float(centred.norm(dim=1).mean() / x.norm(dim=1).mean().clamp(min=1e-12))
    values = torch.linalg.svdvals(centred)
    shares = values / values.sum().clamp(min=1e-12)
    rank = float(torch.exp(-(shares * shares.clamp(min=1e-12).log()).sum()))
    if step and not std > COLLAPSED:
        raise Diverged(
            f"the encoder has collapsed at step {step}: its features differ by {std:.2%} of their norm. "
            "The checkpoints before stay. Lower optim.lr, or raise pretrain.momentum and the batch size."
        )
    return {"feature_std": std, "feature_rank": rank}
