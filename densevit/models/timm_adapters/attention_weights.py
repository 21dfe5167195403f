"""Softmax weights of attention, in timm's Vision Transformers and rolled out. b images, n tokens (prefix first)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError

Visitor = Callable[[Float[Tensor, "b heads n n"]], object]


def visit_attention_weights(vit: nn.Module, image: Float[Tensor, "b c h w"], visit: Visitor) -> None:
    """Runs `vit` once and calls `visit` with each layer's weights, from the first on.

    For every class of timm whose attention applies `attn_drop` to its weights and has a switch for the fused kernel:
    VisionTransformer (AugReg, DeiT, DINOv2, CLIP, SigLIP, MAE), Eva (EVA, EVA-02, DINOv3) and Beit. Raises ConfigError:
    another kind of attention.
    """
    blocks: Any = vit.blocks
    with ExitStack() as stack, torch.inference_mode():
        for block in blocks:
            stack.enter_context(without_fused_attention(block.attn))
            stack.enter_context(dropout_hook(block.attn.attn_drop, visit))
        vit.forward_features(image)  # type: ignore[operator]


@contextmanager
def without_fused_attention(attention: Any) -> Iterator[None]:
    """Switches off the fused kernel, which does not compute the weights explicitly."""
    if not hasattr(attention, "fused_attn") or not hasattr(attention, "attn_drop"):
        raise ConfigError(f"the attention of this encoder, a {type(attention).__name__}, does not show its weights.")
    fused = attention.fused_attn
    attention.fused_attn = False
    try:
        yield
    finally:
        attention.fused_attn = fused


@contextmanager
def dropout_hook(dropout: nn.Module, visit: Visitor) -> Iterator[None]:
    """Hooks the dropout of the weights, which is the identity in evaluation."""
    handle = dropout.register_forward_pre_hook(lambda _, args: (visit(args[0]), None)[1])
    try:
        yield
    finally:
        handle.remove()


def rollout(weights: Iterable[Float[Tensor, "b heads n n"]]) -> Float[Tensor, "b n n"]:
    """Attention rollout (Abnar & Zuidema 2020): the product of (A + I) / 2 over the layers, of which A is the mean of
    the heads; rows sum to one. `weights`: of all layers, from the first on; taken one at a time."""
    flow: Tensor | None = None
    for layer in weights:
        mixed = layer.mean(dim=1)
        mixed = (mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)) / 2
        flow = mixed if flow is None else mixed @ flow
    assert flow is not None
    return flow
