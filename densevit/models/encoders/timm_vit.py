"""Any timm Vision Transformer with plain tokens as an encoder.

DINOv2, DINOv3, AugReg, DeiT, CLIP, SigLIP, MAE, BEiT, EVA, ... timm takes a second to import, so it is imported
when an encoder is built.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.encoders.base import ENCODERS, OutIndices, TokenEncoder, check_one_weight_source
from densevit.models.lora import Lora
from densevit.models.vit.vision_transformer import BlockOutput
from densevit.structures import BlockFunction

Positive = Annotated[int, Field(gt=0)]


@ENCODERS.register("timm")
class TimmEncoder(TokenEncoder):
    """A timm ViT by name, at any image size, with the normalisation of its `pretrained_cfg`."""

    def __init__(
        self,
        *,
        name: str,
        pretrained: bool = False,
        weights: Path | None = None,
        out_indices: OutIndices = None,
        norm: bool = True,
        drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        image_size: Positive | tuple[Positive, Positive] | None = None,
        arguments: dict[str, bool | int | float | str] | None = None,
        lora: Lora | None = None,
    ) -> None:
        """Raise ConfigError: no such model, one without plain tokens, or arguments it does not take. Raises
        CheckpointError: pretrained weights that are neither in a cache nor within reach.

        Args:
            name: name as in `timm.list_models()`, with or without the tag of its weights.
            pretrained: published weights, from a local cache or the network.
            weights: a local file instead, loaded when the model is built.
            out_indices: blocks to return, 0-based, or how many of the last; four evenly spaced by default.
            norm: apply the final LayerNorm to the feature maps, as in Depth Anything and DINOv3; false as in DPT and
                DINOv2's depth heads. It reduces the few very large channels of DINOv2's last blocks.
                No effect on models without a final norm (average-pooled BEiT and EVA).
            drop_path: stochastic depth rate of the last block; linear from 0 at the first.
            image_size: side, or (h, w), of the grid of the position embeddings; the encoder takes any size.
            arguments: more for `timm.create_model`.
            lora: low-rank updates of attention and MLP, trained in place of the weights (models/lora.py).
        """
        super().__init__()
        check_one_weight_source(pretrained, weights)
        from densevit.models.timm_adapters import factory
        from densevit.models.timm_adapters import vit as timm_vit

        vit = timm_vit.create(name, pretrained, factory.create_model_kwargs(arguments, drop_path, image_size))
        self.weights, self.lora = weights, lora
        self.licence = factory.licence_of(name, pretrained, weights)
        self.adapter = timm_vit.adapter_for(vit)
        self.set_normalisation(vit.pretrained_cfg["mean"], vit.pretrained_cfg["std"])
        self.wrap_backbone(
            vit,
            dim=vit.embed_dim,
            patch_size=timm_vit.square_patch_size(vit, name),
            prefix_tokens=vit.num_prefix_tokens,
            out_indices=out_indices,
            norm=norm,
        )

    def block_outputs(
        self, image: Float[Tensor, "b 3 h w"], blocks: Sequence[int], norm: bool
    ) -> Sequence[BlockOutput]:
        return self.adapter.forward_blocks(self.vit, image, blocks, norm)

    def visible_tokens(
        self, image: Float[Tensor, "b 3 h w"], kept: Int64[Tensor, "b kept"]
    ) -> Float[Tensor, "b visible d"]:
        return self.adapter.visible_tokens(self.vit, image, kept)

    def check_visible_tokens(self) -> None:
        from densevit.models.timm_adapters.vit import BEIT_ADAPTER

        if self.adapter is BEIT_ADAPTER:
            raise ConfigError("objective: BEiT's blocks need all patches of an image; take dino, or another ViT.")

    def remaining_blocks(self, first: int, grid: tuple[int, int]) -> tuple[BlockFunction, ...]:
        return self.adapter.block_functions(self.vit, first, grid)

    def convert(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert original layouts (DINOv2, CLIP, ...) to timm's names and our grid, by its `checkpoint_filter_fn`."""
        return self.adapter.convert(self.vit, state)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.vit.set_grad_checkpointing(enable)
