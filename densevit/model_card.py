"""What a model gives and how images meet it; no tensors, so that a config is read without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Palette = tuple[tuple[int, int, int], ...]
"""RGB colours of 8 bits, in the order of the class ids."""

Kind = Literal["metric", "affine", "disparity", "class", "labels"]
"""Maps at image size: three kinds of depth, and `labels`, a row of logits for each pixel. `class` is one row of logits
for the whole image, a map of 1 x 1."""


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """What the numbers of one head mean."""

    kind: Kind
    unit: str = "m"  # of metric depth; "" for the others, which have none
    range: tuple[float, float] | None = None  # the values the head can give
    classes: tuple[str, ...] = ()  # names, in the order of the logits
    palette: Palette = ()  # their colours in pictures; empty for ones of our choosing
    focal: float | None = None  # pixels at network size: of the camera for which values are metres; None: for any


@dataclass(frozen=True, kw_only=True)
class PreprocessConfig:
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

    outputs: Mapping[str, HeadSpec]  # one per head
    multiple: int  # the network's sides are multiples of this: the patch size
    resize: PreprocessConfig = field(default_factory=PreprocessConfig)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    out_indices: tuple[int, ...] = ()
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
        tree["resize"] = PreprocessConfig(**{**tree["resize"], **pairs})
        for key in ("mean", "std", "out_indices"):
            tree[key] = tuple(tree[key])
        return cls(**tree)


def _output(spec: Mapping[str, Any]) -> HeadSpec:
    palette = tuple(map(tuple, spec.get("palette", ())))
    rest = {"range": _pair(spec.get("range")), "classes": tuple(spec.get("classes", ())), "palette": palette}
    return HeadSpec(**{**spec, **rest})


def _pair(values: Sequence[Any] | None) -> Any:
    return None if values is None else tuple(values)
