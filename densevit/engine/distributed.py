"""Training on several processes: whole models with averaged gradients (DDP), or fully sharded ones (FSDP2), of which
each process holds a shard of every tensor."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from densevit.config.schema import TrainConfig
from densevit.errors import ConfigError
from densevit.utils.device import DTYPES, Precision
from densevit.utils.process_group import ProcessGroup
from densevit.weights.tensor_files import is_sharded

M = TypeVar("M", bound=nn.Module)


def check_processes(world: ProcessGroup, run: TrainConfig, precision: Precision) -> None:
    """Raise ConfigError: these processes cannot train the run together."""
    if run.parallel == "fsdp" and precision == "fp16":
        raise ConfigError(
            "parallel: fsdp cannot be combined with precision fp16, whose loss scale would differ; take bf16."
        )
    if run.cuda_graphs and world.device.type != "cuda":
        raise ConfigError(
            f"compile: {run.compile} records CUDA graphs, and the device is {world.device.type}; take compile: true."
        )
    if run.batch_size % (world.size * run.grad_accum_steps):
        raise ConfigError(
            f"batch_size: {run.batch_size} images cannot be divided evenly over {world.size} processes x "
            f"{run.grad_accum_steps} micro-batches."
        )


def parallelize(model: nn.Module, world: ProcessGroup, run: TrainConfig, precision: Precision) -> nn.Module:
    """Wrap the model so that gradients are averaged over all processes; under `fsdp` its weights are sharded."""
    if world.size == 1:
        return model
    cuda = world.device.type == "cuda"
    if cuda:
        # BatchNorm over the images of all processes, as mmseg and DINOv2's probes have it; torch has none for CPUs.
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    if run.parallel == "fsdp":
        # On a CPU, autocast leaves LayerNorm alone, which takes no numbers and weights of two types.
        gathered = DTYPES[precision] if cuda else None
        return shard(model, init_device_mesh(world.device.type, (world.size,)), gathered)
    all_used = getattr(model, "uses_all_parameters", True)
    return DistributedDataParallel(
        model,
        device_ids=[world.device.index] if cuda else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=not all_used,
        # All parameters take part in each step; a step of several backward passes is no fixed graph to torch.
        static_graph=all_used and run.grad_accum_steps == 1 and not run.compile,
    )


@contextmanager
def no_sync(model: nn.Module) -> Iterator[None]:
    """Let the backward pass inside accumulate gradients without averaging them over the processes, as torch's
    no_sync."""
    from torch.distributed.fsdp import FSDPModule

    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(False)
    try:
        with model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext():
            yield
    finally:
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(True)


def shard(model: M, mesh: DeviceMesh, gathered: torch.dtype | None = None) -> M:
    """Shard each transformer block by itself, and the rest together; gradients are averaged over the mesh,
    in fp32. `gathered`: the blocks' weights are gathered as this, at half of the traffic in bf16. Autocast alone would
    make copies of them that the backward pass keeps: the whole model, on every process. The rest is gathered in fp32,
    so that the tokens between blocks are fp32 as without FSDP."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

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
    return tensor.to_local() if is_sharded(tensor) else tensor


def full_state_dict(tree: Any, *, keep: bool) -> Any:
    """Return the same tree with every sharded tensor whole and on the CPU; all processes must call it together. `keep`:
    whether this process keeps them; others get None in their place, which saves memory."""
    if is_sharded(tree):
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
    if not isinstance(value, Tensor) or is_sharded(value) or value.shape != model.shape:
        return value
    if is_sharded(model):
        from torch.distributed.tensor import distribute_tensor

        # Contiguous, as the parameter is: fused optimisers read both in the order of memory.
        value = value.to(model.device, model.dtype).contiguous()
        return distribute_tensor(value, model.device_mesh, model.placements, src_data_rank=None)
    return torch.empty_like(model, dtype=value.dtype).copy_(value)


def clip_grad_norm(parameters: Iterable[nn.Parameter], limit: float | None) -> Tensor:
    """Return the norm of the whole gradient, also of sharded parameters, and clip it to `limit`; without one, gradients
    are not written."""
    trained = [p for p in parameters if p.grad is not None]
    sharded = [p for p in trained if is_sharded(p)]
    groups = (sharded, [p for p in trained if not is_sharded(p)])
    norms = [_norm([p.grad for p in group if p.grad is not None]) for group in groups if group]
    norm = norms[0] if len(norms) == 1 else nn.utils.get_total_norm(norms)
    for group in groups:
        if group and limit is not None:
            nn.utils.clip_grads_with_norm_(group, limit, norm)
    return norm


def _norm(gradients: list[Tensor]) -> Tensor:
    norm = nn.utils.get_total_norm(gradients)
    return norm.full_tensor() if is_sharded(norm) else norm
