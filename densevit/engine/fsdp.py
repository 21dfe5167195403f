"""Fully sharded data parallel training (FSDP2): each process holds a shard of every tensor."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

M = TypeVar("M", bound=nn.Module)


def shard(model: M, mesh: DeviceMesh, gathered: torch.dtype | None = None) -> M:
    """Shard each transformer block by itself, and the rest together; gradients are averaged over the mesh,
    in fp32. `gathered`: the blocks' weights are gathered as this, at half of the traffic in bf16. Autocast alone would
    make copies of them that the backward pass keeps: the whole model, on every process. The rest is gathered in fp32,
    so that the tokens between blocks are fp32 as without FSDP."""
    policy = MixedPrecisionPolicy(
        param_dtype=gathered,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,  # autocast decides
    )
    model.to(memory_format=torch.contiguous_format)
    # FSDP registers its backward hooks on the model's outputs, and refuses views.
    model.register_forward_hook(lambda module, args, outputs: {name: x.clone() for name, x in outputs.items()})
    for block in transformer_blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    # Resharded after the forward pass, so that weights are read and saved as shards between two steps.
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    return model


def transformer_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks of a transformer: the members of the outermost module lists whose members have one class."""
    for child in module.children():
        members = list(child.children())
        alike = isinstance(child, nn.ModuleList | nn.Sequential) and len({type(member) for member in members}) == 1
        if alike and len(members) > 1 and any(True for _ in child.parameters()):
            yield from members
        else:
            yield from transformer_blocks(child)


def local(tensor: Tensor) -> Tensor:
    """Return the shard of this process; the tensor itself where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_state_dict(tree: Any, *, keep: bool) -> Any:
    """Return the same tree with every sharded tensor whole and on the CPU; all processes must call it together. `keep`:
    whether this process keeps them; others get None in their place, which saves memory."""
    if isinstance(tree, DTensor):
        tensor = tree.full_tensor()
        return tensor.cpu() if keep else None
    if isinstance(tree, Mapping):
        return {key: full_state_dict(value, keep=keep) for key, value in tree.items()}
    if isinstance(tree, list):
        return [full_state_dict(value, keep=keep) for value in tree]
    return tree


def distribute_like(value: Any, model: Tensor) -> Any:
    """Return a whole tensor in the layout of `model`: sharded over the same mesh, or in the same memory format.

    A value of another shape is returned as it is, and one that is sharded already.
    """
    if not isinstance(value, Tensor) or isinstance(value, DTensor) or value.shape != model.shape:
        return value
    if isinstance(model, DTensor):
        # Contiguous, as the parameter is: fused optimisers read both in the order of memory.
        value = value.to(model.device, model.dtype).contiguous()
        return distribute_tensor(value, model.device_mesh, model.placements, src_data_rank=None)
    return torch.empty_like(model, dtype=value.dtype).copy_(value)


def clip_grad_norm(parameters: Iterable[nn.Parameter], limit: float | None) -> Tensor:
    """Return the norm of the whole gradient, also of sharded parameters, and clip it to `limit`; without one, gradients
    are not written."""
    trained = [p for p in parameters if p.grad is not None]
    sharded = [p for p in trained if isinstance(p, DTensor)]
    groups = (sharded, [p for p in trained if not isinstance(p, DTensor)])
    norms = [_norm([p.grad for p in group if p.grad is not None]) for group in groups if group]
    norm = norms[0] if len(norms) == 1 else nn.utils.get_total_norm(norms)
    for group in groups:
        if group and limit is not None:
            nn.utils.clip_grads_with_norm_(group, limit, norm)
    return norm


def _norm(gradients: list[Tensor]) -> Tensor:
    norm = nn.utils.get_total_norm(gradients)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
