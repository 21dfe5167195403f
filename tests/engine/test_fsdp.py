"""FSDP on a process group that communicates with nobody: this process is the first of eight."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from densevit.config.schema import Optim
from densevit.engine import distributed
from densevit.engine.optim import build_optimizer, step_unless
from densevit.models.decoders.base import DECODERS
from densevit.models.dense import DenseModel
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.heads.base import HEADS
from densevit.utils.device import autocast

CPU = torch.device("cpu")


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield init_device_mesh("cpu", (8,))
    dist.destroy_process_group()


@pytest.fixture
def layer_norm_in_fp32() -> Iterator[None]:
    """LayerNorm under autocast as on a GPU, where its numbers and weights become fp32."""
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")

    def kernel(x: Tensor, shape: list[int], weight: Tensor, bias: Tensor, eps: float, cudnn: bool = True) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            return torch.layer_norm(x.float(), shape, weight.float(), bias.float(), eps)

    library.impl("layer_norm", kernel)
    yield
    library._destroy()


def small_model(**decoder: Any) -> DenseModel:
    torch.manual_seed(0)
    encoder = ViTEncoder(dim=128, depth=6, heads=2, patch_size=16, image_size=32, layer_scale=1e-5)
    options = decoder or {"type": "conv_transpose", "stride": 8, "min_channels": 8}
    head = HEADS.check({"type": "metric", "hidden": 8}, "head")
    built = DECODERS.check(options, "decoder").build(encoder.features, encoder.prefix_tokens)
    return DenseModel(encoder, built, {"depth": head.build(built.output.channels)})


def bytes_kept(model: nn.Module, image: Tensor) -> int:
    """What autograd keeps for the backward pass, without the parameters themselves."""
    found: dict[int, torch.UntypedStorage] = {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters() if not isinstance(p, dist.tensor.DTensor)}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), autocast("bf16", CPU):
        model(image)
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.usefixtures("layer_norm_in_fp32")
def test_no_process_keeps_the_weights_of_the_blocks_for_the_backward_pass(mesh: DeviceMesh) -> None:
    model = distributed.shard(small_model(), mesh, torch.bfloat16)
    blocks = sum(p.numel() for p in model.encoder.vit.blocks.parameters())
    # 2 x 2 patches leave little behind but weights, if those are kept: 2 bytes each.
    assert bytes_kept(model, torch.rand(1, 3, 32, 32)) < blocks


@pytest.mark.usefixtures("layer_norm_in_fp32")
def test_blocks_are_gathered_in_bf16_and_tokens_between_them_are_fp32(mesh: DeviceMesh) -> None:
    model, seen = distributed.shard(small_model(), mesh, torch.bfloat16), []
    for block in model.encoder.vit.blocks:
        block.register_forward_pre_hook(lambda module, args: seen.append((module.attn.qkv.weight.dtype, args[0].dtype)))
    with autocast("bf16", CPU):
        model(torch.rand(1, 3, 32, 32))
    assert seen == [(torch.bfloat16, torch.float32)] * 6
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_sharded_step_is_not_taken_where_the_flag_on_the_device_says_so(mesh: DeviceMesh, kind: str) -> None:
    model = distributed.shard(small_model(), mesh)
    optimizer = build_optimizer([{"params": list(model.parameters()), "scale": 1.0}], Optim(type=kind, lr=0.1))
    for failed, changed in ((1.0, False), (0.0, True)):
        model(torch.rand(1, 3, 32, 32))["depth"].mean().backward()
        before = [distributed.local(p.detach()).clone() for p in model.parameters()]
        step_unless(optimizer, torch.tensor(failed))
        now = [distributed.local(p.detach()) for p in model.parameters()]
        assert any(not torch.equal(*pair) for pair in zip(before, now, strict=True)) == changed
        if failed:
            optimizer.state.clear()


@pytest.mark.parametrize("limit", [None, 0.5])
def test_without_a_limit_the_norm_is_returned_and_no_gradient_is_written(limit: float | None) -> None:
    parameters = [nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    parameters[0].grad, parameters[1].grad = torch.full((8,), 3.0), torch.tensor([4.0])
    gradients = [p.grad for p in parameters if p.grad is not None]
    versions = [gradient._version for gradient in gradients]
    norm = distributed.clip_grad_norm(parameters, limit)
    assert norm.item() == pytest.approx(88**0.5)  # sqrt(8 * 9 + 16)
    assert [g._version != v for g, v in zip(gradients, versions, strict=True)] == [limit is not None] * 2
    assert gradients[1].item() == pytest.approx(4 * (1 if limit is None else limit / 88**0.5), rel=1e-5)
    assert distributed.clip_grad_norm(parameters[2:], limit).item() == 0
