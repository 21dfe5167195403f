"""Opens checkpoints, densevit's own and published ones, and rebuilds them as models."""

import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from densevit.builder.adapter import HINT, complete
from densevit.builder.model import as_component, build_card, build_model, outputs_of, to_float_tuple
from densevit.config import plugins, schema
from densevit.config.parser import OBJECT
from densevit.config.validation import ModelSpec
from densevit.data.labels.class_lists import published_table
from densevit.errors import CheckpointError, ConfigError, DensevitError, first_line
from densevit.model_card import HeadSpec, ModelCard
from densevit.models.conditioning.base import CONDITIONINGS
from densevit.models.decoders.base import DECODERS
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import ENCODERS
from densevit.models.heads.base import HEADS
from densevit.models.vit.init_weights import SkipInit
from densevit.preprocess_config import PreprocessConfig
from densevit.registry import ComponentSpec, Registry
from densevit.utils.network import is_address
from densevit.utils.state_dict import check_finite, load_strict
from densevit.weights import checkpoint, detect, hub, readers
from densevit.weights.describe import describe_densevit, describe_third_party, ignored_tensors
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, RawCheckpoint
from densevit.weights.finetune import NORMALISATION, PartialLoader
from densevit.weights.lora import fitted_checkpoint, is_update, lora_of, merged_checkpoint

log = logging.getLogger(__name__)

# Options that say where an encoder's first weights came from; a checkpoint holds them itself.
PRETRAINED_OPTIONS = ("pretrained", "weights")


def restore(
    path: str | Path, family: str | None = None, encoder: nn.Module | None = None, /, **options: Any
) -> tuple[DenseModel, ModelCard]:
    """Return the model and card of a checkpoint; see `open_checkpoint`. Raises CheckpointError: also of components that
    are not registered here, or weights that do not fit them; with counts and the first five names.

    Args:
        encoder: of a model that was trained with an object as its encoder; a copy of it takes the weights.
        options: of the family, which may have an option `encoder` of its own.
    """
    return build_and_load(open_checkpoint(path, family, **options), encoder)


def open_checkpoint(path: str | Path, family: str | None = None, **options: Any) -> ConvertedCheckpoint:
    """Read a checkpoint, densevit's own or a published one; nothing is built yet. Raises CheckpointError: missing,
    damaged, or of several possible families. Raises ConfigError: no such family, or no such option of it.

    Args:
        path: of densevit a run's folder (its best), a step folder, or a `model.safetensors`; of others a file, or a
            folder with `config.json`; `hf:owner/name` for one on the hub.
        family: of a published checkpoint; None: densevit's are known by their card, others by their keys, or by their
            name on the hub.
        options: of the family: what its files cannot say, as `max_depth`; of an adapter `base`, where the weights of
            its encoder are no longer where they were.
    """
    path = str(path)
    local = hub.fetch(path) if is_address(path) else Path(path)
    ours = is_ours(local)
    if ours and family is None and options.keys() <= {"base"}:
        tensors, unused, card = checkpoint.read_whole(local)
        if not card.model:
            raise CheckpointError(f"{path}: its card names no model.")
        if _unregistered(card.model):
            plugins.load()
        opened = ConvertedCheckpoint(
            model=card.model,
            tensors=tensors,
            unused=unused,
            resize=card.resize,
            multiple=card.multiple,
            source=card.source,
            licence=card.licence,
            trained_on=card.trained_on,
            path=path,
            card=card,
        )
        return with_encoder(opened, **options) if card.base else opened
    if ours and local.exists():
        raise CheckpointError(f"{path}: holds no published weights, which alone have a family and options of it.")
    preset = hub.read_as_of(path) if is_address(path) and family is None else None
    raw = detect.read_raw(local)
    if raw.within:
        log.warning("%s: its model is under '%s'%s.", path, raw.within, ignored_tensors(raw))
    name = family or (preset.family if preset else detect.detect(raw))
    spec = {"type": name, **(preset.options if preset else {}), **options}
    key_path = "family_options" if name in FAMILIES.components else "family"
    return replace(read_as(FAMILIES.check(spec, key_path), raw), path=path)


def with_encoder(adapter: ConvertedCheckpoint, base: str | Path | None = None) -> ConvertedCheckpoint:
    """Return an adapter with the weights of its encoder, which its card names unless `base` does. Raises
    CheckpointError if they are missing, or not those that it was trained on."""
    assert adapter.card is not None
    recorded = adapter.card.base
    if "init_from" not in recorded:
        weights = base or recorded.get("weights")
        return complete(adapter, None, Path(weights) if weights else None)
    family = recorded.get("init_family") or {}
    options = {"type": family} if isinstance(family, str) else dict(family)
    try:
        initial = open_checkpoint(base or recorded["init_from"], options.pop("type", None), **options)
    except CheckpointError as error:
        raise CheckpointError(f"{adapter.path}: the base encoder was not found ({error}) {HINT}") from None
    return complete(adapter, fitted_checkpoint(initial, lora_of(adapter.model), {}), None)


def read_as(family: ComponentSpec[Family], raw: RawCheckpoint) -> ConvertedCheckpoint:
    """Return a published file in densevit's terms; whatever goes wrong is an error of the file. Raises CheckpointError
    if it is damaged, or of another family."""
    try:
        return family.build().read(raw)
    except DensevitError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{raw.path}: cannot be read as {family.name}; it lacks something, or has other shapes or values than "
            f"that family ({type(error).__name__}: {first_line(error)})."
        ) from error


def describe(path: str | Path) -> dict[str, Any]:
    """Return what a checkpoint is, without building it; plain values. Raises CheckpointError: missing, or damaged."""
    local = hub.fetch(str(path)) if is_address(path) else Path(path)
    return describe_densevit(local) if is_ours(local) else describe_third_party(detect.read_raw(local))


def is_ours(path: str | Path) -> bool:
    """Return whether densevit wrote it; a path that holds nothing counts, so that the message is about checkpoints."""
    path = Path(path)
    if path.is_dir():
        held = [path / name for name in detect.IN_FOLDER if (path / name).is_file()]
        if not held:
            return not readers.pair_in_folder(path)
        return (path / checkpoint.MANIFEST).exists() or checkpoint.has_card(held[0])
    return not path.exists() or checkpoint.has_card(path)


def build_and_load(opened: ConvertedCheckpoint, encoder: nn.Module | None = None) -> tuple[DenseModel, ModelCard]:
    """Build an opened checkpoint and load it strictly; low-rank updates are merged into the weights. Raises
    CheckpointError: also if a weight is NaN or infinite."""
    check_finite(opened.path, opened.tensors)
    table = published_table(opened.classes) if opened.classes else None
    try:
        opened = merged_checkpoint(opened)
        spec = parse_model(opened.model, opened.path, opened.resize, card=opened.card, encoder=encoder)
        spec = spec if table is None else spec.for_classes(table.names)
        model = build_uninitialized(spec)
    except CheckpointError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        why = first_line(error)
        raise CheckpointError(f"{opened.path}: no model can be built as its card says ({why}).") from error
    # Published files leave out the normalisation, which is among the encoder's options.
    norm = {name: tensor for name, tensor in model.state_dict().items() if name in ("encoder.mean", "encoder.std")}
    load_strict(model, {**norm, **opened.tensors}, opened.path)
    if opened.card is not None:
        said, given = kinds_of(opened.card.outputs), kinds_of(outputs_of(model))
        if not said or said.items() - given.items():
            raise CheckpointError(f"{opened.path}: damaged; its card says {said}, and its model gives {given}.")
        stated_sides, patch = opened.card.multiple, model.encoder.patch_size
        stated_blocks, blocks = opened.card.out_indices, tuple(model.encoder.out_indices)
        if stated_sides % patch or stated_blocks != blocks:
            raise CheckpointError(
                f"{opened.path}: damaged; its card says multiples of {stated_sides} pixels and features of blocks "
                f"{stated_blocks}, and its model has patches of {patch} pixels and blocks {blocks}."
            )
        for name, stated in (("mean", opened.card.mean), ("std", opened.card.std)):
            taken = to_float_tuple(getattr(model.encoder, name))
            if len(taken) != len(stated) or not np.allclose(taken, stated, rtol=1e-2):  # of half precision, it may be
                raise CheckpointError(
                    f"{opened.path}: damaged; its card says that the {name} of images is {stated}, its weights {taken}."
                )
        return model, opened.card
    card = build_card(model, spec, table.palette if table else ())
    return model, replace(
        card,
        trained_on=opened.trained_on,
        source=opened.source,
        licence=opened.licence,
        multiple=opened.multiple or card.multiple,
    )


def kinds_of(outputs: Mapping[str, HeadSpec]) -> dict[str, str]:
    """Map each output to its kind, with the number of its classes, its range, its focal length and its unit."""
    return {
        name: spec.kind
        + (f" of {len(spec.classes)} classes" if spec.classes else "")
        + (f" from {spec.range[0]:g} to {spec.range[1]:g}" if spec.range else "")
        + (f" for a focal length of {spec.focal:g}" if spec.focal else "")
        + (f" in {spec.unit}" if spec.unit else "")
        for name, spec in outputs.items()
    }


def build_uninitialized(spec: ModelSpec) -> DenseModel:
    """Return the network with arbitrary weights, quicker than with random ones; all of them are in the file."""
    options = {key: value for key, value in spec.encoder.options.items() if key not in PRETRAINED_OPTIONS}
    with SkipInit():
        return build_model(replace(spec, encoder=replace(spec.encoder, options=options)))


def parse_model(
    model: Mapping[str, Any],
    source: str | Path,
    resize: PreprocessConfig | None = None,
    card: ModelCard | None = None,
    encoder: nn.Module | None = None,
) -> ModelSpec:
    """Check the components that a checkpoint names. Raises CheckpointError: components that are not registered here (a
    plugin's), or options that they do not have.

    Args:
        model: as the `model` section of a config, with every option.
        source: what errors call the checkpoint.
        encoder: for a model whose encoder is an object; a copy of it is built.
    """
    if unknown := list(_unregistered(model)):
        raise CheckpointError(f"{source}: {', '.join(unknown)}: not registered here. {_plugin_hint(card)}")
    try:
        return ModelSpec(
            encoder_spec(model["encoder"], source, encoder),
            DECODERS.check(model["decoder"], "model.decoder"),
            {name: HEADS.check(head, f"model.heads.{name}") for name, head in model["heads"].items()},
            {name: DECODERS.check(spec, f"model.decoders.{name}") for name, spec in model.get("decoders", {}).items()},
            resize or PreprocessConfig(),
            model.get("camera", "none"),
            model.get("canonical_focal"),
            {
                name: CONDITIONINGS.check({**options, "type": name}, f"model.conditioning.{name}")
                for name, options in model.get("conditioning", {}).items()
            },
        )
    except ConfigError as error:
        raise CheckpointError(f"{source}: its card names options unknown here: {error}") from None


def encoder_spec(spec: Mapping[str, Any], source: str | Path, encoder: nn.Module | None) -> ComponentSpec[Any]:
    """Return the encoder that a checkpoint names, or a copy of the object that it was trained with."""
    if spec["type"] != OBJECT:
        return ENCODERS.check(spec, "model.encoder")
    if encoder is None:
        raise CheckpointError(
            f"{source}: its encoder is a Python object, {spec['name']}, of which the file holds the weights only. "
            "Build it as for the training: densevit.load(path, encoder=module)."
        )
    return as_component("model.encoder", deepcopy(encoder))


def _unregistered(model: Mapping[str, Any]) -> list[str]:
    """Return the components of a model that are not registered here, as `decoder 'mine'`."""
    specs: list[tuple[Registry[Any], Mapping[str, Any]]] = [(ENCODERS, model["encoder"]), (DECODERS, model["decoder"])]
    specs += [(DECODERS, spec) for spec in model.get("decoders", {}).values()]
    specs += [(HEADS, spec) for spec in model["heads"].values()]
    specs += [(CONDITIONINGS, {"type": name}) for name in model.get("conditioning", {})]
    names = [f"{kind.kind} '{spec['type']}'" for kind, spec in specs if spec["type"] not in kind.components]
    return [name for name in dict.fromkeys(names) if name != f"encoder '{OBJECT}'"]


def _plugin_hint(card: ModelCard | None) -> str:
    named = (card.config.get("plugins") or []) if card is not None else []
    trained = f"The model was trained with {', '.join(map(str, named))}. " if named else ""
    return (
        f"{trained}Look at the file that registers it, then name it: --plugins FILE, in Python load(..., "
        f"plugins=[FILE]), or {plugins.TRUSTED}=FILE in the environment."
    )


def without_weights(opened: ConvertedCheckpoint) -> ConvertedCheckpoint:
    """Return what is known of a checkpoint apart from its weights, and from where its encoder's first ones came."""
    encoder = {key: value for key, value in opened.model["encoder"].items() if key not in PRETRAINED_OPTIONS}
    return replace(opened, model={**opened.model, "encoder": encoder}, tensors={}, unused={})


class InitCheckpoint:
    """The checkpoint of `model.init_from`: read once, its weights held until a model has taken them.

    Attributes:
        info: all but the weights.
    """

    def __init__(self, model: schema.Model) -> None:
        """Raise CheckpointError, ConfigError: see `open_checkpoint`."""
        self.model = model
        self.opened: ConvertedCheckpoint | None = self._open()
        self.info = without_weights(self.opened)

    def _open(self) -> ConvertedCheckpoint:
        assert self.model.init_from is not None
        family = self.model.init_family
        options = {"family": family} if isinstance(family, str) else {**(family or {})}
        if "type" in options:
            options["family"] = options.pop("type")
        return open_checkpoint(self.model.init_from, **options)

    def load_into(self, model: DenseModel, spec: ModelSpec) -> str:
        """Load what fits into a new model; say what was taken and what is new.

        The weights are let go, so that training does not hold them twice; a second model reads them anew. Raises
        CheckpointError: see `PartialLoader`.
        """
        opened, self.opened = self.opened or self._open(), None
        updates = {name: tensor for name, tensor in model.state_dict().items() if is_update(name)}
        opened = fitted_checkpoint(opened, lora_of(spec.spec()), updates)
        given = [f"encoder.{key}" for key in NORMALISATION if key in (self.model.encoder or {})]
        opened = replace(opened, tensors={key: x for key, x in opened.tensors.items() if key not in given})
        if opened.classes:
            named = parse_model(opened.model, opened.path).for_classes(published_table(opened.classes).names)
            opened = replace(opened, model=named.spec())
        loaded = f"model.init_from: {PartialLoader(model, spec.spec(), opened, opened.path).load_matching()}"
        calibrations = {name: output.calibration for name, output in opened.card.outputs.items()} if opened.card else {}
        notes = (f"\n{name} starts without its calibration ({c.describe()})." for name, c in calibrations.items() if c)
        return loaded + "".join(notes)
