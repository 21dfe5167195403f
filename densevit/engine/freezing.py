"""Which parts of a model are trained."""

from collections.abc import Iterator

from torch import nn

from densevit.config.schema import Model, Prompt, Temporal


def freeze(model: nn.Module, options: Model) -> None:
    """Leave only the parts that are trained with gradients."""
    if options.freeze_encoder:
        model.get_submodule("encoder").requires_grad_(False)
    if alone := list(trained_alone(options)):
        model.requires_grad_(False)
        for name in alone:
            model.get_submodule(name).requires_grad_(True)


def set_evaluation_mode(model: nn.Module, options: Model) -> None:
    """Set the parts that are not trained to evaluation mode, as dropout and batch norm need it."""
    if options.freeze_encoder:
        model.get_submodule("encoder").eval()
    if alone := list(trained_alone(options)):
        model.eval()
        for name in alone:
            model.get_submodule(name).train()


def trained_alone(options: Model) -> Iterator[str]:
    """Yield the submodules that are trained while all others stay as they are; none where the whole model is."""
    for name, part in (("temporal", options.temporal), ("prompt", options.prompt)):
        if isinstance(part, Temporal | Prompt) and part.freeze_rest:
            yield name
