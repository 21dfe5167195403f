"""The probe of a pre-training: decoder and heads, trained anew on the frozen encoder before each validation."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from densevit.config import schema
from densevit.data.datasets.base import Dataset
from densevit.data.loading.collate import collate_by_size
from densevit.data.loading.dataloader import OnError
from densevit.data.sanity_checks import attempted
from densevit.engine.train_state import Scores, TrainState
from densevit.errors import DataError, Diverged
from densevit.inference.forward import preprocess, resize_to_input
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.ops.camera import Camera
from densevit.ops.resize import unpadded_size
from densevit.structures import Batch, EncoderOutput
from densevit.tasks.base import Task, extras_of
from densevit.utils.device import Precision, autocast
from densevit.utils.process_group import ProcessGroup

COLLAPSED = 0.01  # of the features' norm: what is left of their differences when all images look alike
MOST_TOKENS = 2048  # whose spread is measured
BATCH = 8


class Probe:
    """Trains the modules between encoder and prediction on labelled images, from the same start each time.

    Args:
        modules: decoder and heads; nothing else trains them.
        batches: the labelled images, each of one source of a mixture.
        options: of the config.
        sources: those that a task learns from, by its name; none: all.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        tasks: Mapping[str, Task],
        batches: Sequence[Batch],
        card: ModelCard,
        options: schema.Probe,
        sources: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.modules, self.tasks, self.batches = nn.ModuleList(modules), tasks, batches
        self.card, self.options, self.sources = card, options, sources
        self.start = {name: value.detach().clone() for name, value in self.modules.state_dict().items()}

    def fit(self, state: TrainState, precision: Precision) -> Scores:
        """Train the probe on the present encoder, on its moving average where there is one. Raises Diverged if the
        encoder gives all images the same features. Returns `feature_std`, the spread of the last features as a share of
        their norm; `feature_rank`, their effective rank (Roy and Vetterli 2007)."""
        model, world = state.model, state.world
        model.eval()
        with state.ema.applied() if state.ema else nullcontext():
            features = [self._features(model, batch.to(world.device), precision) for batch in self.batches]
            with forked_random_state(world):
                if world.is_main:
                    self._train(model, features, precision, world)
            fitted = {name: value.detach().clone() for name, value in self.modules.state_dict().items()}
        world.broadcast(fitted.values())
        self.modules.load_state_dict(fitted)
        if state.ema:
            state.ema.copy_from(model, self.modules)
        return feature_spread([output for _, output in features], state.step)

    @torch.no_grad()
    def _features(self, model: nn.Module, batch: Batch, precision: Precision) -> tuple[Tensor, EncoderOutput]:
        with autocast(precision, batch.image.device):
            x = preprocess(batch.image, self.card.resize, self.card.multiple)
            features: EncoderOutput = model.get_submodule("encoder")(x)
        return x, features

    def _predict(self, model: nn.Module, x: Tensor, features: EncoderOutput, batch: Batch) -> dict[str, Tensor]:
        """Return predictions and extras at the size of the images of a batch, by head; those of a head for one focal
        length, which is of the network's input, for their cameras at this size."""
        assert isinstance(model, DenseModel)
        size, config = (batch.image.shape[-2], batch.image.shape[-1]), self.card.resize
        outputs = DenseModel.forward(model, x, output_size=size, features=features)
        outputs = {name: y if "/" in name else resize_to_input(y, size, config) for name, y in outputs.items()}
        camera, content = Camera.of(batch), unpadded_size(size, config) or (x.shape[-2], x.shape[-1])
        ratio = (camera.resized(size, content, config.align_corners).focal / camera.focal).nan_to_num(1)
        for name in self.card.canonical_focals:
            outputs[name] = outputs[name] * ratio[:, None, None, None]
        return outputs

    def _train(
        self,
        model: nn.Module,
        features: Sequence[tuple[Tensor, EncoderOutput]],
        precision: Precision,
        world: ProcessGroup,
    ) -> None:
        self.modules.load_state_dict(self.start)
        self.modules.requires_grad_(True).train()
        optimizer = torch.optim.AdamW(self.modules.parameters(), lr=self.options.lr, weight_decay=0.01)
        for step in range(self.options.steps):
            index = step % len(self.batches)
            batch, (x, output) = self.batches[index].to(world.device), features[index]
            for group in optimizer.param_groups:
                group["lr"] = self.options.lr * (1 + math.cos(math.pi * step / self.options.steps)) / 2
            with torch.enable_grad():
                with autocast(precision, world.device):
                    outputs = self._predict(model, x, output, batch)
                losses: list[Tensor] = []
                for name, task in self.tasks.items():
                    if {*batch.sources} <= {*(self.sources.get(name) or batch.sources)}:
                        losses += task.losses(outputs[name].float(), batch, step, extras_of(name, outputs)).values()
                if not losses:
                    continue
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(torch.stack(losses).sum())
            nn.utils.clip_grad_norm_(self.modules.parameters(), 1.0)
            optimizer.step()
        self.modules.requires_grad_(False).eval()


@contextmanager
def forked_random_state(world: ProcessGroup) -> Iterator[None]:
    """Make random numbers inside the same each time; those of the training go on behind as if there were none."""
    devices: list[Any] = [world.device] if world.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(0)
        yield


def feature_spread(outputs: Sequence[EncoderOutput], step: int) -> Scores:
    """Return how different the last features of all images and places are; see `Probe.fit`."""
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
            "The checkpoints before stay. Lower optim.lr, or raise objective.momentum and the batch size."
        )
    return {"feature_std": std, "feature_rank": rank}


def read_labelled(data: Dataset, count: int, on_corrupt: OnError = "raise") -> list[Batch]:
    """Return `count` images spread over those of the data set that have files of ground truth, or over all where none
    has such a file, in batches of one size. Raises DataError if an image is unreadable and may not be skipped, or none
    has ground truth."""
    labelled: Sequence[int] = range(len(data))
    labelled = [index for index in labelled if data.files(index).keys() - {"image"}] or labelled
    indices = sorted({labelled[i * len(labelled) // count] for i in range(count)})
    read = {index: sample for index in indices if (sample := attempted(data.read, data, index, on_corrupt)) is not None}
    chunks = [[*read][i : i + BATCH] for i in range(0, len(read), BATCH)]
    batches = [batch for chunk in chunks for batch in collate_by_size([read[i] for i in chunk], chunk)]
    if all(x is None for batch in batches for x in (batch.depth, batch.labels, batch.label, batch.normals)):
        raise DataError("data.probe: its images have no ground truth for the probe to learn.")
    return batches
