"""Checkpoints, ours and published ones, opened and rebuilt as models."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from densevit.builder.model import ModelPlan, build_card, build_model
from densevit.config import schema
from densevit.data.labels.class_lists import shipped
from densevit.errors import CheckpointError, ConfigError, DensevitError
from densevit.model_card import ModelCard, PreprocessConfig
from densevit.models.decoders.base import DECODERS
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import ENCODERS
from densevit.models.heads.base import HEADS
from densevit.models.skip_init import SkipInit
from densevit.registry import ComponentSpec
from densevit.utils.network import is_address
from densevit.weights import backbone_and_head, checkpoint, detect, hub
from densevit.weights.describe import aside, describe_found, describe_ours
from densevit.weights.external import ConvertedCheckpoint, RawCheckpoint
from densevit.weights.families.base import FAMILIES, Family
from densevit.weights.finetune import InitSpec, PartialLoader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedCheckpoint:
    """A checkpoint in our terms, not built yet.

    Attributes:
        card: of a checkpoint of ours; published ones have none.
        path: what errors call it.
    """

    published: ConvertedCheckpoint
    card: ModelCard | None
    path: str


def open_checkpoint(path: str | Path, family: str | None = None, **options: Any) -> OpenedCheckpoint:
    """Reads a checkpoint, ours or published.

    Args:
        path: of ours a run's folder (its best), a step folder, or a `model.safetensors`; of others a file, or a folder
            with `config.json`; `hf:owner/name` for one on the hub.
        family: whose it is; None takes ours for ours, and tells others by their keys, or by their name on the hub.
        options: of the family: what its files cannot say, as `max_depth`.

    Raises:
        CheckpointError: missing, damaged, or of several possible families.
        ConfigError: no such family, or no such option of it.
    """
    place = hub.fetch(str(path)) if is_address(path) else Path(path)
    if family is None and not options and is_ours(place):
        tensors, unused, card = checkpoint.read_whole(place)
        published = ConvertedCheckpoint(
            model=card.model,
            tensors=tensors,
            spare=unused,
            resize=card.resize,
            multiple=card.multiple,
            source=card.source,
            licence=card.licence,
            trained_on=card.trained_on,
        )
        return OpenedCheckpoint(published, card, str(path))
    known = hub.known(str(path)) if is_address(path) and family is None else None
    found = detect.find(place)
    if found.within:
        log.warning("%s: its model is under '%s'%s.", path, found.within, aside(found))
    name = family or (known.family if known else detect.detect(found))
    chosen = {"type": name, **(known.options if known else {}), **options}
    return OpenedCheckpoint(read_as(FAMILIES.check(chosen, "family"), found), None, str(path))


def read_as(family: ComponentSpec[Family], found: RawCheckpoint) -> ConvertedCheckpoint:
    """A stranger's file in our terms; what is odd in it is the file's fault.

    Raises:
        CheckpointError: it is damaged, or of another family.
    """
    try:
        return family.build().read(found)
    except DensevitError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{found.path}: cannot be read as {family.name}; it lacks something, or has other shapes or values than "
            f"that family ({type(error).__name__}: {hub.first_line(error)})."
        ) from error


def describe(path: str | Path) -> dict[str, Any]:
    """What a checkpoint is, without building it; plain values.

    Raises:
        CheckpointError: missing, or damaged.
    """
    place = hub.fetch(str(path)) if is_address(path) else Path(path)
    return describe_ours(place) if is_ours(place) else describe_found(detect.find(place))


def restore(path: str | Path, family: str | None = None, **options: Any) -> tuple[DenseModel, ModelCard]:
    """Model and card of a checkpoint; see `open_checkpoint`.

    Raises:
        CheckpointError: also of parts that are not registered here, or that do not fit their family's architecture;
            with counts and the first five names.
    """
    return build_and_load(open_checkpoint(path, family, **options))


def build_and_load(opened: OpenedCheckpoint) -> tuple[DenseModel, ModelCard]:
    """Builds an opened checkpoint and loads it strictly."""
    published = opened.published
    table = shipped(published.classes) if published.classes else None
    plan = spec_to_plan(published.model, opened.path).for_classes(table.names if table else ())
    model = build_uninitialized(plan, published.resize)
    # Published files leave out the normalisation, which is among the encoder's options.
    own = {name: tensor for name, tensor in model.state_dict().items() if name in ("encoder.mean", "encoder.std")}
    checkpoint.load_into(model, {**own, **published.tensors}, opened.path)
    if opened.card is not None:
        return model, opened.card
    palette = table.palette if table else ()
    card = build_card(model, plan, published.resize, published.trained_on, palette)
    multiple = published.multiple or card.multiple
    return model, replace(card, multiple=multiple, source=published.source, licence=published.licence)


class InitCheckpoint:
    """A run's `init`: read once, when the config is checked, and held until a model takes its weights."""

    def __init__(self, model: schema.Model) -> None:
        """
        Raises:
            CheckpointError, ConfigError: see `open_checkpoint`.
        """
        self.model = model
        self.held: OpenedCheckpoint | None = open_init(model)
        self.start = InitSpec.of(self.held.published)

    def hand_over(self) -> OpenedCheckpoint:
        """The weights. They are let go here, so that training does not hold them twice; a second model reads anew."""
        opened, self.held = self.held, None
        return opened or open_init(self.model)


def open_init(model: schema.Model) -> OpenedCheckpoint:
    assert model.init_from is not None
    family = model.init_family
    options = {"family": family} if isinstance(family, str) else {**(family or {})}
    if "type" in options:
        options["family"] = options.pop("type")
    return open_checkpoint(model.init_from, **options)


def start_from(model: DenseModel, plan: ModelPlan, source: InitCheckpoint) -> str:
    """Loads what fits of a run's `init` into its new model; says what was taken and what is new.

    Raises:
        CheckpointError: see `Taking`.
    """
    opened = source.hand_over()
    return f"model.init_from: {PartialLoader(model, plan.spec(), opened.published, opened.path).take()}"


def is_ours(path: str | Path) -> bool:
    """Whether densevit wrote it; a path that holds nothing counts, so that the message is about checkpoints."""
    path = Path(path)
    if path.is_dir():
        held = [path / name for name in detect.IN_FOLDER if (path / name).is_file()]
        if not held:
            return not backbone_and_head.in_folder(path)
        return (path / checkpoint.MANIFEST).exists() or checkpoint.has_card(held[0])
    return not path.exists() or checkpoint.has_card(path)


def build_uninitialized(plan: ModelPlan, resize: PreprocessConfig | None = None) -> DenseModel:
    """The model that a card describes, its weights still anything; all of them are in the file."""
    options = {key: value for key, value in plan.encoder.options.items() if key not in ("pretrained", "weights")}
    with SkipInit():
        return build_model(replace(plan, encoder=replace(plan.encoder, options=options)), resize)


def spec_to_plan(spec: Mapping[str, Any], source: str | Path) -> ModelPlan:
    try:
        return ModelPlan(
            ENCODERS.check(spec["encoder"], "model.encoder"),
            DECODERS.check(spec["decoder"], "model.decoder"),
            {name: HEADS.check(head, f"model.heads.{name}") for name, head in spec["heads"].items()},
            {name: DECODERS.check(part, f"model.decoders.{name}") for name, part in spec.get("decoders", {}).items()},
        )
    except ConfigError as error:
        raise CheckpointError(f"{source}: its card names parts unknown here (a plugin's?): {error}") from None
