"""Any timm Vision Transformer with plain tokens as an encoder.

DINOv2, DINOv3, AugReg, DeiT, CLIP, SigLIP, MAE, BEiT, EVA, ... timm takes a second to import, so it is imported
when one is built.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from densevit.models.encoders.base import ENCODERS
from densevit.models.encoders.vit_base import OutIndices, TokenEncoder
from densevit.models.timm_adapters.pretrained import demand_one_source
from densevit.models.vit.vision_transformer import BlockOutput
from densevit.structures import Step

Positive = Annotated[int, Field(gt=0)]


@ENCODERS.register("timm")
class TimmEncoder(TokenEncoder):
    """A timm ViT by name, at any image size; normalisation comes from its own card."""

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
    ) -> None:
        """
        Args:
            name: as in `timm.list_models()`, with or without the tag of its weights.
            pretrained: published weights, from a local cache or the network.
            weights: a local file instead; whoever builds the encoder reads it and calls `load_weights`.
            out_indices: blocks to hand on, 0-based, or how many of the last; four at even distances unless given.
            norm: taps pass the final LayerNorm, as in Depth Anything and DINOv3; false as in DPT and DINOv2's
                depth heads. True by default: it evens out the few huge channels of DINOv2's last blocks.
                Models that end without one (averaging BEiT and EVA) give their tokens as they are.
            drop_path: rate of skipped branches at the last block; it grows linearly from 0 at the first.
            image_size: side, or (h, w), whose grid holds the position embeddings; any size can be fed.
            arguments: more for `timm.create_model`.

        Raises:
            ConfigError: no such model, one without plain tokens, or arguments it does not take.
            CheckpointError: pretrained weights that are neither in a cache nor within reach.
        """
        super().__init__()
        demand_one_source(pretrained, weights)
        from densevit.models.timm_adapters import factory
        from densevit.models.timm_adapters import vit as timm_vit

        vit = timm_vit.create(name, pretrained, factory.options(arguments or {}, drop_path, image_size))
        self.weights = weights
        self.family = timm_vit.family(vit)
        self.family.prepare(vit)
        self.set_normalisation(vit.pretrained_cfg["mean"], vit.pretrained_cfg["std"])
        self.adopt(
            vit,
            dim=vit.embed_dim,
            patch_size=timm_vit.patch_side(vit, name),
            prefix_tokens=vit.num_prefix_tokens,
            out_indices=out_indices,
            norm=norm,
        )

    def tap(self, image: Float[Tensor, "b 3 h w"], blocks: Sequence[int], norm: bool) -> Sequence[BlockOutput]:
        return self.family.run(self.vit, image, blocks, norm)

    def steps(self, first: int, grid: tuple[int, int]) -> tuple[Step, ...]:
        return self.family.steps(self.vit, first, grid)

    def convert(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Brings original layouts (DINOv2, DINOv3, CLIP, MAE, ...) to timm's names and our grid, as timm does."""
        return self.family.convert(self.vit, state)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.vit.set_grad_checkpointing(enable)
