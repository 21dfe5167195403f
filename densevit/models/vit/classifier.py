"""Vision Transformer for image classification. b images, n tokens, d channels, k classes; timm's names."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.vit.attention import EPS
from densevit.models.vit.init_weights import Init
from densevit.models.vit.mlp import ACTIVATIONS
from densevit.models.vit.pooling import AttentionPool, AveragePool, Pool, TokenPool
from densevit.models.vit.pos_embed import Positions
from densevit.models.vit.vision_transformer import VisionTransformer


class ViTClassifier(VisionTransformer):
    """Vision Transformer, pooling and a linear classifier.

    CLIP's image tower, too: `norm_pre`, pool 'token', and its projection as a head without bias.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        heads: int,
        patch_size: int,
        *,
        num_classes: int = 1000,
        pool: Pool = "token",
        fc_norm: bool | None = None,
        head_drop: float = 0.0,
        head_bias: bool = True,
        positions: Positions = "learned",
        init: Init = "",
        fix_init: bool = False,
        **vit: Any,
    ) -> None:
        """Raises ConfigError: pooling of a class token that the model does not have.

        Args:
            num_classes: 0 for the pooled vector itself.
            pool: the class token, the mean of the patches, or attention pooling.
            fc_norm: final LayerNorm after the pooling and not before it; by default for 'avg'.
            vit: more for `VisionTransformer`.
        """
        after = pool == "avg" if fc_norm is None else fc_norm
        super().__init__(dim, depth, heads, patch_size, final_norm=not after, init="skip", **vit)
        eps = vit.get("eps", EPS)
        self.num_classes = num_classes
        # timm's name, though token and average pooling have no weights.
        self.attn_pool = self.pooling(pool, heads, vit.get("mlp_ratio", 4.0), self.mlp, eps)
        self.fc_norm = nn.LayerNorm(dim, eps=eps) if after else nn.Identity()
        self.head_drop = nn.Dropout(head_drop)
        self.head = nn.Linear(dim, num_classes, bias=head_bias) if num_classes else nn.Identity()
        self.initialise(init, positions, fix_init=fix_init)

    def pooling(
        self, pool: Pool, heads: int = 1, mlp_ratio: float = 4.0, mlp: str = "gelu", eps: float = EPS
    ) -> nn.Module:
        if pool == "token" and not self.has_class_token:
            raise ConfigError("pool 'token' needs a class token; use 'avg' or 'map', or class_token=True.")
        if pool == "map":
            activation = mlp if mlp in ACTIVATIONS else "gelu"
            return AttentionPool(
                self.dim, heads, self.prefix_tokens, mlp_ratio=mlp_ratio, activation=activation, eps=eps
            )
        return TokenPool() if pool == "token" else AveragePool(self.prefix_tokens)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        return self.forward_head(self.forward_features(image))

    def forward_features(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        """All tokens, after the final LayerNorm if that comes before the pooling."""
        return super().forward(image)

    def pool(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        return self.attn_pool(tokens)

    def forward_head(self, tokens: Float[Tensor, "b n d"], pre_logits: bool = False) -> Float[Tensor, "b k"]:
        """Logits of the classes; with `pre_logits` the input of the classifier."""
        x = self.head_drop(self.fc_norm(self.pool(tokens)))
        return x if pre_logits else self.head(x)

    def reset_classifier(self, num_classes: int, pool: Pool | None = None) -> None:
        """A new classifier for other classes, and another pooling without weights if given. Raises ConfigError:
        attention pooling or a class token, without which the model was built."""
        device, dtype = self.pos_embed.device, self.pos_embed.dtype
        if pool == "map" and not isinstance(self.attn_pool, AttentionPool):
            raise ConfigError("reset_classifier: attention pooling has weights; build the model with pool='map'.")
        if pool in ("token", "avg"):
            self.attn_pool = self.pooling(pool)
        self.num_classes = num_classes
        self.head = nn.Linear(self.dim, num_classes, device=device, dtype=dtype) if num_classes else nn.Identity()
        self.head.train(self.training)

    def drop_head(self) -> None:
        """Removes the classifier; the model then gives the pooled vector."""
        self.fc_norm = nn.Identity()
        self.reset_classifier(0, "token" if self.has_class_token else "avg")
