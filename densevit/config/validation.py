"""What a config chooses, checked by name, option and type; without torch, so that mistakes are told at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from densevit.config import json_schema
from densevit.config.parser import Draft
from densevit.config.schema import Model, Run, Task
from densevit.errors import ConfigError
from densevit.registry import ComponentConfig, ComponentSpec, Parts, Registry, did_you_mean
from densevit.utils.network import is_address

T = TypeVar("T")


class ErrorCollector:
    """Collects what is wrong, so that a user sees all of it at once."""

    def __init__(self, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)

    def check(
        self, registry: Registry[T], spec: ComponentConfig, where: str, *, partial: bool = False
    ) -> ComponentSpec[T]:
        try:
            return registry.check(spec, where, partial=partial)
        except ConfigError as error:
            self.problems += error.problems
            return INVALID_CHOICE

    def check_file(self, path: Path | None, where: str) -> None:
        if path is not None and not path.exists():
            self.problems.append(f"{where}: no such file, got '{path}'.")

    def tell(self, locate: Callable[[str], str]) -> None:
        """
        Raises:
            ConfigError: every fault, with file and line; nothing where there is none.
        """
        if self.problems:
            raise ConfigError(*map(locate, self.problems))


def _unbuilt() -> Any:
    raise AssertionError("a faulty plan is raised, not built")


INVALID_CHOICE: ComponentSpec[Any] = ComponentSpec("", _unbuilt, {})


@dataclass(frozen=True)
class ChosenTask:
    task: ComponentSpec[Any]
    losses: Sequence[tuple[float, ComponentSpec[Any]]]


@dataclass(frozen=True)
class ParsedComponents:
    """A run's parts, but for the encoder and decoder, which a checkpoint may know better (`choose_encoder_decoder`)."""

    heads: Mapping[str, ComponentSpec[Any]]
    decoders: Mapping[str, ComponentSpec[Any]]
    tasks: Mapping[str, ChosenTask]
    transforms: Sequence[ComponentSpec[Any]]
    train: ComponentSpec[Any]
    val: ComponentSpec[Any] | None


def choose(run: Run, parts: Parts, faults: ErrorCollector) -> ParsedComponents:
    model, data = run.model, run.data
    if model.init_from is not None and not is_address(model.init_from):
        faults.check_file(Path(model.init_from), "model.init_from")
    return ParsedComponents(
        {name: faults.check(parts.heads, spec, f"model.heads.{name}") for name, spec in model.heads.items()},
        {name: faults.check(parts.decoders, spec, f"model.decoders.{name}") for name, spec in model.decoders.items()},
        {name: _choose_task(task, f"tasks.{name}", parts, faults) for name, task in run.tasks.items()},
        [faults.check(parts.transforms, spec, f"data.transforms.{i}") for i, spec in enumerate(data.transforms)],
        faults.check(parts.datasets, data.train, "data.train"),
        faults.check(parts.datasets, data.val, "data.val") if data.val else None,
    )


def choose_encoder_decoder(
    model: Model, parts: Parts, faults: ErrorCollector, held: Mapping[str, ComponentConfig] | None = None
) -> tuple[ComponentSpec[Any], ComponentSpec[Any]]:
    """Encoder and decoder.

    Args:
        held: both as in the checkpoint of `model.init_from`, updated with the config; None where that checkpoint was
            not read, so that what it would fill in is unknown.
    """
    given = {"encoder": model.encoder, "decoder": model.decoder} if held is None else held
    registries: Mapping[str, Registry[Any]] = {"encoder": parts.encoders, "decoder": parts.decoders}
    unread = held is None and model.init_from is not None

    def chosen(name: str) -> ComponentSpec[Any]:
        spec = given[name]
        if spec is None or (unread and "type" not in spec):
            return INVALID_CHOICE
        return faults.check(registries[name], spec, f"model.{name}", partial=unread)

    encoder, decoder = chosen("encoder"), chosen("decoder")
    faults.check_file(encoder.options.get("weights"), "model.encoder.weights")
    return encoder, decoder


def _choose_task(task: Task, where: str, parts: Parts, faults: ErrorCollector) -> ChosenTask:
    chosen = faults.check(parts.tasks, {"type": task.type}, where)
    if task.protocol not in parts.protocols:
        hint = did_you_mean(task.protocol, parts.protocols)
        faults.problems.append(f"{where}.protocol: no protocol '{task.protocol}'.{hint}")
    if not chosen.name:
        return ChosenTask(chosen, [])
    kind: Any = chosen.part
    losses = []
    for i, spec in enumerate(task.losses or kind.default_losses):
        options = dict(spec)
        weight = options.pop("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < inf:
            faults.problems.append(f"{where}.losses.{i}.weight: a number over 0, got {weight!r}.")
            weight = 1.0
        losses.append((float(weight), faults.check(kind.loss_registry, options, f"{where}.losses.{i}")))
    return ChosenTask(chosen, losses)


def check(draft: Draft) -> None:
    """Refuses what names, options and types tell; what only the parts themselves can tell is left to `planning`.

    Raises:
        ConfigError: every such fault at once, with file and line.
    """
    faults = ErrorCollector(draft.problems)
    if not draft.run.plugins:  # whose parts nobody knows yet
        parts = json_schema.load_shipped_schema()
        choose(draft.run, parts, faults)
        choose_encoder_decoder(draft.run.model, parts, faults)
    faults.tell(draft.locate)
