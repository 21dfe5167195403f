"""Builds networks and their model cards from checked components. b images, h x w pixels."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

import densevit.models
import densevit.weights.families  # noqa: F401 (both imports register components)
from densevit.config.parser import OBJECT, describe_object
from densevit.config.validation import ModelSpec
from densevit.data.datasets.pairs import as_dataset
from densevit.errors import ConfigError, located
from densevit.model_card import HeadSpec, ModelCard, Palette
from densevit.models.conditioning.base import ConditionedParts, Conditioning
from densevit.models.decoders.base import Decoder
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import Encoder
from densevit.models.encoders.module import as_encoder
from densevit.models.heads.base import Head
from densevit.models.lora import Lora, add_lora
from densevit.registry import ComponentSpec
from densevit.weights.readers import read_tensors

# Kind of component -> the attributes that its interface asks it to set.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "encoder": ("features", "patch_size", "prefix_tokens", "out_indices", "mean", "std"),
    "decoder": ("output",),
    "head": ("output",),
    "conditioning": ("input",),
}


def build_model(spec: ModelSpec) -> DenseModel:
    """Return the network, with the encoder's weights where the config names a file of them."""
    encoder = build_encoder(spec.encoder, "model.encoder")
    if encoder.lora is not None:
        _add_lora(encoder, encoder.lora)
    args = (encoder.features, encoder.prefix_tokens)
    decoder: Decoder = build_component("decoder", spec.decoder, "model.decoder", *args)
    decoders: dict[str, Decoder] = {
        name: build_component("decoder", item, f"model.decoders.{name}", *args) for name, item in spec.decoders.items()
    }
    heads: dict[str, Head] = {
        name: build_component("head", item, f"model.heads.{name}", decoders.get(name, decoder).output.channels)
        for name, item in spec.heads.items()
    }
    for name, head in heads.items():
        try:
            if head.check_decoder is not None:
                head.check_decoder(decoders.get(name, decoder))
        except ConfigError as error:
            raise ConfigError(f"model.heads.{name}: {error}") from None
        if head.output.kind == "focal" and name not in decoders:
            raise ConfigError(
                f"model.heads.{name}: the focal length is of the whole image, which needs a decoder of its own: "
                f"model.decoders: {{{name}: {{type: pool, pool: average}}}}."
            )
    if spec.camera == "canonical":
        set_canonical_focal(heads, spec.canonical_focal)
    stretch = spec.resize.padding == "stretch"
    if spec.conditioning and all(one.encoder_blocks for one in (decoder, *decoders.values())):
        raise ConfigError("model.conditioning: it changes the encoder's feature maps, which no decoder here reads.")
    conditioned = ConditionedParts(encoder.features, decoder, {k: v for k, v in heads.items() if k not in decoders})
    conditioning: dict[str, Conditioning] = {
        name: build_component("conditioning", item, f"model.conditioning.{name}", conditioned)
        for name, item in spec.conditioning.items()
    }
    return DenseModel(encoder, decoder, heads, decoders, conditioning=conditioning, stretch=stretch)


def build_encoder(spec: ComponentSpec[Encoder], key_path: str) -> Encoder:
    """Return an encoder with the weights of the file that its options name."""
    encoder: Encoder = build_component("encoder", spec, key_path)
    weights: Path | None = spec.options.get("weights")
    if weights is not None:
        encoder.load_weights(read_tensors(weights), str(weights))
    return encoder


def set_canonical_focal(heads: Mapping[str, Head], focal: float | None) -> None:
    """Raise ConfigError if no head gives metres."""
    assert focal is not None
    metric = [head for head in heads.values() if head.output.kind == "metric" and head.output.focal is None]
    if not metric:
        raise ConfigError("model.camera: 'canonical' is for heads that give metres, and there is none. Set it to none.")
    for head in metric:
        head.output = replace(head.output, focal=focal)


def _add_lora(encoder: Encoder, options: Lora) -> None:
    try:
        add_lora(encoder, options)
    except ConfigError as error:
        raise ConfigError(*(prefix_error(problem, "model.encoder") for problem in error.problems)) from None


def build_component(kind: str, spec: ComponentSpec[Any], key_path: str, *args: Any) -> Any:
    """Return an encoder, decoder or head; errors name the place of the config that it stands at. Raises ConfigError:
    options that do not go together, or a component that lacks what its interface asks for."""
    try:
        built = spec.build(*args)
    except ConfigError as error:
        raise ConfigError(*(prefix_error(problem, key_path) for problem in error.problems)) from None
    except AttributeError as error:
        if "Module.__init__()" not in str(error):
            raise
        raise ConfigError(f"{key_path}: {kind} '{spec.name}' must call `super().__init__()` first.") from None
    if missing := [attribute for attribute in REQUIRED[kind] if not hasattr(built, attribute)]:
        attributes = ", ".join(f"`{attribute}`" for attribute in missing)
        raise ConfigError(
            f"{key_path}: {kind} '{spec.name}' sets no {attributes}; densevit/models/{kind}s/base.py says what it is."
        )
    return built


def prefix_error(problem: str, key_path: str) -> str:
    """Return an error of a component, which begins with its kind, with its place in the config instead."""
    name = next((name for name in REQUIRED if problem.startswith((f"{name}.", f"{name}:"))), None)
    return f"{key_path}: {problem}" if name is None else key_path + problem.removeprefix(name)


def build_card(model: DenseModel, spec: ModelSpec, palette: Palette = ()) -> ModelCard:
    """Return what the network says of itself. `palette`: colours of classes; for heads that tell just these apart."""
    return ModelCard(
        outputs=outputs_of(model, palette),
        multiple=model.encoder.patch_size,
        resize=spec.resize,
        mean=to_float_tuple(model.encoder.mean),
        std=to_float_tuple(model.encoder.std),
        out_indices=model.encoder.out_indices,
        model=spec.spec(),
    )


def outputs_of(model: DenseModel, palette: Palette = ()) -> dict[str, HeadSpec]:
    """Return what each head gives, and what it gives further."""
    heads: Mapping[str, Any] = dict(model.heads.items())
    outputs = {name: _with_palette(head.output, palette) for name, head in heads.items()}
    for name, head in heads.items():
        outputs |= {f"{name}/{key}": spec for key, spec in head.further.items()}
    return outputs


def to_float_tuple(values: Tensor) -> tuple[float, ...]:
    """Return 0.485, where `tolist` would give the float32's exact value: 0.48500001430511475."""
    return tuple(float(str(value)) for value in values.cpu().numpy().flatten())


def _with_palette(output: HeadSpec, palette: Palette) -> HeadSpec:
    return replace(output, palette=palette) if palette and len(palette) == len(output.classes) else output


def as_component(key_path: str, value: Any) -> ComponentSpec[Any]:
    """Return the object as a component of a plan; building it returns the object. `key_path`: its key in the config,
    one of `densevit.config.parser.PLACES`. Raises ConfigError, DataError if it is of no kind that may stand there."""
    with located(key_path):
        built = as_encoder(value) if key_path == "model.encoder" else as_dataset(value)
    return ComponentSpec(OBJECT, lambda **_: built, {"name": describe_object(value)})
