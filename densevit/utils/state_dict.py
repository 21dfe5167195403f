"""Strict loading of weights, with a report of everything that does not fit, and hashes of weights."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from densevit.errors import CheckpointError


def load_strict(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    source: str | Path,
    *,
    what: str = "the model",
    ignore: Callable[[str], bool] = lambda name: False,
) -> None:
    """Load all weights of `module`, or none. Raises CheckpointError: counts and the first five names of weights that
    are missing, unexpected, of another shape or type, or not finite.

    Args:
        source: the file, for error messages.
        what: the module, for error messages.
        ignore: names that the module lacks and that the file may have.
    """
    weights = module.state_dict()
    shared = [name for name in weights if name in tensors]
    parameters = {name for name, _ in module.named_parameters()}
    faults = {
        "missing": [name for name in weights if name not in tensors],
        "unexpected": [name for name in tensors if name not in weights and not ignore(name)],
        "of another shape": [
            f"{name} (file {list(tensors[name].shape)}, model {list(weights[name].shape)})"
            for name in shared
            if tensors[name].shape != weights[name].shape
        ],
        "of a type that cannot be converted": [
            f"{name} (file {dtype_and_layout(tensors[name])}, model {dtype_and_layout(weights[name])})"
            for name in shared
            if not is_convertible(tensors[name], weights[name])
        ],
        "not finite": [name for name in shared if name in parameters and not is_finite(tensors[name])],
    }
    report = "; ".join(
        f"{len(names)} {fault}: {', '.join(names[:5])}{', ...' * (len(names) > 5)}"
        for fault, names in faults.items()
        if names
    )
    if report:
        raise CheckpointError(f"{source}: does not fit {what}; of {len(weights)} weights, {report}.")
    module.load_state_dict({name: tensors[name] for name in weights})


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return a sha256 of names and values in fp32, so that it does not depend on the type they are stored in."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        values = tensors[name].detach().cpu().float().contiguous().numpy()
        digest.update(f"{name} {values.shape}\n".encode())
        digest.update(values.data)
    return digest.hexdigest()


def weights_fingerprint(model: nn.Module) -> str:
    """Return a hash of the weights: the same path may hold other weights tomorrow."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor_bytes(value))
    return digest.hexdigest()[:16]


def tensor_bytes(value: Tensor) -> Any:
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def is_convertible(tensor: Tensor, weight: Tensor) -> bool:
    """Return False for quantised and sparse tensors, and for integers and booleans in place of floats."""
    return tensor.layout == weight.layout and (tensor.is_floating_point() or not weight.is_floating_point())


def dtype_and_layout(tensor: Tensor) -> str:
    return f"{tensor.dtype}, {tensor.layout}".replace("torch.", "").removesuffix(", strided")


def check_finite(
    source: object,
    tensors: Mapping[str, Tensor],
    gather: Callable[[list[str]], Iterable[list[str]]] = lambda names: [names],
) -> None:
    """Raise CheckpointError, which begins with `source`: a tensor is NaN or infinite somewhere. `gather`: the names of
    one process to those of all."""
    bad = sorted(set().union(*gather([name for name, tensor in tensors.items() if not is_finite(tensor)])))
    if bad:
        raise CheckpointError(f"{source}: {len(bad)} weights are NaN or infinite: {', '.join(bad[:5])}.")


def is_finite(tensor: Tensor) -> bool:
    if tensor.layout != torch.strided or not tensor.is_floating_point():
        return True
    return bool(torch.isfinite(tensor).all())
