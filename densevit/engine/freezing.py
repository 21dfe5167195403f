"""Which parts of a model are trained."""

from torch import nn

from densevit.config.schema import Model
from densevit.errors import ConfigError
from densevit.registry import did_you_mean


def freeze(model: nn.Module, options: Model) -> None:
    """Leave only the parts that are trained with gradients. Raises ConfigError: one of `trainable` is no submodule."""
    modules = dict(model.named_modules())
    if unknown := [name for name in options.trainable if name not in modules]:
        hint = did_you_mean(unknown[0], [name for name in modules if name and name.count(".") < 2])
        raise ConfigError(f"model.trainable: this model has no submodule '{unknown[0]}'.{hint}")
    if options.freeze_encoder:
        model.get_submodule("encoder").requires_grad_(False)
    if options.trainable:
        model.requires_grad_(False)
    for name in options.trainable:
        modules[name].requires_grad_(True)


def set_evaluation_mode(model: nn.Module, options: Model) -> None:
    """Set the parts that are not trained to evaluation mode, as dropout and batch norm need it."""
    if options.freeze_encoder:
        model.get_submodule("encoder").eval()
    if options.trainable:
        model.eval()
    for name in options.trainable:
        model.get_submodule(name).train()
