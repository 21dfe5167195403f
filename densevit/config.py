"""The run: one frozen tree, read from YAML, overridden by key=value, checked whole before anything is built."""

import dataclasses
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import yaml
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from densevit.card import ResizeRule
from densevit.document import Document
from densevit.errors import ConfigError
from densevit.registry import UNKNOWN, Part, explain, misread

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=2**32)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Memory = Annotated[float, Field(ge=0, lt=1)]  # what a moving average keeps at each step


@dataclass(frozen=True, kw_only=True)
class Model:
    """Parts of the network; each is `{type: name, option: value}`."""

    encoder: Part | None = None  # with `init` the file's, unless it has a type; its options go over the file's
    decoder: Part | None = None  # likewise; serves every head that has none of its own
    heads: dict[str, Part]  # one per task
    decoders: dict[str, Part] = field(default_factory=dict)  # head -> a decoder of its own
    resize: ResizeRule | None = None  # how images meet the network outside training: as in `init`, else padded only
    init: str | None = None  # start from the weights of this checkpoint: a path, or hf:owner/name
    init_family: str | Part | None = None  # whose it is, where its keys cannot tell; {type: name, option: value}
    freeze_encoder: bool = False  # a probe: only decoder and heads learn
    grad_checkpointing: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one head learns from and is scored by; each loss is `{type: name, weight: 1.0, option: value}`."""

    type: str = "depth"
    losses: list[Part] = field(default_factory=list)  # none: the task's usual ones
    protocol: str = "plain"  # of depth, in the validation during training
    weight: Positive = 1.0  # of its losses among those of other tasks; where `balance` learns, where it begins


@dataclass(frozen=True, kw_only=True)
class Data:
    train: Part
    val: Part | None = None
    transforms: list[Part] = field(default_factory=list)
    workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = "auto"  # loader processes of each rank
    on_error: Literal["raise", "skip"] = "raise"  # a file that turns bad: stop, or take its successor and count
    max_bad: Fraction = 0.001  # share of an epoch that may be skipped so
    timeout: Annotated[float, Field(gt=0, le=1e6)] = 300.0  # seconds for a sample: network disks pause now and then


@dataclass(frozen=True, kw_only=True)
class Optim:
    """AdamW (Loshchilov and Hutter 2019). Layer i of L below the decoder learns at lr * scale * decay^(L-i)."""

    type: Literal["adamw", "sgd"] = "adamw"
    lr: Positive = 1e-4
    encoder_lr_scale: NonNegative = 1.0
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    weight_decay: NonNegative = 0.05
    betas: tuple[Memory, Memory] = (0.9, 0.999)
    eps: Positive = 1e-8
    momentum: Fraction = 0.9  # of sgd, which has neither betas nor eps
    clip_grad: Positive | None = 1.0  # largest norm of the whole gradient


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Learning rate over steps, as a factor of `optim.lr`: a linear warm-up, then the named curve down to `final`."""

    type: Literal["cosine", "poly", "one_cycle", "constant"] = "cosine"
    warmup: NonNegative = 0.05  # steps; below 1 a share of all steps
    encoder_warmup: NonNegative | None = None  # likewise: the encoder rests during `warmup`, then has its own (EoMT)
    final: Fraction = 0.0
    power: Positive = 0.9  # of poly
    start: Fraction = 0.0  # factor before the first step of the warm-up

    def warmups(self, steps: int) -> tuple[int, int]:
        """The steps of the warm-up, and of the encoder's own behind it."""
        shares = (self.warmup, self.encoder_warmup or 0)
        first, own = (round(share * steps if share < 1 else share) for share in shares)
        return first, own


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything a training run depends on, apart from the code and the files it reads."""

    model: Model
    data: Data
    tasks: dict[str, Task] = field(default_factory=lambda: {"depth": Task()})
    balance: Literal["fixed", "uncertainty"] = "fixed"  # of several tasks: by their weights, or learned
    optim: Optim = field(default_factory=Optim)
    schedule: Schedule = field(default_factory=Schedule)
    steps: Count | None = None  # optimiser steps; either this or epochs
    epochs: Positive | None = None
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 8  # images a step, over all processes and accumulation
    accumulate: Count = 1  # micro-batches per step
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None  # decay of the weights' moving average
    compile: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"  # of several processes: each holds the whole model, or a part of it
    device: str = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0  # numpy takes no larger one
    output: Annotated[Path, AfterValidator(Path.expanduser)] = Path("runs/default")
    log_every: Count = 20  # steps
    validate_every: Count | None = None  # steps; default: ten times a run
    save_every: Count | None = None  # steps between checkpoints; default: at each validation
    keep_last: Annotated[int, Field(ge=0, lt=2**32)] = 2  # newest checkpoints kept besides the best; 0 keeps all
    max_skipped: Count | None = None  # non-finite steps in a row before giving up: 3, under fp16 12
    plugins: list[Path] = field(default_factory=list)  # Python files that register parts of your own

    def problems(self) -> list[str]:
        """What the types cannot say."""
        found = []
        if (self.steps is None) == (self.epochs is None):
            found.append(f"steps: give either steps or epochs, got {'neither' if self.steps is None else 'both'}.")
        if self.batch_size % self.accumulate:
            found.append(f"accumulate: {self.accumulate} micro-batches cannot share {self.batch_size} images evenly.")
        if self.steps and sum(warmups := self.schedule.warmups(self.steps)) >= self.steps:
            name = "encoder_warmup" if warmups[0] < self.steps else "warmup"
            found.append(f"schedule.{name}: {sum(warmups)} steps leave nothing of {self.steps}.")
        if self.schedule.encoder_warmup is not None and self.model.freeze_encoder:
            found.append("schedule.encoder_warmup: model.freeze_encoder leaves nothing to warm up.")
        for name in ("encoder", "decoder"):
            if self.model.init is None and getattr(self.model, name) is None:
                found.append(f"model.{name}: missing.")
        if (rule := self.model.resize) and rule.mode != "native" and not (rule.size and min(rule.size) > 0):
            found.append(f"model.resize.size: mode '{rule.mode}' needs two sides over 0, got {rule.size}.")
        if self.model.init_family and not self.model.init:
            found.append("model.init_family: there is no model.init whose family this could be.")
        if not self.model.heads:
            found.append("model.heads: there is none, and nothing to learn.")
        for name in self.model.heads:
            if not name or set(name) & set("./="):
                found.append(f"model.heads.{name}: a head's name has a letter, and no '.', '/' or '='.")
        for name in self.tasks.keys() ^ self.model.heads.keys():
            have, lack = ("tasks", "model.heads") if name in self.tasks else ("model.heads", "tasks")
            found.append(f"{have}.{name}: there is no {lack}.{name} to go with it.")
        for name in self.model.decoders.keys() - self.model.heads.keys():
            found.append(f"model.decoders.{name}: there is no model.heads.{name} to go with it.")
        if self.model.heads and self.model.heads.keys() <= self.model.decoders.keys():
            found.append("model.decoders: every head has its own; leave one of them to model.decoder.")
        if self.balance == "uncertainty" and len(self.tasks) == 1:
            found.append("balance: there is only one task, and nothing to balance it with.")
        return found + _window_problems(self.model.resize)


def _window_problems(rule: ResizeRule | None) -> list[str]:
    if rule is None or (rule.window is None and rule.stride is None):
        return []
    if rule.window is None:
        return ["model.resize.stride: there is no model.resize.window to move by it."]
    stride = rule.stride or rule.window
    if min(*rule.window, *stride) < 1 or any(step > side for step, side in zip(stride, rule.window, strict=True)):
        return [f"model.resize.stride: between 1 and the sides of the window, got {stride} for {rule.window}."]
    return []


for _node in (Run, Model, Task, Data, Optim, Schedule, ResizeRule):
    setattr(_node, "__pydantic_config__", ConfigDict(extra="forbid"))  # noqa: B010 (pydantic reads it, mypy does not know it)


@dataclass(frozen=True)
class Draft:
    """A config as read, with what is wrong in its own tree; the options of parts are `checking.choose`'s to check.

    Attributes:
        run: what is known and fits.
        problems: one for all else, to be told along with the faults of parts.
        folder: where the file lies.
    """

    run: Run
    document: Document
    problems: list[str]
    folder: Path

    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Draft":
        """
        Raises:
            ConfigError: what does not fit leaves no run; every fault at once.
        """
        run, document, told, whole = _read(path, overrides)
        # Where a default stands for what did not fit, what it does not go with is nobody's fault.
        return cls(run, document, [*told, *run.problems()] if whole else told, Path(path).parent)

    def locate(self, problem: str) -> str:
        """Puts file and line of its key in front of a problem."""
        return self.document.locate(problem)


def read(path: str | Path, overrides: Sequence[str] = ()) -> tuple[Run, Document]:
    """Reads a config and checks its own tree.

    Raises:
        ConfigError: every fault at once.
    """
    run, document, told, _ = _read(path, overrides)
    if told:
        raise ConfigError(*map(document.locate, told))
    return run, document


def _read(path: str | Path, overrides: Sequence[str]) -> tuple[Run, Document, list[str], bool]:
    """Run, document, problems; and whether all values fit."""
    document = Document.read(path)
    for item in overrides:
        document.override(item)
    tree = document.tree
    try:
        run = TypeAdapter(Run).validate_python(tree)
        told = list(misread(tree, run, ""))
        return run, document, told, not told
    except ValidationError as error:
        faults = error.errors()
        told = explain(faults, tree, "", known_at)
    try:
        run = TypeAdapter(Run).validate_python(without(tree, [fault["loc"] for fault in faults]))
    except ValidationError:
        raise ConfigError(*map(document.locate, told)) from None
    return run, document, told, all(fault["type"] in UNKNOWN for fault in faults)


def without(tree: dict[str, Any], places: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A copy of the tree that lacks some of its keys; a list goes whole."""
    left = deepcopy(tree)
    for place in places:
        node: Any = left
        for name, below in zip(place, (*place[1:], None), strict=True):
            if not isinstance(node, dict) or name not in node:
                break
            if not isinstance(node[name], dict) or below not in node[name]:
                del node[name]
                break
            node = node[name]
    return left


def dump(run: Run) -> str:
    """The run as YAML that `read` accepts."""
    return yaml.safe_dump(to_dict(run), sort_keys=False)


def to_dict(run: Run) -> dict[str, Any]:
    return dict(TypeAdapter(Run).dump_python(run, mode="json"))


def known_at(loc: Sequence[Any]) -> list[str]:
    """The keys that may stand at a place of the tree, then the full paths of all keys."""
    schema: Any = Run
    for name in loc:
        schema = _below(schema, str(name))
    here = [f.name for f in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else []
    return here + _paths(Run, "")


def _below(schema: Any, name: str) -> Any:
    """The type of a key: of a node's field, or of any entry of a mapping."""
    if get_origin(schema) is dict:
        return get_args(schema)[-1]
    hint = get_type_hints(schema).get(name) if dataclasses.is_dataclass(schema) else None
    branches = () if get_origin(hint) is dict else get_args(hint)
    return next((branch for branch in branches if dataclasses.is_dataclass(branch)), hint)


def _paths(schema: type, prefix: str) -> list[str]:
    found = []
    for name, hint in get_type_hints(schema).items():
        found.append(prefix + name)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            found += _paths(hint, f"{prefix}{name}.")
    return found
