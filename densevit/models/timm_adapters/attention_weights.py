"""The softmax weights inside timm's Vision Transformers, layer by layer. b images, n tokens (prefix in front)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError

Watcher = Callable[[Float[Tensor, "b heads n n"]], object]


def watch(vit: nn.Module, image: Float[Tensor, "b c h w"], see: Watcher) -> None:
    """Runs `vit` once and shows each layer's weights to `see`, from the first on; none are kept.

    Serves every class of timm whose attention drops out its weights in `attn_drop` and can do without the fused
    kernel: VisionTransformer (AugReg, DeiT, DINOv2, CLIP, SigLIP, MAE), Eva (EVA, EVA-02, DINOv3) and Beit.

    Raises:
        ConfigError: attention of another build.
    """
    blocks: Any = vit.blocks
    with ExitStack() as stack, torch.inference_mode():
        for block in blocks:
            stack.enter_context(explicit(block.attn))
            stack.enter_context(tapped(block.attn.attn_drop, see))
        vit.forward_features(image)  # type: ignore[operator]


@contextmanager
def explicit(attention: Any) -> Iterator[None]:
    """Without the fused kernel, which never writes the weights down."""
    if not hasattr(attention, "fused_attn") or not hasattr(attention, "attn_drop"):
        raise ConfigError(f"the attention of this encoder, a {type(attention).__name__}, does not show its weights.")
    fused = attention.fused_attn
    attention.fused_attn = False
    try:
        yield
    finally:
        attention.fused_attn = fused


@contextmanager
def tapped(dropout: nn.Module, see: Watcher) -> Iterator[None]:
    """The weights pass through this dropout, which in evaluation leaves them as they are."""
    handle = dropout.register_forward_pre_hook(lambda _, given: (see(given[0]), None)[1])
    try:
        yield
    finally:
        handle.remove()
