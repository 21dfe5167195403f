"""Masked autoencoding (He et al. 2022). b images, h x w pixels, n patches, d channels."""

from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor, nn

from densevit.engine.objective import OBJECTIVES
from densevit.errors import ConfigError
from densevit.losses.pretraining import masked_patch_mse, normalise_patches, patchify
from densevit.models.encoders.base import Encoder, TokenEncoder
from densevit.models.vit.block import EPS, Block
from densevit.models.vit.embeddings import sincos_pos_embed
from densevit.objectives.pretraining.base import PretrainingMethod
from densevit.ops.resize import pad_to_multiple

Positive = Annotated[int, Field(gt=0, le=65536)]


@OBJECTIVES.register("mae")
class MaskedAutoencoder(PretrainingMethod):
    """The encoder sees a few patches of an image, and a small decoder reconstructs the pixels of the others.

    For our ViT and timm's ViTs (also with rotary positions, as DINOv3); not for BEiT and Swin, whose blocks need all
    patches. Masked patches cost the encoder nothing, but for a convolutional stem, which sees them blank.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        mask_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.75,
        dim: Positive = 192,
        depth: Positive = 4,
        heads: Positive = 3,
        norm_pixels: bool = True,
    ) -> None:
        """Raise ConfigError if an encoder that cannot leave out patches.

        Args:
            mask_ratio: share of the patches that the encoder does not see.
            dim, depth, heads: channels, blocks and heads of the decoder; MAE has 512, 8 and 16 for ViT-B and larger.
            norm_pixels: reconstruct patches with mean 0 and variance 1; then 1 is the loss of a constant prediction.
        """
        super().__init__()
        if not isinstance(encoder, TokenEncoder):
            raise ConfigError("objective: mae needs a ViT, whose blocks can leave out patches; take dino for others.")
        if dim % heads or dim % 4:
            raise ConfigError(f"objective.dim: a multiple of 4 and of {heads} heads, got {dim}.")
        encoder.check_visible_tokens()
        self.mask_ratio, self.norm_pixels = mask_ratio, norm_pixels
        self.patch, self.prefix_tokens = encoder.patch_size, encoder.prefix_tokens
        self.embed = nn.Linear(encoder.features[-1].channels, dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.predict = nn.Linear(dim, 3 * self.patch**2)
        nn.init.normal_(self.mask_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, encoder: Encoder, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        assert isinstance(encoder, TokenEncoder)
        x, _ = pad_to_multiple((image - encoder.mean) / encoder.std, self.patch)
        grid = (x.shape[-2] // self.patch, x.shape[-1] // self.patch)
        visible, mask = random_mask(len(x), grid[0] * grid[1], self.mask_ratio, x.device)
        seen = blank_patches(x, mask.reshape(-1, *grid), self.patch)
        prediction = self.decode(encoder.visible_tokens(seen, visible), visible, grid)
        target = patchify(x, self.patch)
        target = normalise_patches(target) if self.norm_pixels else target
        return {"mae": masked_patch_mse(prediction, target, mask)}

    def decode(
        self, tokens: Float[Tensor, "b visible d"], visible: Int64[Tensor, "b v"], grid: tuple[int, int]
    ) -> Float[Tensor, "b n c"]:
        """Return the pixels of every patch from the tokens of the visible ones, which follow the prefix."""
        x = self.embed(tokens)
        prefix, seen = x[:, : self.prefix_tokens], x[:, self.prefix_tokens :]
        b, _, dim = seen.shape
        patches = self.mask_token.to(seen.dtype).expand(b, grid[0] * grid[1], -1)
        patches = patches.scatter(1, visible[..., None].expand(-1, -1, dim), seen)
        patches = patches + sincos_pos_embed(dim, grid).to(patches)
        x = torch.cat([prefix, patches], dim=1)
        for layer in self.layers:
            x = layer(x)
        pixels: Tensor = self.predict(self.norm(x[:, self.prefix_tokens :]))
        return pixels


def blank_patches(
    image: Float[Tensor, "b 3 h w"], mask: Bool[Tensor, "b gh gw"], patch: int
) -> Float[Tensor, "b 3 h w"]:
    """Return 0 in masked patches, so that the convolutions of a stem, which reach beyond a patch, do not see them
    either."""
    b, colours, h, w = image.shape
    cells = image.reshape(b, colours, h // patch, patch, w // patch, patch)
    return cells.masked_fill(mask[:, None, :, None, :, None], 0).reshape(image.shape)


def random_mask(b: int, n: int, ratio: float, device: torch.device) -> tuple[Int64[Tensor, "b v"], Bool[Tensor, "b n"]]:
    """Return the patches that each image keeps, and which are masked; one at least is masked."""
    count = min(n - 1, max(1, round(n * (1 - ratio))))
    visible = torch.rand(b, n, device=device).argsort(dim=1)[:, :count]
    mask = torch.ones(b, n, dtype=torch.bool, device=device).scatter_(1, visible, False)
    return visible, mask
