"""The head of image classification: one row of logits for the whole image."""

from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.model_card import HeadSpec
from densevit.models.heads.base import HEADS, Head
from densevit.models.layers.class_names import Names


@HEADS.register("classifier")
class Classifier(Head):
    """Mean over the map, dropout and a linear layer; for the decoder `pool`."""

    def __init__(
        self,
        channels: int,
        *,
        classes: Annotated[int, Field(ge=2)] | Names,
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    ) -> None:
        """
        Args:
            classes: names in the order of their ids, or their number.
            dropout: rate in training.
        """
        super().__init__()
        names = tuple(map(str, range(classes))) if isinstance(classes, int) else classes
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(channels, len(names))
        nn.init.trunc_normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)
        self.output = HeadSpec(kind="class", unit="", classes=names)

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b k 1 1"]:
        return self.linear(self.dropout(x.mean((2, 3)))).float()[:, :, None, None]
