"""Models from specs and from checkpoints: ours, and the field's. b images, h x w pixels."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

import densevit.models
import densevit.weights.families  # noqa: F401 (both imports register parts)
from densevit import config
from densevit.card import ModelCard, OutputSpec, Palette, ResizeRule
from densevit.data.class_files import shipped
from densevit.errors import CheckpointError, ConfigError, DensevitError
from densevit.models.blank import Blank
from densevit.models.decoder import DECODERS, Decoder
from densevit.models.dense import DenseModel
from densevit.models.encoder import ENCODERS, Encoder
from densevit.models.heads import HEADS, Head
from densevit.network import is_address
from densevit.registry import Choice
from densevit.weights import checkpoint, detect, hub, two_files
from densevit.weights.description import aside, describe_found, describe_ours
from densevit.weights.family import FAMILIES, Family
from densevit.weights.files import read_tensors
from densevit.weights.published import Found, Published
from densevit.weights.start import Start, Taking

log = logging.getLogger(__name__)
T = TypeVar("T")
ITSELF = ("encoder", "decoder", "head")  # how parts call themselves in their errors


@dataclass(frozen=True)
class ModelPlan:
    encoder: Choice[Encoder]
    decoder: Choice[Decoder]
    heads: Mapping[str, Choice[Head]]
    decoders: Mapping[str, Choice[Decoder]] = field(default_factory=dict)
    start: Start | None = None  # the checkpoint that training starts from
    source: "Source | None" = None  # its weights

    def spec(self) -> dict[str, Any]:
        return {
            "encoder": self.encoder.spec(),
            "decoder": self.decoder.spec(),
            "heads": {name: head.spec() for name, head in self.heads.items()},
            "decoders": {name: decoder.spec() for name, decoder in self.decoders.items()},
        }

    def resize_by(self, rule: ResizeRule | None) -> ResizeRule:
        """How images meet the network: as the config says, else as in the checkpoint, else padded only."""
        return rule or (self.start.resize if self.start else ResizeRule())

    def for_classes(self, names: Sequence[str]) -> "ModelPlan":
        """Heads and decoders that leave their classes to the data, or say only how many, take these names."""
        return replace(
            self,
            decoder=_named(self.decoder, tuple(names)),
            heads={key: _named(head, tuple(names)) for key, head in self.heads.items()},
            decoders={key: _named(decoder, tuple(names)) for key, decoder in self.decoders.items()},
        )


def _named(part: Choice[T], names: tuple[str, ...]) -> Choice[T]:
    if names and "classes" in part.options and part.options["classes"] in (None, len(names)):
        return replace(part, options={**part.options, "classes": names})
    return part


def build_model(plan: ModelPlan, resize: ResizeRule | None = None) -> DenseModel:
    """The network, with the encoder's weights where the config names a file of them."""
    encoder = built(plan.encoder, "model.encoder")
    weights: Path | None = plan.encoder.options.get("weights")
    if weights is not None:
        encoder.load_weights(read_tensors(weights), str(weights))
    given = (encoder.features, encoder.prefix_tokens)
    decoder = built(plan.decoder, "model.decoder", *given)
    own = {name: built(choice, f"model.decoders.{name}", *given) for name, choice in plan.decoders.items()}
    heads = {
        name: built(head, f"model.heads.{name}", own.get(name, decoder).output.channels)
        for name, head in plan.heads.items()
    }
    return DenseModel(encoder, decoder, heads, own, stretch=plan.resize_by(resize).padding == "stretch")


def built(part: Choice[T], where: str, *given: Any) -> T:
    """The part; what it refuses is told with the place of the config that it stands at."""
    try:
        return part.build(*given)
    except ConfigError as error:
        raise ConfigError(*(placed(problem, where) for problem in error.problems)) from None


def placed(problem: str, where: str) -> str:
    name = next((name for name in ITSELF if problem.startswith((f"{name}.", f"{name}:"))), None)
    return f"{where}: {problem}" if name is None else where + problem.removeprefix(name)


def build_card(
    model: DenseModel, plan: ModelPlan, resize: ResizeRule | None = None, trained_on: str = "", palette: Palette = ()
) -> ModelCard:
    heads: Mapping[str, Any] = dict(model.heads.items())
    start, rule = plan.start, plan.resize_by(resize)
    return ModelCard(
        outputs={name: coloured(head.output, palette) for name, head in heads.items()},
        multiple=start.multiple if start and start.multiple and start.resize == rule else model.encoder.patch_size,
        resize=rule,
        mean=decimals(model.encoder.mean),
        std=decimals(model.encoder.std),
        taps=model.encoder.taps,
        model=plan.spec(),
        trained_on=trained_on,
        source=f"densevit, from {start.source}" if start else "densevit",
        licence=start.licence if start else "unknown",
    )


def decimals(values: Tensor) -> tuple[float, ...]:
    """0.485, where `tolist` would say what its float32 is: 0.48500001430511475."""
    return tuple(float(str(value)) for value in values.cpu().numpy().flatten())


def coloured(output: OutputSpec, palette: Palette) -> OutputSpec:
    """What a head gives, with the colours of the data's classes where it tells just these apart."""
    return replace(output, palette=palette) if palette and len(palette) == len(output.classes) else output


@dataclass(frozen=True)
class Opened:
    """A checkpoint in our terms, not built yet.

    Attributes:
        card: of a checkpoint of ours; published ones have none.
        path: what errors call it.
    """

    published: Published
    card: ModelCard | None
    path: str


def open_checkpoint(path: str | Path, family: str | None = None, **options: Any) -> Opened:
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
        published = Published(
            model=card.model,
            tensors=tensors,
            spare=unused,
            resize=card.resize,
            multiple=card.multiple,
            source=card.source,
            licence=card.licence,
            trained_on=card.trained_on,
        )
        return Opened(published, card, str(path))
    known = hub.known(str(path)) if is_address(path) and family is None else None
    found = detect.find(place)
    if found.within:
        log.warning("%s: its model is under '%s'%s.", path, found.within, aside(found))
    name = family or (known.family if known else detect.detect(found))
    chosen = {"type": name, **(known.options if known else {}), **options}
    return Opened(read_as(FAMILIES.check(chosen, "family"), found), None, str(path))


def read_as(family: Choice[Family], found: Found) -> Published:
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
    return assemble(open_checkpoint(path, family, **options))


def assemble(opened: Opened) -> tuple[DenseModel, ModelCard]:
    """Builds an opened checkpoint and loads it strictly."""
    published = opened.published
    table = shipped(published.classes) if published.classes else None
    plan = plan_of(published.model, opened.path).for_classes(table.names if table else ())
    model = rebuild(plan, published.resize)
    # Published files leave out the normalisation, which is among the encoder's options.
    own = {name: tensor for name, tensor in model.state_dict().items() if name in ("encoder.mean", "encoder.std")}
    checkpoint.load_into(model, {**own, **published.tensors}, opened.path)
    if opened.card is not None:
        return model, opened.card
    palette = table.palette if table else ()
    card = build_card(model, plan, published.resize, published.trained_on, palette)
    multiple = published.multiple or card.multiple
    return model, replace(card, multiple=multiple, source=published.source, licence=published.licence)


class Source:
    """A run's `init`: read once, when the config is checked, and held until a model takes its weights."""

    def __init__(self, model: config.Model) -> None:
        """
        Raises:
            CheckpointError, ConfigError: see `open_checkpoint`.
        """
        self.model = model
        self.held: Opened | None = open_init(model)
        self.start = Start.of(self.held.published)

    def hand_over(self) -> Opened:
        """The weights. They are let go here, so that training does not hold them twice; a second model reads anew."""
        opened, self.held = self.held, None
        return opened or open_init(self.model)


def open_init(model: config.Model) -> Opened:
    assert model.init is not None
    family = model.init_family
    options = {"family": family} if isinstance(family, str) else {**(family or {})}
    if "type" in options:
        options["family"] = options.pop("type")
    return open_checkpoint(model.init, **options)


def start_from(model: DenseModel, plan: ModelPlan, source: Source) -> str:
    """Loads what fits of a run's `init` into its new model; says what was taken and what is new.

    Raises:
        CheckpointError: see `Taking`.
    """
    opened = source.hand_over()
    return f"model.init: {Taking(model, plan.spec(), opened.published, opened.path).take()}"


def is_ours(path: str | Path) -> bool:
    """Whether densevit wrote it; a path that holds nothing counts, so that the message is about checkpoints."""
    path = Path(path)
    if path.is_dir():
        held = [path / name for name in detect.IN_FOLDER if (path / name).is_file()]
        if not held:
            return not two_files.in_folder(path)
        return (path / checkpoint.MANIFEST).exists() or checkpoint.has_card(held[0])
    return not path.exists() or checkpoint.has_card(path)


def rebuild(plan: ModelPlan, resize: ResizeRule | None = None) -> DenseModel:
    """The model that a card describes, its weights still anything; all of them are in the file."""
    options = {key: value for key, value in plan.encoder.options.items() if key not in ("pretrained", "weights")}
    with Blank():
        return build_model(replace(plan, encoder=replace(plan.encoder, options=options)), resize)


def plan_of(spec: Mapping[str, Any], source: str | Path) -> ModelPlan:
    try:
        return ModelPlan(
            ENCODERS.check(spec["encoder"], "model.encoder"),
            DECODERS.check(spec["decoder"], "model.decoder"),
            {name: HEADS.check(head, f"model.heads.{name}") for name, head in spec["heads"].items()},
            {name: DECODERS.check(part, f"model.decoders.{name}") for name, part in spec.get("decoders", {}).items()},
        )
    except ConfigError as error:
        raise CheckpointError(f"{source}: its card names parts unknown here (a plugin's?): {error}") from None
