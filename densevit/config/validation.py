"""Checks the components that a config names: types, options, files. Needs no torch: a typo is reported at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeVar

from densevit.config.json_schema import load_shipped_schema
from densevit.config.parser import OBJECT, Draft
from densevit.config.schema import Data, Model, Task, TrainConfig
from densevit.errors import ConfigError
from densevit.preprocess_config import PreprocessConfig
from densevit.registry import ComponentConfig, ComponentSpec, Registries, Registry, did_you_mean
from densevit.utils.network import is_address

T = TypeVar("T")

CameraMode = Literal["none", "canonical"]
MIXTURE = "mix"  # the data set whose options name other data sets


@dataclass(frozen=True)
class ModelSpec:
    """The checked components of a network, and how it wants its images."""

    encoder: ComponentSpec[Any]
    decoder: ComponentSpec[Any]  # of every head without one of its own
    heads: Mapping[str, ComponentSpec[Any]]
    decoders: Mapping[str, ComponentSpec[Any]] = field(default_factory=dict)  # head -> its own decoder
    resize: PreprocessConfig = field(default_factory=PreprocessConfig)
    camera: CameraMode = "none"
    canonical_focal: float | None = None  # pixels of the network's input; with camera `canonical`
    conditioning: Mapping[str, ComponentSpec[Any]] = field(default_factory=dict)  # in the order of their application

    @property
    def clip_frames(self) -> int:
        """Consecutive frames of a video that the network sees together; 1 for a model of images."""
        return max((component.options.get("frames") or 1 for component in self.conditioning.values()), default=1)

    def spec(self) -> dict[str, Any]:
        """Return the components as the `model` section of a config, every option spelled out."""
        conditioning = {name: options_of(component) for name, component in self.conditioning.items()}
        return {
            "encoder": self.encoder.spec(),
            "decoder": self.decoder.spec(),
            "heads": {name: head.spec() for name, head in self.heads.items()},
            "decoders": {name: decoder.spec() for name, decoder in self.decoders.items()},
            **({"camera": self.camera} if self.camera != "none" else {}),
            **({"canonical_focal": self.canonical_focal} if self.camera == "canonical" else {}),
            **({"conditioning": conditioning} if conditioning else {}),
        }

    def for_classes(self, names: Sequence[str], things: Sequence[int] = ()) -> "ModelSpec":
        """Return the model with these names in heads and decoders whose config leaves the classes open, or gives only
        their number, and with these things in heads whose config leaves those open."""
        classes = tuple(names), tuple(things)
        return replace(
            self,
            decoder=_with_classes(self.decoder, *classes),
            heads={key: _with_classes(head, *classes) for key, head in self.heads.items()},
            decoders={key: _with_classes(decoder, *classes) for key, decoder in self.decoders.items()},
        )


def options_of(spec: ComponentSpec[Any]) -> ComponentConfig:
    """Return the options of a component whose key in the config is its name."""
    return {name: value for name, value in spec.spec().items() if name != "type"}


def _with_classes(spec: ComponentSpec[T], names: tuple[str, ...], things: tuple[int, ...]) -> ComponentSpec[T]:
    options = dict(spec.options)
    if names and "classes" in options and options["classes"] in (None, len(names)):
        options["classes"] = names
    if things and "things" in options and options["things"] is None:
        options["things"] = things
    return replace(spec, options=options)


@dataclass(frozen=True)
class TaskSpec:
    """A task with its checked losses, each with its weight."""

    task: ComponentSpec[Any]
    weight: float
    losses: Sequence[tuple[float, ComponentSpec[Any]]]
    protocol: str
    sources: Sequence[str] = ()  # of a mixture; empty: all


def _unbuildable() -> Any:
    raise AssertionError("a config with errors is reported, not built")


INVALID: ComponentSpec[Any] = ComponentSpec("", _unbuildable, {})


class ComponentChecker:
    """Checks components against registries and collects every error, so that a user sees all of them at once."""

    def __init__(
        self,
        registries: Registries,
        problems: Sequence[str] = (),
        objects: Mapping[str, ComponentSpec[Any]] | None = None,
    ) -> None:
        """
        Args:
            objects: by key, what stands for a component without being registered.
        """
        self.registries = registries
        self.problems = list(problems)
        self.objects = objects or {}

    def raise_problems(self, locate: Callable[[str], str]) -> None:
        """Raise ConfigError: every error, with file and line; nothing where there is none."""
        if self.problems:
            raise ConfigError(*map(locate, self.problems))

    def heads(self, model: Model) -> dict[str, ComponentSpec[Any]]:
        return {
            name: self._check(self.registries.heads, spec, f"model.heads.{name}") for name, spec in model.heads.items()
        }

    def decoders(self, model: Model) -> dict[str, ComponentSpec[Any]]:
        """Return the decoders of single heads."""
        registry = self.registries.decoders
        return {name: self._check(registry, spec, f"model.decoders.{name}") for name, spec in model.decoders.items()}

    def conditioning(self, configs: Mapping[str, ComponentConfig | None]) -> dict[str, ComponentSpec[Any]]:
        """Return the conditionings by name, in their order; those that are null are left out."""
        return {
            name: self._check(self.registries.conditionings, {**options, "type": name}, f"model.conditioning.{name}")
            for name, options in configs.items()
            if options is not None
        }

    def resolved_conditioning(
        self, run: TrainConfig, stored: Mapping[str, ComponentConfig]
    ) -> dict[str, ComponentSpec[Any]]:
        """Return the conditionings of the config, and those of the checkpoint that the model starts from."""
        configs: dict[str, ComponentConfig | None] = {}
        for name, options in {**stored, **run.model.conditioning}.items():
            component: Any = self.registries.conditionings.components.get(name)
            configs[name] = options
            if component is not None and options is not None:
                in_config = name in run.model.conditioning
                subset = options if in_config else {k: v for k, v in options.items() if k not in component.run_options}
                configs[name] = component.resolved(subset, run)
                self.problems += [f"model.conditioning.{name}: {problem}" for problem in component.incompatible(run)]
        return self.conditioning(configs)

    def encoder(self, model: Model, stored: ComponentConfig | None = None) -> ComponentSpec[Any]:
        """Return `stored`: that of the checkpoint of `model.init_from`, updated with the config; None where it was not
        read, so that what it would fill in is unknown."""
        encoder = self._check_stored(self.registries.encoders, "encoder", model, stored)
        self._check_file(encoder.options.get("weights"), "model.encoder.weights")
        return encoder

    def decoder(self, model: Model, stored: ComponentConfig | None = None) -> ComponentSpec[Any]:
        """Return the decoder of every head without one of its own; `stored` as for `encoder`."""
        return self._check_stored(self.registries.decoders, "decoder", model, stored)

    def init_file(self, model: Model) -> None:
        if model.init_from is not None and not is_address(model.init_from):
            self._check_file(Path(model.init_from), "model.init_from")

    def tasks(self, tasks: Mapping[str, Task]) -> dict[str, TaskSpec]:
        return {name: self._task(task, f"tasks.{name}") for name, task in tasks.items()}

    def transforms(self, data: Data) -> list[ComponentSpec[Any]]:
        registry = self.registries.transforms
        return [self._check(registry, spec, f"data.transforms.{i}") for i, spec in enumerate(data.transforms)]

    def datasets(self, data: Data) -> dict[str, ComponentSpec[Any]]:
        """Return `train`, and `val` and `probe` where the config has them."""
        configs = {"train": data.train, "val": data.val, "probe": data.probe}
        return {name: self._dataset(spec, f"data.{name}") for name, spec in configs.items() if spec}

    def _dataset(self, spec: ComponentConfig, key_path: str) -> ComponentSpec[Any]:
        checked = self._check(self.registries.datasets, spec, key_path)
        for i, source in enumerate(checked.options.get("sources", ()) if checked.name == MIXTURE else ()):
            self._dataset(source.data, f"{key_path}.sources.{i}.data")
            for j, transform in enumerate(source.transforms):
                self._check(self.registries.transforms, transform, f"{key_path}.sources.{i}.transforms.{j}")
            for j, transform in enumerate(source.consistency.strong if source.consistency else ()):
                strong_path = f"{key_path}.sources.{i}.consistency.strong.{j}"
                self._check(self.registries.transforms, transform, strong_path)
            if source.protocol is not None:
                self._check_protocol(source.protocol, f"{key_path}.sources.{i}.protocol")
        return checked

    def _check_protocol(self, name: str, key_path: str) -> None:
        if name not in self.registries.protocols:
            hint = did_you_mean(name, self.registries.protocols)
            self.problems.append(f"{key_path}: no protocol '{name}'.{hint}")

    def objective(self, run: TrainConfig) -> ComponentSpec[Any]:
        checked = self._check(self.registries.objectives, {"type": "supervised", **run.objective}, "objective")
        if aligned := checked.options.get("align_features"):
            key_path = "objective.align_features.encoder"
            encoder = self._check(self.registries.encoders, aligned.encoder, key_path)
            self._check_file(encoder.options.get("weights"), f"{key_path}.weights")
        return checked

    def _check(
        self, registry: Registry[T], spec: ComponentConfig, key_path: str, *, partial: bool = False
    ) -> ComponentSpec[T]:
        if spec.get("type") == OBJECT:
            return self._object(spec, key_path)
        try:
            return registry.check(spec, key_path, partial=partial)
        except ConfigError as error:
            self.problems += error.problems
            return INVALID

    def _object(self, spec: ComponentConfig, key_path: str) -> ComponentSpec[Any]:
        if key_path not in self.objects:
            self.problems.append(
                f"{key_path}: stands for a Python object, {spec.get('name')}, which no file holds; give it again in "
                "densevit.train, or name a registered component."
            )
        elif options := sorted(spec.keys() - {"type", "name"}):
            self.problems.append(f"{key_path}.{options[0]}: an object takes no options.")
        return self.objects.get(key_path, INVALID)

    def _check_stored(
        self, registry: Registry[T], name: str, model: Model, stored: ComponentConfig | None
    ) -> ComponentSpec[T]:
        unread = stored is None and model.init_from is not None
        spec = getattr(model, name) if stored is None else stored
        if spec is None or (unread and "type" not in spec):
            return INVALID
        return self._check(registry, spec, f"model.{name}", partial=unread)

    def _check_file(self, path: Path | None, key_path: str) -> None:
        if path is not None and not path.exists():
            self.problems.append(f"{key_path}: no such file, got '{path}'.")

    def _task(self, task: Task, key_path: str) -> TaskSpec:
        checked = self._check(self.registries.tasks, {"type": task.type}, key_path)
        self._check_protocol(task.protocol, f"{key_path}.protocol")
        losses = []
        if checked is not INVALID:
            kind: Any = checked.component
            configs = enumerate(task.losses or kind.default_losses)
            losses = [self._loss(kind.loss_registry, loss, f"{key_path}.losses.{i}") for i, loss in configs]
        return TaskSpec(checked, task.weight, losses, task.protocol, task.sources)

    def _loss(self, registry: Registry[T], spec: ComponentConfig, key_path: str) -> tuple[float, ComponentSpec[T]]:
        options = dict(spec)
        weight = options.pop("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < inf:
            self.problems.append(f"{key_path}.weight: a number over 0, got {weight!r}.")
            weight = 1.0
        return float(weight), self._check(registry, options, key_path)


def training_sources(data: Data) -> dict[str, ComponentConfig]:
    """Map the key path of each source of a mixture to its options; what is no source is a problem of its own."""
    sources = data.train.get("sources")
    listed = enumerate(sources if isinstance(sources, list) else ())
    return {f"data.train.sources.{i}": source for i, source in listed if isinstance(source, dict)}


def training_transforms(data: Data) -> Iterator[tuple[str, ComponentConfig]]:
    """Yield the key path and the options of each transform of a training, those of its sources, too."""
    own = {f"{key_path}.transforms": source.get("transforms") for key_path, source in training_sources(data).items()}
    for key_path, steps in {"data.transforms": data.transforms, **own}.items():
        for i, step in enumerate(steps if isinstance(steps, list | tuple) else ()):
            if isinstance(step, dict):
                yield f"{key_path}.{i}", step


def check(draft: Draft) -> None:
    """Check names, options and types against the shipped signatures; what only the components can tell comes later.
    Raises ConfigError: every error at once, with file and line."""
    run = draft.run
    checker = ComponentChecker(load_shipped_schema(), draft.problems)
    if not run.plugins:  # whose components are not known yet
        checker.init_file(run.model)
        checker.heads(run.model)
        checker.decoders(run.model)
        checker.conditioning(run.model.conditioning)
        checker.tasks(run.tasks)
        checker.transforms(run.data)
        checker.datasets(run.data)
        checker.objective(run)
        checker.encoder(run.model)
        checker.decoder(run.model)
    checker.raise_problems(draft.locate)
