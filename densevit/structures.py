"""The nouns that travel between the rooms. Field comments carry shape and unit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64, UInt8
from torch import Tensor

NO_LABEL = -1
"""The class id of an image without one."""

IGNORE = 255
"""The class id of a pixel that counts nowhere: without a label, or of none of the classes."""

Palette = tuple[tuple[int, int, int], ...]
"""RGB colours of 8 bits, in the order of the class ids."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One image with what is known of it, as a data set reads it."""

    name: str  # unique in its data set; the stem of every file written for it
    image: UInt8[np.ndarray, "h w 3"]  # RGB
    depth: Float32[np.ndarray, "h w"] | None = None  # metres along the optical axis; 0 where not valid
    valid: Bool[np.ndarray, "h w"] | None = None  # True where depth was measured; None exactly where depth is
    labels: Int64[np.ndarray, "h w"] | None = None  # class ids; IGNORE where none
    label: int | None = None  # class id of the whole image
    intrinsics: Float64[np.ndarray, "3 3"] | None = None  # pixels, for this image's size


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples of one size, stacked; what a sample lacks is zero and not valid."""

    names: tuple[str, ...]
    indices: tuple[int, ...]  # positions in the data set
    image: Float[Tensor, "b 3 h w"]  # in [0, 1]; normalisation is the encoder's
    depth: Float[Tensor, "b 1 h w"] | None = None  # metres
    valid: Bool[Tensor, "b 1 h w"] | None = None
    labels: Int64[Tensor, "b h w"] | None = None  # class ids; IGNORE where unknown
    label: Int64[Tensor, "b"] | None = None  # NO_LABEL where unknown
    intrinsics: Float[Tensor, "b 3 3"] | None = None  # NaN where unknown

    def __len__(self) -> int:
        return len(self.names)

    def to(self, device: torch.device) -> "Batch":
        return self._each(lambda t: t.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":  # called by DataLoader
        return self._each(lambda t: t.pin_memory())

    def _each(self, move: Any) -> "Batch":
        return replace(self, **{k: move(v) for k, v in vars(self).items() if isinstance(v, Tensor)})


@dataclass(frozen=True)
class FeatureSpec:
    """What a decoder can know of a feature map before it sees one."""

    channels: int
    stride: int  # image pixels per feature; may be 14
    tokens: bool = True  # of a Transformer over the whole image; maps of convolutions and windows have no class token


Step = Callable[[Tensor, Tensor | None, int], Tensor]
"""One block of an encoder, of (tokens b n d, mask, guests): `mask`, b 1 n n, is True where a token may ask another, and
None where all may; `guests` are a decoder's own tokens, which stand between the prefix and the patches."""


@dataclass(frozen=True)
class Remainder:
    """The last blocks of an encoder, left to a decoder that has tokens of its own to send through them."""

    tokens: Float[Tensor, "b n d"]  # prefix, then patches, before the first of the steps
    prefix_tokens: int
    grid: tuple[int, int]  # cells (h, w) of the patches
    steps: tuple[Step, ...]
    norm: Callable[[Tensor], Tensor]  # the encoder's last LayerNorm


@dataclass(frozen=True)
class Features:
    """What an encoder gives: one map per tap, shallow to deep."""

    maps: tuple[Float[Tensor, "b _ _ _"], ...]  # b c_i h_i w_i, covering the padded image
    prefix: tuple[Float[Tensor, "b _ _"], ...]  # b p c_i: class token first, then registers; p may be 0
    image_size: tuple[int, int]  # (h, w) of the padded image: h_i * stride_i
    rest: Remainder | None = None  # where a decoder joins the encoder


Kind = Literal["metric", "affine", "disparity", "class", "labels"]
"""Maps at image size: three kinds of depth, and `labels`, a row of logits for each pixel. `class` is one row of logits
for the whole image, a map of 1 x 1."""


@dataclass(frozen=True, kw_only=True)
class OutputSpec:
    """What the numbers of one head mean."""

    kind: Kind
    unit: str = "m"  # of metric depth; "" for the others, which have none
    range: tuple[float, float] | None = None  # the values the head can give
    classes: tuple[str, ...] = ()  # names, in the order of the logits
    palette: Palette = ()  # their colours in pictures; empty for ones of our choosing
    focal: float | None = None  # pixels at network size: of the camera for which values are metres; None: for any


@dataclass(frozen=True, kw_only=True)
class ResizeRule:
    """How an image of any size meets the network, and how the answer returns to its size.

    `native` only pads; the others keep to multiples of the card's `multiple`. lower_bound: keep the aspect, no side
    under `size` (Depth Anything); upper_bound: no side over it; minimal: keep the aspect, by whichever side asks for
    the smaller change (MiDaS, DPT); shortest: keep the aspect, the shorter side at `size`, to no multiple
    (torchvision); longest: keep the aspect, the longer side at `size`, and in a second step each side to the nearest
    multiple (Depth Anything 3); fixed: stretch to it.
    """

    mode: Literal["native", "lower_bound", "upper_bound", "minimal", "shortest", "longest", "fixed"] = "native"
    size: tuple[int, int] | None = None  # (h, w)
    interpolation: Literal["bilinear", "bicubic", "area", "adaptive"] = "bicubic"  # adaptive: area, to grow bicubic
    align_corners: bool = False  # on the way in; bilinear and bicubic only
    antialias: bool = False  # on the way in, as PIL and Hugging Face do
    eight_bit: bool = False  # resized values are bytes again, as where images are resized before they become floats
    padding: Literal["crop", "stretch"] = "crop"  # what covers the encoder's padding is cut off, or all is stretched
    once: bool = False  # a stretched answer meets the image's size at once, not by way of the network's (DINOv3)
    back: Literal["bilinear", "bicubic", "nearest"] = "bilinear"  # on the way out
    back_align_corners: bool = False
    window: tuple[int, int] | None = None  # (h, w) that slides over the resized image; None shows it whole
    stride: tuple[int, int] | None = None  # of the window; None leaves no overlap
    margin: float = 0.0  # the image is first continued by reflection: margin * sqrt(side / 2) pixels on both ends
    flip: bool = False  # the answer is the mean with the mirrored image's mirrored answer


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a user of the weights must know; it stands inside every checkpoint."""

    outputs: Mapping[str, OutputSpec]  # one per head
    multiple: int  # the network's sides are multiples of this: the patch size
    resize: ResizeRule = field(default_factory=ResizeRule)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    taps: tuple[int, ...] = ()
    source: str = "densevit"
    licence: str = "unknown"
    model: Mapping[str, Any] = field(default_factory=dict)  # the resolved `model` section of the config
    config: Mapping[str, Any] = field(default_factory=dict)  # the resolved run that trained it; empty if unknown
    trained_on: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> "ModelCard":
        tree = dict(tree)
        tree["outputs"] = {name: _output(spec) for name, spec in tree["outputs"].items()}
        pairs = {key: _pair(tree["resize"].get(key)) for key in ("size", "window", "stride")}
        tree["resize"] = ResizeRule(**{**tree["resize"], **pairs})
        for key in ("mean", "std", "taps"):
            tree[key] = tuple(tree[key])
        return cls(**tree)


def _output(spec: Mapping[str, Any]) -> OutputSpec:
    palette = tuple(map(tuple, spec.get("palette", ())))
    rest = {"range": _pair(spec.get("range")), "classes": tuple(spec.get("classes", ())), "palette": palette}
    return OutputSpec(**{**spec, **rest})


def _pair(values: Sequence[Any] | None) -> Any:
    return None if values is None else tuple(values)
