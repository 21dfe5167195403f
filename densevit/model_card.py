"""The model card: what a model predicts and how images are preprocessed. No tensors: configs are read without torch."""

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from densevit.depth_corrections import Calibration, Interval
from densevit.errors import ConfigError, DataError
from densevit.output_kinds import OutputKind, meanings, output_kind
from densevit.preprocess_config import PreprocessConfig

Palette = tuple[tuple[int, int, int], ...]
"""RGB colours of 8 bits, in the order of the class ids."""

Kind = str
"""The name of an output kind (output_kinds.py)."""


class _Component(BaseModel, extra="allow"):
    type: str
    lora: Mapping[str, Any] | None = None  # of an encoder


class _ModelSection(BaseModel, extra="allow"):
    """The shape of `model`; the options are checked where the components are built."""

    encoder: _Component
    decoder: _Component
    heads: Mapping[str, _Component]
    decoders: Mapping[str, _Component] = {}
    conditioning: Mapping[str, Mapping[str, Any]] = {}
    camera: str = ""
    canonical_focal: float | None = None


class _AdapterBase(BaseModel, extra="allow"):
    fingerprint: str
    init_from: str | None = None
    init_family: str | Mapping[str, Any] | None = None
    weights: str | None = None
    pretrained: bool = False


HEAD_NAME = re.compile(r"[\w-]+(/[\w-]+)?")  # it becomes part of file names; `uncertainty_of` has the slash


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """What one head predicts."""

    kind: Kind
    unit: str = "m"  # of metric depth; "" for the others
    range: tuple[float, float] | None = None  # smallest and largest value the head can predict
    classes: tuple[str, ...] = ()  # names, in the order of the logits
    palette: Palette = ()  # RGB of the classes; empty: generated
    focal: float | None = None  # pixels at network size: the camera for which values are metres; None: any camera
    interval: Interval | None = None  # of metric depth, where it was calibrated
    calibration: Calibration | None = None  # applied to every prediction
    things: tuple[int, ...] = ()  # of panoptic segments, the classes whose segments are single objects
    threshold: float | None = None  # of panoptic segments, the score above which a query counts

    @property
    def output_kind(self) -> OutputKind:
        """What the kind means, and how its maps are mirrored, averaged and finished."""
        return output_kind(self.kind)

    @property
    def metres(self) -> tuple[float, float] | None:
        """`range` in the unit of the prediction; None where it depends on the camera, or on a calibration."""
        return self.range if self.focal is None and self.calibration is None else None

    @property
    def needs_camera(self) -> bool:
        """Whether the metres of the prediction follow from the camera."""
        return self.focal is not None

    def transformed(self) -> "HeadSpec":
        """Return what the maps are once scaled by the camera and calibrated."""
        return replace(self, range=self.metres, focal=None, calibration=None)


def uncertainty_of(head: str) -> str:
    """Return the output that holds the uncertainty of a depth head."""
    return f"{head}/uncertainty"


def head_giving(output: str) -> str:
    """Return the head that gives an output: `depth` of `depth/uncertainty`."""
    return output.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a user of the weights must know; part of every checkpoint."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    outputs: Mapping[str, HeadSpec]  # one per head
    multiple: int  # the network's input sides are multiples of this: the patch size
    resize: PreprocessConfig = field(default_factory=PreprocessConfig)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    out_indices: tuple[int, ...] = ()
    source: str = "densevit"
    licence: str = "unknown"
    teachers: Mapping[str, str] = field(default_factory=dict)  # models whose predictions it learned from -> licence
    model: Mapping[str, Any] = field(default_factory=dict)  # the resolved `model` section of the config
    config: Mapping[str, Any] = field(default_factory=dict)  # the resolved training config; empty if unknown
    trained_on: str = ""
    limitations: str = ""  # in sentences: what not to expect of it, and what to take there
    fov: tuple[float, float] | None = None  # horizontal fields of view of the training images, in degrees
    scores: Mapping[str, float] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)  # of an adapter: where its encoder's weights are, and which

    def __post_init__(self) -> None:
        sides = {"size": self.resize.size, "window": self.resize.window, "stride": self.resize.stride}
        if bad := [name for name, side in {"multiple": (self.multiple,), **sides}.items() if side and min(side) < 1]:
            raise ConfigError(f"{bad[0]}: is under 1 pixel.")
        whole = [spec.output_kind.meaning for spec in self.outputs.values() if not spec.output_kind.averaged]
        if whole and (self.resize.window or self.resize.flip):
            option = "window" if self.resize.window else "flip"
            raise ConfigError(f"resize.{option}: {whole[0]} are predicted for a whole image at once; leave it out.")

    @property
    def canonical_focals(self) -> dict[str, float]:
        """The focal length for which predictions are metres, by head."""
        return {name: spec.focal for name, spec in self.outputs.items() if spec.focal is not None}

    @property
    def conditioning(self) -> Mapping[str, Mapping[str, Any]]:
        """The options of what the network does with inputs beside images, by name."""
        return self.model.get("conditioning") or {}

    @property
    def clip_frames(self) -> int:
        """Consecutive frames of a video that the network sees together; 1 for a model of images."""
        return max((options.get("frames") or 1 for options in self.conditioning.values()), default=1)

    @property
    def needs_camera(self) -> bool:
        """Whether predictions depend on the camera of an image."""
        return "rays" in self.conditioning or bool(self.canonical_focals)

    @property
    def camera_head(self) -> str | None:
        """The head that estimates the focal length."""
        return next((name for name, spec in self.outputs.items() if spec.output_kind.estimates_camera), None)

    def heads_of(self, *kinds: Kind) -> list[str]:
        """Return the names of the heads of these kinds."""
        return [name for name, spec in self.outputs.items() if spec.kind in kinds]

    def head(self, name: str | None = None) -> str:
        """Return the name of the head: the one that is given; else the only one, the only one for depth, or `depth`."""
        heads = [head for head, spec in self.outputs.items() if not spec.output_kind.auxiliary]
        depth = [head for head in heads if self.outputs[head].output_kind.is_depth]
        selected = name or next((some[0] for some in (heads, depth) if len(some) == 1), "depth")
        if selected not in self.outputs:
            reason = f"this model has no head '{name}'. It has" if name else "name a head; this model has several"
            raise DataError(f"{reason}: {', '.join(heads)}.")
        return selected

    def head_for(self, kinds: Collection[str], requested: Collection[str] = (), what: str = "this") -> str:
        """Return the head of one of these kinds: the only one, the one that is requested, or `depth`. Raises
        ConfigError, whose message begins with `what`, if there is none, several or no such head."""
        for name in requested:
            if name not in self.outputs:
                raise ConfigError(f"{what}: this model has no head '{name}'. It has: {', '.join(self.outputs)}.")
        fitting = [name for name, spec in self.outputs.items() if spec.kind in kinds]
        selected = (
            [name for name in fitting if name in requested] or [name for name in fitting if name == "depth"] or fitting
        )
        if len(selected) == 1:
            return selected[0]
        if selected:
            raise ConfigError(f"{what}: several heads fit, {', '.join(selected)}; choose one by --head.")
        have = ", ".join(f"{name} gives {spec.output_kind.meaning}" for name, spec in self.outputs.items())
        raise ConfigError(f"{what}: no head of this model gives {meanings(kinds)}; {have}.")

    def head_of(self, kinds: Collection[str], name: str | None, what: str) -> str:
        """Return the head of one of these kinds, as `head_for`, or the one that is named. Raises ConfigError as
        `head_for`, or if the named one gives something else."""
        head = self.head_for(kinds, [name] if name else (), what)
        if name not in (None, head):
            meaning = self.outputs[name].output_kind.meaning
            raise ConfigError(
                f"{what}: head '{name}' gives {meaning}; this needs {meanings(kinds)}, which '{head}' gives."
            )
        return head

    def label_head(self, name: str | None, what: str) -> str:
        """Return the head that classifies pixels; see `head_of`."""
        return self.head_of(("labels",), name, what)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> "ModelCard":
        """Return the card of a tree as JSON stores it. Raises ValueError for what no card has."""
        card = TypeAdapter(cls).validate_python(tree)
        if bad := [name for name in card.outputs if not HEAD_NAME.fullmatch(name)]:
            raise ValueError(f"{bad[0]!r} is no name of a head: letters, digits, _ and -")
        if card.model:
            _ModelSection.model_validate(card.model)
        if card.base:
            _AdapterBase.model_validate(card.base)
        return card
