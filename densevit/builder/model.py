"""Models from specs and from checkpoints: ours, and the field's. b images, h x w pixels."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

import densevit.models
import densevit.weights.families  # noqa: F401 (both imports register parts)
from densevit.errors import ConfigError
from densevit.model_card import HeadSpec, ModelCard, Palette, PreprocessConfig
from densevit.models.decoders.base import Decoder
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import Encoder
from densevit.models.heads.base import Head
from densevit.registry import ComponentSpec
from densevit.weights.finetune import InitSpec
from densevit.weights.readers import read_tensors

log = logging.getLogger(__name__)
T = TypeVar("T")
ERROR_PREFIXES = ("encoder", "decoder", "head")  # how parts call themselves in their errors


@dataclass(frozen=True)
class ModelPlan:
    encoder: ComponentSpec[Encoder]
    decoder: ComponentSpec[Decoder]
    heads: Mapping[str, ComponentSpec[Head]]
    decoders: Mapping[str, ComponentSpec[Decoder]] = field(default_factory=dict)
    start: InitSpec | None = None  # the checkpoint that training starts from
    source: Any = None  # its weights

    def spec(self) -> dict[str, Any]:
        return {
            "encoder": self.encoder.spec(),
            "decoder": self.decoder.spec(),
            "heads": {name: head.spec() for name, head in self.heads.items()},
            "decoders": {name: decoder.spec() for name, decoder in self.decoders.items()},
        }

    def resize_by(self, rule: PreprocessConfig | None) -> PreprocessConfig:
        """How images meet the network: as the config says, else as in the checkpoint, else padded only."""
        return rule or (self.start.resize if self.start else PreprocessConfig())

    def for_classes(self, names: Sequence[str]) -> "ModelPlan":
        """Heads and decoders that leave their classes to the data, or say only how many, take these names."""
        return replace(
            self,
            decoder=_named(self.decoder, tuple(names)),
            heads={key: _named(head, tuple(names)) for key, head in self.heads.items()},
            decoders={key: _named(decoder, tuple(names)) for key, decoder in self.decoders.items()},
        )


def _named(part: ComponentSpec[T], names: tuple[str, ...]) -> ComponentSpec[T]:
    if names and "classes" in part.options and part.options["classes"] in (None, len(names)):
        return replace(part, options={**part.options, "classes": names})
    return part


def build_model(plan: ModelPlan, resize: PreprocessConfig | None = None) -> DenseModel:
    """The network, with the encoder's weights where the config names a file of them."""
    encoder = build_component(plan.encoder, "model.encoder")
    weights: Path | None = plan.encoder.options.get("weights")
    if weights is not None:
        encoder.load_weights(read_tensors(weights), str(weights))
    given = (encoder.features, encoder.prefix_tokens)
    decoder = build_component(plan.decoder, "model.decoder", *given)
    own = {name: build_component(choice, f"model.decoders.{name}", *given) for name, choice in plan.decoders.items()}
    heads = {
        name: build_component(head, f"model.heads.{name}", own.get(name, decoder).output.channels)
        for name, head in plan.heads.items()
    }
    return DenseModel(encoder, decoder, heads, own, stretch=plan.resize_by(resize).padding == "stretch")


def build_component(part: ComponentSpec[T], where: str, *given: Any) -> T:
    """The part; what it refuses is told with the place of the config that it stands at."""
    try:
        return part.build(*given)
    except ConfigError as error:
        raise ConfigError(*(prefix_error(problem, where) for problem in error.problems)) from None


def prefix_error(problem: str, where: str) -> str:
    name = next((name for name in ERROR_PREFIXES if problem.startswith((f"{name}.", f"{name}:"))), None)
    return f"{where}: {problem}" if name is None else where + problem.removeprefix(name)


def build_card(
    model: DenseModel,
    plan: ModelPlan,
    resize: PreprocessConfig | None = None,
    trained_on: str = "",
    palette: Palette = (),
) -> ModelCard:
    heads: Mapping[str, Any] = dict(model.heads.items())
    start, rule = plan.start, plan.resize_by(resize)
    return ModelCard(
        outputs={name: coloured(head.output, palette) for name, head in heads.items()},
        multiple=start.multiple if start and start.multiple and start.resize == rule else model.encoder.patch_size,
        resize=rule,
        mean=to_float_tuple(model.encoder.mean),
        std=to_float_tuple(model.encoder.std),
        out_indices=model.encoder.out_indices,
        model=plan.spec(),
        trained_on=trained_on,
        source=f"densevit, from {start.source}" if start else "densevit",
        licence=start.licence if start else "unknown",
    )


def to_float_tuple(values: Tensor) -> tuple[float, ...]:
    """0.485, where `tolist` would say what its float32 is: 0.48500001430511475."""
    return tuple(float(str(value)) for value in values.cpu().numpy().flatten())


def coloured(output: HeadSpec, palette: Palette) -> HeadSpec:
    """What a head gives, with the colours of the data's classes where it tells just these apart."""
    return replace(output, palette=palette) if palette and len(palette) == len(output.classes) else output
