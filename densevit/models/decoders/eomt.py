"""An encoder-only mask transformer (EoMT, Kerssies et al. 2025): queries join the last blocks of the encoder itself.

b images, n tokens, d channels, q queries, k classes (kinds: with `nothing` as the last), mh x mw cells of the masks.
Parameters and numbers are those of github.com/tue-mps/eomt.
"""

import math
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS, Decoder, DecoderOutput
from densevit.models.layers.class_names import Classes, class_names
from densevit.models.layers.conv_head import upsample
from densevit.models.layers.norms import LayerNorm2d
from densevit.models.vit.intermediate_layers import as_map
from densevit.structures import EncoderOutput, FeatureSpec, RemainingBlocks

Positive = Annotated[int, Field(gt=0)]
LEAST = 1e-8  # of a score before its logarithm


Share = Annotated[float, Field(ge=0, le=1)]


Span = tuple[Share, Share]


POWER = 0.9


def one_after_another(blocks: int) -> tuple[Span, ...]:
    """A time without change at the start and at the end, and in between each block after its predecessor.

    For four blocks 1/6 to 2/6, ..., 4/6 to 5/6 of the run: EoMT's steps on ADE20K and Cityscapes, rounded.
    """
    parts = blocks + 2
    return tuple(((i + 1) / parts, (i + 2) / parts) for i in range(blocks))


class Annealing(nn.Module):
    """The share of queries that are masked, block by block: 1 before a block's span, 0 behind it.

    Attributes:
        progress: share of the run that is done, as `on_train_step` was told. It is a tensor, lest compiled models take
            every step for a new program.
    """

    progress: Tensor
    spans: Tensor

    def __init__(self, blocks: int, spans: tuple[Span, ...] | None = None) -> None:
        """
        Raises:
            ConfigError: more or fewer spans than blocks, or one that ends before it begins.
        """
        super().__init__()
        spans = one_after_another(blocks) if spans is None else spans
        if len(spans) != blocks:
            raise ConfigError(f"decoder.anneal: {len(spans)} spans for {blocks} blocks.")
        if any(begin > end for begin, end in spans):
            raise ConfigError(f"decoder.anneal: a span ends before it begins, in {[list(span) for span in spans]}.")
        self.register_buffer("spans", torch.tensor(spans), persistent=False)
        self.register_buffer("progress", torch.zeros(()), persistent=False)

    def on_train_step(self, progress: float) -> None:
        """Called before each step with the share of the training run that is done."""
        self.progress.fill_(progress)

    def share(self, block: int) -> Float[Tensor, ""]:
        begin, end = self.spans[block]
        done = ((self.progress - begin) / (end - begin).clamp_min(1e-9)).clamp(0, 1)
        return (1 - done) ** POWER


class Answers(NamedTuple):
    """What the queries say: each has one mask and one class, the last of which means `nothing`."""

    masks: Float[Tensor, "b q mh mw"]  # logits
    classes: Float[Tensor, "b q kinds"]  # logits


@DECODERS.register("eomt")
class EoMT(Decoder):
    """Semantic segmentation by queries, each of which proposes a mask and a class; taught by the loss `set_criterion`.

    In training every joined block is preceded by a prediction of its own. Each is supervised (extras `masks` and
    `classes`), and in the block a query sees only the patches inside its mask: at first always, then ever less often
    (`Annealing`), so that evaluation, which predicts once and masks nothing, is plain attention.

    The map is the logarithm of each class's score, sum over the queries of p(class) p(mask): `softmax` makes shares of
    the scores, and the best class is the published one.
    """

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        classes: Classes = None,
        queries: Positive = 100,
        blocks: Positive = 4,
        masked: bool = True,
        anneal: Annotated[tuple[Span, ...], Field(min_length=1)] | None = None,
    ) -> None:
        """
        Args:
            classes: their names in the order of their ids, or how many there are; None takes those of the data.
            blocks: of the encoder, which the queries join.
            masked: attention in training is masked, and every block supervised; otherwise only the answer is.
            anneal: for each block, from which to which share of the run its masks fade away, as [[0.2, 0.4], ...];
                one after another, as published, unless given.

        Raises:
            ConfigError: more or fewer spans than blocks.
        """
        super().__init__()
        dim, stride = features[-1].channels, features[-1].stride
        doublings = max(1, int(math.log2(stride)) - 2)  # to a quarter of the image, from patches of 16
        self.joins, self.masked = blocks, masked
        self.annealing = Annealing(blocks, anneal)
        self.q = nn.Embedding(queries, dim)
        self.class_head = nn.Linear(dim, len(class_names(classes)) + 1)
        self.mask_head = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim)
        )
        self.upscale = nn.Sequential(*(Upscale(dim) for _ in range(doublings)))
        self.output = FeatureSpec(len(class_names(classes)), max(1, round(stride / 2**doublings)))

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b k h w"] | DecoderOutput:
        assert features.rest is not None, "the model asks the encoder to leave its last blocks"
        answers = list(self.answers(features.rest))
        if not self.training:
            return scores(answers[-1], features.image_size)
        extras = {
            "masks": torch.stack([answer.masks for answer in answers], 1),
            "classes": torch.stack([answer.classes for answer in answers], 1),
            "covers": torch.tensor(features.image_size, dtype=torch.float32),  # pixels (h, w)
        }
        return DecoderOutput(scores(answers[-1], None), extras)

    def answers(self, rest: RemainingBlocks) -> Iterator[Answers]:
        """Those behind the last block; in training, where attention is masked, those before each block come first."""
        x, guests = rest.tokens, self.q.num_embeddings
        alone = len(rest.steps) - self.joins  # another decoder may join earlier
        for step in rest.steps[:alone]:
            x = step(x, None, 0)
        queries = self.q.weight.expand(x.shape[0], -1, -1)
        x = torch.cat([x[:, : rest.prefix_tokens], queries, x[:, rest.prefix_tokens :]], 1)
        for index, step in enumerate(rest.steps[alone:]):
            mask = None
            if self.training and self.masked:
                answer = self.answer(x, rest)
                mask = self.see(answer.masks, self.annealing.share(index), rest)
                yield answer
            x = step(x, mask, guests)
        yield self.answer(x, rest)

    def answer(self, x: Float[Tensor, "b n d"], rest: RemainingBlocks) -> Answers:
        x, first = rest.norm(x), rest.prefix_tokens
        queries, patches = x[:, first : first + self.q.num_embeddings], x[:, first + self.q.num_embeddings :]
        cells = self.upscale(as_map(patches, rest.grid))
        return Answers(torch.einsum("bqd,bdhw->bqhw", self.mask_head(queries), cells), self.class_head(queries))

    def see(
        self, masks: Float[Tensor, "b q mh mw"], share: Float[Tensor, ""], rest: RemainingBlocks
    ) -> Bool[Tensor, "b 1 n n"]:
        """Who may ask whom: a query only the patches in its mask, but for queries that see all; everyone else all."""
        inside = (upsample(masks.detach(), rest.grid) > 0).flatten(2)
        sees_all = torch.rand(inside.shape[:2], device=inside.device) >= share
        inside = inside | sees_all[..., None]
        before, cells = rest.prefix_tokens, inside.shape[2]
        queries = F.pad(inside, (before + inside.shape[1], 0), value=True)
        return F.pad(queries, (0, 0, before, cells), value=True)[:, None]


def scores(answers: Answers, size: tuple[int, int] | None) -> Float[Tensor, "b k h w"]:
    """The logarithm of sum over queries of p(class) p(mask), in full precision.

    Args:
        size: the masks are brought to it before the sigmoid, as published; None leaves them small, for training, where
            nobody asks.
    """
    with torch.autocast(answers.masks.device.type, enabled=False):
        masks = answers.masks.float() if size is None else upsample(answers.masks.float(), size)
        shares = answers.classes.float().softmax(-1)[..., :-1]
        return torch.einsum("bqk,bqhw->bkhw", shares, masks.sigmoid()).clamp_min(LEAST).log()


class Upscale(nn.Module):
    """Doubles a map: each cell paints four, which then look at their neighbours."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.ConvTranspose2d(dim, dim, 2, stride=2)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False)
        self.norm = LayerNorm2d(dim)

    def forward(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d h*2 w*2"]:
        return self.norm(self.conv2(F.gelu(self.conv1(x))))
