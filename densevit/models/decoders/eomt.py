"""The Encoder-only Mask Transformer (EoMT, Kerssies et al. 2025): queries in the last blocks of the encoder.

b images, n tokens, d channels, q queries (t of them kept), k classes (kinds: with `no object` as the last), mh x mw
cells of the masks.
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
from densevit.models.layers import Classes, LayerNorm2d, class_names, upsample
from densevit.models.vit.vision_transformer import as_map
from densevit.structures import EncoderOutput, FeatureSpec, RemainingBlocks

Positive = Annotated[int, Field(gt=0)]
MIN_SCORE = 1e-8  # before the logarithm
ANNEALING_POWER = 0.9

Fraction = Annotated[float, Field(ge=0, le=1)]
Span = tuple[Fraction, Fraction]


def default_spans(blocks: int) -> tuple[Span, ...]:
    """Return one span after the other, with one part of the run before the first and after the last.

    For four blocks 1/6 to 2/6, ..., 4/6 to 5/6 of the run: EoMT's steps on ADE20K and Cityscapes, rounded.
    """
    parts = blocks + 2
    return tuple(((i + 1) / parts, (i + 2) / parts) for i in range(blocks))


class MaskAnnealing(nn.Module):
    """Probability of masked attention per block: 1 before the block's span, 0 after it, polynomial within."""

    progress: Tensor  # fraction of the run that is done; a tensor, because compiled models recompile for each new float
    spans: Tensor

    def __init__(self, blocks: int, spans: tuple[Span, ...] | None = None) -> None:
        """Raise ConfigError: not one span per block, or one that ends before it begins."""
        super().__init__()
        spans = default_spans(blocks) if spans is None else spans
        if len(spans) != blocks:
            raise ConfigError(f"decoder.anneal: {len(spans)} spans for {blocks} blocks.")
        if any(begin > end for begin, end in spans):
            raise ConfigError(f"decoder.anneal: a span ends before it begins, in {[list(span) for span in spans]}.")
        self.register_buffer("spans", torch.tensor(spans), persistent=False)
        self.register_buffer("progress", torch.zeros(()), persistent=False)

    def on_train_step(self, progress: float) -> None:
        """Receive the fraction of the run that is done, before each training step."""
        self.progress.fill_(progress)

    def probability(self, block: int) -> Float[Tensor, ""]:
        begin, end = self.spans[block]
        done = ((self.progress - begin) / (end - begin).clamp_min(1e-9)).clamp(0, 1)
        return (1 - done) ** ANNEALING_POWER


class QueryPredictions(NamedTuple):
    """One mask and one class per query; the last class means `no object`."""

    masks: Float[Tensor, "b q mh mw"]  # logits
    classes: Float[Tensor, "b q kinds"]  # logits


@DECODERS.register("eomt")
class EoMT(Decoder):
    """Segmentation by queries that predict a mask and a class each; trained with the loss `set_criterion`.

    In training there is a prediction before each of the decoder's blocks. All are supervised (extras `masks` and
    `classes`), and in the block a query attends only to the patches inside its mask, with a probability that falls to 0
    (`MaskAnnealing`). In evaluation there is one prediction and no masked attention.

    The map is the logarithm of each class's score, the sum over queries of p(class) p(mask); its argmax is the
    published prediction. With `segments` it is the masks of the queries, and the extra `classes` their classes, for the
    heads `panoptic` and `instances`.
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
        segments: bool = False,
        keep: Positive = 100,
    ) -> None:
        """Raise ConfigError: not one span per block.

        Args:
            classes: names in the order of their ids, or their number; None takes those of the data.
            blocks: number of the encoder's last blocks that have the queries.
            masked: masked attention and supervision of every block in training; otherwise only the last prediction.
            anneal: per block the span of the run in which masked attention is phased out, as [[0.2, 0.4], ...];
                one after another by default, as published.
            segments: hand on the queries, not the scores of classes.
            keep: number of queries that are predicted with `segments`, those that are surest of a class.
        """
        super().__init__()
        dim, stride = features[-1].channels, features[-1].stride
        doublings = max(1, int(math.log2(stride)) - 2)  # to a quarter of the image, from patches of 16
        self.encoder_blocks, self.masked = blocks, masked
        self.query_classes, self.keep = len(class_names(classes)) if segments else 0, keep
        self.annealing = MaskAnnealing(blocks, anneal)
        self.q = nn.Embedding(queries, dim)
        self.class_head = nn.Linear(dim, len(class_names(classes)) + 1)
        self.mask_head = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim)
        )
        self.upscale = nn.Sequential(*(UpscaleBlock(dim) for _ in range(doublings)))
        maps = queries if segments else len(class_names(classes))
        self.output = FeatureSpec(maps, max(1, round(stride / 2**doublings)))

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b k h w"] | DecoderOutput:
        assert features.remaining is not None, "DenseModel detaches the encoder's last blocks"
        predictions = list(self.predictions(features.remaining))
        last = predictions[-1]
        if not self.training:
            return self.surest(last) if self.query_classes else class_log_scores(last, features.image_size)
        extras = {
            "masks": torch.stack([one.masks for one in predictions], 1),
            "classes": torch.stack([one.classes for one in predictions], 1),
            "covers": torch.tensor(features.image_size, dtype=torch.float32),  # pixels (h, w)
        }
        return DecoderOutput(last.masks if self.query_classes else class_log_scores(last, None), extras)

    def surest(self, predictions: QueryPredictions) -> DecoderOutput:
        """Return the masks of the queries that are surest of a class, in their order, and their classes."""
        masks, classes = predictions
        if self.keep < masks.shape[1]:
            scores = classes.float().softmax(-1)[..., :-1].amax(-1)
            indices = scores.topk(self.keep, 1).indices.sort(1).values
            # Not `take_along_dim`, whose broadcasting would fix the sizes in a graph for images of any size.
            masks = masks.gather(1, indices[..., None, None].expand(-1, -1, *masks.shape[2:]))
            classes = classes.take_along_dim(indices[..., None], 1)
        return DecoderOutput(masks, {"classes": classes.flatten(1)[..., None, None]})

    def predictions(self, remaining: RemainingBlocks) -> Iterator[QueryPredictions]:
        """Yield the prediction after the last block; in training with masked attention those before each block come
        first."""
        x, num_queries = remaining.tokens, self.q.num_embeddings
        first = len(remaining.blocks) - self.encoder_blocks  # another decoder may need more blocks
        for block in remaining.blocks[:first]:
            x = block(x, None, 0)
        queries = self.q.weight.expand(x.shape[0], -1, -1)
        x = torch.cat([x[:, : remaining.prefix_tokens], queries, x[:, remaining.prefix_tokens :]], 1)
        for index, block in enumerate(remaining.blocks[first:]):
            mask = None
            if self.training and self.masked:
                prediction = self.predict(x, remaining)
                mask = self.attention_mask(prediction.masks, self.annealing.probability(index), remaining)
                yield prediction
            x = block(x, mask, num_queries)
        yield self.predict(x, remaining)

    def predict(self, x: Float[Tensor, "b n d"], remaining: RemainingBlocks) -> QueryPredictions:
        x, first = remaining.norm(x), remaining.prefix_tokens
        queries, patches = x[:, first : first + self.q.num_embeddings], x[:, first + self.q.num_embeddings :]
        cells = self.upscale(as_map(patches, remaining.grid))
        return QueryPredictions(
            torch.einsum("bqd,bdhw->bqhw", self.mask_head(queries), cells), self.class_head(queries)
        )

    def attention_mask(
        self, masks: Float[Tensor, "b q mh mw"], probability: Float[Tensor, ""], remaining: RemainingBlocks
    ) -> Bool[Tensor, "b 1 n n"]:
        """Return (batch, 1, query, key): with `probability`, queries attend only to patches in their mask; the rest to
        all."""
        inside = (upsample(masks.detach(), remaining.grid) > 0).flatten(2)
        unmasked = torch.rand(inside.shape[:2], device=inside.device) >= probability
        inside = inside | unmasked[..., None]
        before, cells = remaining.prefix_tokens, inside.shape[2]
        queries = F.pad(inside, (before + inside.shape[1], 0), value=True)
        return F.pad(queries, (0, 0, before, cells), value=True)[:, None]


def class_log_scores(predictions: QueryPredictions, size: tuple[int, int] | None) -> Float[Tensor, "b k h w"]:
    """Return the logarithm of sum over queries of p(class) p(mask), in full precision. `size`: to which masks are
    upsampled before the sigmoid, as published; None, in training, leaves them small."""
    with torch.autocast(predictions.masks.device.type, enabled=False):
        masks = predictions.masks.float() if size is None else upsample(predictions.masks.float(), size)
        probabilities = predictions.classes.float().softmax(-1)[..., :-1]
        return torch.einsum("bqk,bqhw->bkhw", probabilities, masks.sigmoid()).clamp_min(MIN_SCORE).log()


class UpscaleBlock(nn.Module):
    """Doubles a map: transposed convolution, GELU, depthwise convolution and LayerNorm."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.ConvTranspose2d(dim, dim, 2, stride=2)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False)
        self.norm = LayerNorm2d(dim)

    def forward(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d h*2 w*2"]:
        return self.norm(self.conv2(F.gelu(self.conv1(x))))
