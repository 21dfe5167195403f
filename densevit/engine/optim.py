"""Trained parts, optimiser, parameter groups and learning rate schedule."""

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.config.schema import Model, Optim, Schedule, TrainConfig
from densevit.errors import ConfigError
from densevit.registry import did_you_mean
from densevit.weights.tensor_files import is_sharded


def freeze(model: nn.Module, options: Model) -> None:
    """Leave only the parts that are trained with gradients; `trainable` unfreezes nothing, such as the weights below
    low-rank updates. Raises ConfigError: one of `trainable` is no submodule, or nothing is left to train."""
    modules = dict(model.named_modules())
    if unknown := [name for name in options.trainable if name not in modules]:
        hint = did_you_mean(unknown[0], [name for name in modules if name and name.count(".") < 2])
        raise ConfigError(f"model.trainable: this model has no submodule '{unknown[0]}'.{hint}")
    if options.freeze_encoder:
        model.get_submodule("encoder").requires_grad_(False)
    if options.trainable:
        trained = [p for name in options.trainable for p in modules[name].parameters() if p.requires_grad]
        if not trained:
            raise ConfigError(f"model.trainable: {', '.join(options.trainable)} has no weights that are not frozen.")
        model.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)


def set_evaluation_mode(model: nn.Module, options: Model) -> None:
    """Set the parts that are not trained to evaluation mode, as dropout and batch norm need it. Decoders and heads as a
    whole stay in training, where they return what losses take beside the prediction; so does the model."""
    if options.trainable:
        for module in model.modules():
            module.training = next(module.children(), None) is not None
        model.get_submodule("encoder").eval()
    for name in options.trainable:
        model.get_submodule(name).train()
    if options.freeze_encoder:
        model.get_submodule("encoder").eval()


@runtime_checkable
class LayeredEncoder(Protocol):
    """What the optimiser asks of an encoder."""

    def layer_groups(self) -> list[list[nn.Parameter]]: ...
    def no_weight_decay(self) -> set[str]: ...
    def get_parameter(self, target: str) -> nn.Parameter: ...
    def eval(self) -> object: ...


def training_groups(model: nn.Module, objective: nn.Module, run: TrainConfig) -> list[dict[str, Any]]:
    """Return the groups of a model, then those of what is trained beside it."""
    assert isinstance(model.encoder, LayeredEncoder)
    split = run.schedule.encoder_warmup is not None
    groups = parameter_groups(model, model.encoder, run.optim, split=split)
    return [*groups, *parameter_groups(objective, None, run.optim)]


def parameter_groups(
    model: nn.Module, encoder: LayeredEncoder | None, optim: Optim, *, split: bool = False
) -> list[dict[str, Any]]:
    """Return one group per learning rate and weight decay; `scale` is a group's factor of the scheduled learning rate.

    No weight decay for biases, norms and gains (one dimension or less), and for `encoder.no_weight_decay()`. `encoder`:
    of the model; None where it has none; `split`: the encoder has a schedule of its own; then its groups are marked by
    `encoder`.
    """
    layers = encoder.layer_groups() if encoder else []
    scale_of = {
        parameter: optim.encoder_lr_scale * optim.layer_decay ** (len(layers) - 1 - depth)
        for depth, layer in enumerate(layers)
        for parameter in layer
    }
    no_decay = {encoder.get_parameter(name) for name in encoder.no_weight_decay()} if encoder else set()
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if parameter.requires_grad:
            decay = 0.0 if parameter.ndim <= 1 or parameter in no_decay else optim.weight_decay
            key = (scale_of.get(parameter, 1.0), decay, split and parameter in scale_of)
            groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "scale": scale, "weight_decay": decay, **({"encoder": True} if marked else {})}
        for (scale, decay, marked), parameters in groups.items()
    ]


def build_optimizer(groups: list[dict[str, Any]], optim: Optim) -> torch.optim.Optimizer:
    if optim.type == "sgd":  # weight decay is added to the gradient, as in mmseg and Segmenter
        sharded = any(is_sharded(p) for group in groups for p in group["params"])
        return torch.optim.SGD(
            groups, lr=optim.lr, momentum=optim.momentum, fused=not sharded
        )  # torch has no such kernel
    return torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)


def clipping_groups(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[nn.Parameter]]:
    """Return the parameters whose gradients are clipped by one norm: each module that is `clipped_alone`, and all
    others."""
    separate = [list(module.parameters()) for module in model.modules() if getattr(module, "clipped_alone", False)]
    apart = {parameter for group in separate for parameter in group}
    others = [p for group in optimizer.param_groups for p in group["params"] if p not in apart]
    return [others, *separate]


def step_unless(optimizer: torch.optim.Optimizer, failed: Float[Tensor, ""]) -> None:
    """Take a step unless `failed` is 1. A fused optimiser reads that on the device, so that the host does not wait."""
    for group in optimizer.param_groups:  # torch's SGD fails at a first gradient that comes later than those of others
        for parameter in group["params"] if group.get("momentum") else ():
            if parameter.grad is not None and not optimizer.state[parameter]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    if not optimizer.defaults["fused"]:
        if not failed.item():
            optimizer.step()
        return
    optimizer.found_inf = failed  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


LearningRate = Callable[[int], float]
"""The learning rate of step n (from 0); a pure function, so there is nothing to save."""


def learning_rates(optim: Optim, schedule: Schedule, steps: int) -> tuple[LearningRate, LearningRate]:
    """Return the learning rate, and that of the encoder: the same, unless the schedule has an `encoder_warmup`.

    Then it is 0 during the first warm-up, and follows the same schedule over the steps that are left: new parts learn
    before they change the encoder (EoMT, Kerssies et al. 2025).
    """
    first, encoder_warmup = schedule.warmups(steps)
    rate = warmup_and_decay(optim, schedule, steps, first)
    if schedule.encoder_warmup is None:
        return rate, rate
    later = warmup_and_decay(optim, schedule, steps - first, encoder_warmup)
    return rate, lambda n: later(n - first) if n >= first else 0.0


def warmup_and_decay(optim: Optim, schedule: Schedule, steps: int, warmup: int) -> LearningRate:
    def rate(n: int) -> float:
        if n < warmup:
            ramp = (n + 1) / (warmup + 1)
            if schedule.type == "one_cycle":  # cosine up, as torch's OneCycleLR
                ramp = (1 - math.cos(math.pi * ramp)) / 2
            return optim.lr * (schedule.warmup_start_factor + (1 - schedule.warmup_start_factor) * ramp)
        done = min(1.0, (n - warmup) / max(1, steps - warmup))
        decay: dict[str, float] = {
            "cosine": (1 + math.cos(math.pi * done)) / 2,
            "one_cycle": (1 + math.cos(math.pi * done)) / 2,
            "poly": (1 - done) ** schedule.power,
            "constant": 1.0,
        }
        return optim.lr * (schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * decay[schedule.type])

    return rate


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float, encoder_rate: float) -> None:
    """Set the learning rate of each parameter group; `encoder_rate` is that of groups with the key `encoder`."""
    for group in optimizer.param_groups:
        group["lr"] = (encoder_rate if group.get("encoder") else rate) * group["scale"]
