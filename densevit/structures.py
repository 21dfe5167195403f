"""The types that the layers hand to each other. Comments on fields give shape and unit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64, Integer, UInt8
from torch import Tensor

Size = tuple[int, int]
"""Height and width in pixels."""

Box = tuple[int, int, int, int]
"""A window in pixels: y0, y1, x0, x1; y1 and x1 are the first row and column outside."""

Row = dict[str, float]
"""The scores of one image by metric."""

NO_LABEL = -1
"""The class id of an image without one."""

DepthKind = Literal["metric", "relative", "affine", "disparity"]
"""What ground truth depth is: metres; depth up to a scale; depth up to scale and shift; or depth whose inverse, the
disparity, is known up to scale and shift."""

IGNORE = 255
"""The class id of a pixel that counts nowhere: without a label, or of none of the classes."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One image with its ground truth, as a data set reads it."""

    name: str  # unique in its data set; the stem of every file written for it
    image: UInt8[np.ndarray, "h w 3"]  # RGB
    depth: Float32[np.ndarray, "h w"] | None = None  # metres along the optical axis; 0 where not valid
    valid: Bool[np.ndarray, "h w"] | None = None  # True where depth was measured; None exactly where depth is
    labels: Int64[np.ndarray, "h w"] | None = None  # class ids; IGNORE where none
    label: int | None = None  # class id of the whole image
    segments: Int32[np.ndarray, "h w"] | None = None  # k is row k - 1 of `segment_classes`; 0 is void
    segment_classes: Int64[np.ndarray, " n"] | None = None  # class id of each segment; None exactly where segments is
    segment_crowd: Bool[np.ndarray, " n"] | None = None  # True for groups of objects, which teach nothing
    normals: Float32[np.ndarray, "h w 3"] | None = None  # unit, camera axes, towards the camera; 0 where unknown
    intrinsics: Float64[np.ndarray, "3 3"] | None = None  # pixels, for this image's size
    pose: Float64[np.ndarray, "4 4"] | None = None  # camera to world, metres; right, down, forward
    depth_kind: DepthKind = "metric"  # of `depth`, which is in metres only where it is metric
    source: str = ""  # the data set of a mixture that it comes from
    pasted: Bool[np.ndarray, "h w"] | None = None  # True where another image was pasted in (CutMix)
    pasted_intrinsics: Float64[np.ndarray, "3 3"] | None = None  # of the image that was pasted in
    weak: UInt8[np.ndarray, "h w 3"] | None = None  # the image before strong transforms and CutMix, for a teacher
    weak_pasted: UInt8[np.ndarray, "h w 3"] | None = None  # likewise, of the image that was pasted in
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # that models take beside the image, by name

    def arrays(self) -> dict[str, np.ndarray]:
        """Return every array by name, those of `inputs` included."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)} | {**self.inputs}

    def with_arrays(self, arrays: Mapping[str, np.ndarray | None]) -> "Sample":
        """Return the sample with these arrays in place of those of the same names; None removes one."""
        fields: dict[str, Any] = {name: value for name, value in arrays.items() if name in vars(self)}
        inputs = {name: value for name, value in {**self.inputs, **arrays}.items() if name not in fields}
        return replace(self, **fields, inputs={name: value for name, value in inputs.items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples of one size, stacked; missing ground truth is zero and not valid.

    A loader gives images and labels in as few bytes as hold them; `to` makes them float32 in [0, 1] and int64.
    """

    names: tuple[str, ...]
    indices: tuple[int, ...]  # positions in the data set
    image: Float[Tensor, "b 3 h w"] | UInt8[Tensor, "b 3 h w"]  # in [0, 1], or as bytes; the encoder normalises
    depth: Float[Tensor, "b 1 h w"] | None = None  # metres
    valid: Bool[Tensor, "b 1 h w"] | None = None
    labels: Integer[Tensor, "b h w"] | None = None  # class ids; IGNORE where unknown
    label: Int64[Tensor, "b"] | None = None  # NO_LABEL where unknown
    segments: Integer[Tensor, "b h w"] | None = None  # as in `Sample`
    segment_classes: Int64[Tensor, "b n"] | None = None  # NO_LABEL after the last segment of an image
    segment_crowd: Bool[Tensor, "b n"] | None = None
    normals: Float[Tensor, "b 3 h w"] | None = None  # 0 where unknown
    intrinsics: Float[Tensor, "b 3 3"] | None = None  # NaN where unknown
    pose: Float[Tensor, "b 4 4"] | None = None  # camera to a world that the batch shares, metres; NaN where unknown
    pasted: Bool[Tensor, "b h w"] | None = None  # True where another image was pasted in (CutMix)
    pasted_intrinsics: Float[Tensor, "b 3 3"] | None = None  # NaN where unknown, or nothing was pasted in
    depth_kinds: tuple[DepthKind, ...] = ()  # of each image; empty: all are metric
    sources: tuple[str, ...] = ()  # of a mixture, the data set of each image; empty: there is no mixture
    weak: Float[Tensor, "b 3 h w"] | UInt8[Tensor, "b 3 h w"] | None = None  # as in `Sample`; 0 where there is none
    weak_pasted: Float[Tensor, "b 3 h w"] | UInt8[Tensor, "b 3 h w"] | None = None
    inputs: Mapping[str, Tensor] = field(default_factory=dict)  # that models take beside the image, by name
    clip_length: int = 1  # the images are clips of n frames, the frames of each one in a row

    features: "EncoderOutput | None" = None  # of a frozen encoder for these images, where they are cached

    def __len__(self) -> int:
        return len(self.names)

    def by_source(self) -> dict[str, list[int]]:
        """Return the data sets of a mixture in this batch, each with the rows of its images; one without a name
        else."""
        rows: dict[str, list[int]] = {}
        for row, source in enumerate(self.sources or ("",) * len(self)):
            rows.setdefault(source, []).append(row)
        return rows

    def take(self, rows: Sequence[int]) -> "Batch":
        """Return the batch of some of the images, in this order."""
        if list(rows) == list(range(len(self))):
            return self
        lists: dict[str, Any] = {
            k: tuple(v[row] for row in rows) for k, v in vars(self).items() if isinstance(v, tuple) and v
        }
        return replace(self._map_tensors(lambda t: t[list(rows)]), **lists)

    def to(self, device: torch.device) -> "Batch":
        """Move to a device, in the types that models and losses take; the bytes are copied, and widened there."""
        return self._map_tensors(lambda t: widened(t.to(device, non_blocking=True)))

    def record_stream(self, stream: Any) -> None:
        """Keep the memory until this stream is done with it, too, as `Tensor.record_stream`."""
        self._map_tensors(lambda t: (t.record_stream(stream), t)[1])

    def pin_memory(self) -> "Batch":  # called by DataLoader
        return self._map_tensors(lambda t: t.pin_memory())

    def _map_tensors(self, function: Any) -> "Batch":
        features = None if self.features is None else self.features.map(function)
        tensors = {k: function(v) for k, v in vars(self).items() if isinstance(v, Tensor)}
        inputs = {name: function(x) for name, x in self.inputs.items()}
        return replace(self, **tensors, inputs=inputs, features=features)


def widened(x: Tensor) -> Tensor:
    """Return bytes b 3 h w as float32 in [0, 1], class ids as int64, and anything else as it is."""
    if x.is_floating_point() or x.dtype == torch.bool:
        return x
    return x.to(torch.float32).div_(255) if x.ndim == 4 else x.long()


@dataclass(frozen=True)
class FeatureSpec:
    """Channels and stride of a feature map, from which decoders are built."""

    channels: int
    stride: int  # image pixels per feature; may be 14
    tokens: bool = True  # of a plain ViT, with a class token; False for maps of convolutions and windows


BlockFunction = Callable[[Tensor, Tensor | None, int], Tensor]
"""One block of an encoder as f(tokens, mask, num_queries).

tokens: b n d, in the order prefix, queries of the decoder, patches. mask: (b, 1, query, key), True where attention is
allowed; None allows all. num_queries: how many of the tokens are the decoder's."""


@dataclass(frozen=True)
class RemainingBlocks:
    """The last blocks of an encoder, which a decoder runs with query tokens of its own."""

    tokens: Float[Tensor, "b n d"]  # prefix, then patches, before the first of the blocks
    prefix_tokens: int
    grid: tuple[int, int]  # cells (h, w) of the patches
    blocks: tuple[BlockFunction, ...]
    norm: Callable[[Tensor], Tensor]  # the encoder's last LayerNorm


class MapAdapter:
    """What an input beside the images changes in the maps of a decoder with levels; this one changes nothing."""

    def level(self, index: int, x: Tensor) -> Tensor:
        """Return a level of the pyramid, the finest is number 0, before its last convolution: b c h w -> b c h w."""
        return x

    def fusion(self, index: int, x: Tensor) -> Tensor:
        """Return the output of a fusion, the deepest is number 0: b c h w -> b c h w."""
        return x


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder returns: one feature map per out index, shallow to deep."""

    maps: tuple[Float[Tensor, "b _ _ _"], ...]  # b c_i h_i w_i, covering the padded image
    prefix: tuple[Float[Tensor, "b _ _"], ...]  # b p c_i: class token first, then registers; p may be 0
    image_size: tuple[int, int]  # (h, w) of the padded image: h_i * stride_i
    remaining: RemainingBlocks | None = None  # where a decoder runs the last blocks itself
    adapters: tuple[MapAdapter, ...] = ()  # what a decoder with levels applies to its maps, in this order

    def map(self, function: Callable[[Tensor], Tensor]) -> "EncoderOutput":
        """Return the function of every map and prefix."""
        maps, prefix = (tuple(function(x) for x in tensors) for tensors in (self.maps, self.prefix))
        return replace(self, maps=maps, prefix=prefix)
