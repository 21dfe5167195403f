"""Registries of the components a config may choose: encoders, decoders, heads, losses, data sets, transforms."""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic_core import ErrorDetails

from densevit.errors import ConfigError

T = TypeVar("T")
P = TypeVar("P", bound=Callable[..., Any])

ComponentConfig = dict[str, Any]
"""A choice from a registry as a config writes it: `{type: dpt, channels: 256}`."""


@dataclass(frozen=True)
class ComponentSpec(Generic[T]):
    """A component with its checked options, ready to be built."""

    name: str
    component: Callable[..., T]
    options: Mapping[str, Any]

    def build(self, *args: Any) -> T:
        return self.component(*args, **self.options)

    def spec(self) -> ComponentConfig:
        """Return the config that `check` accepts back, every default spelled out, in plain YAML types."""
        plain = {name: TypeAdapter(Any).dump_python(value, mode="json") for name, value in self.options.items()}
        return {"type": self.name, **plain}


class Registry(Generic[T]):
    """Maps a name to a component, a class or a function that builds it.

    A component takes what the program knows by position and what the user chooses by keyword:
    the keyword-only parameters of its signature are its config schema.

    >>> decoders = Registry[object]("decoder")
    >>> @decoders.register("dpt")
    ... class DPT:
    ...     def __init__(self, features: list[int], *, channels: int = 256): ...
    >>> decoders.check({"type": "dpt", "channels": 64}, "model.decoder").options
    {'channels': 64}
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.components: dict[str, Callable[..., T]] = {}

    def register(self, name: str) -> Callable[[P], P]:
        def add(component: P) -> P:
            if name in self.components:
                raise ConfigError(f"{self.kind} '{name}' is registered twice: {self.components[name]} and {component}.")
            self.components[name] = component
            return component

        return add

    def register_function(
        self, name: str, build: Callable[..., T], *, inputs: Collection[str] = ()
    ) -> Callable[[P], P]:
        """Register what `build(function, **options)` makes of a function; its keyword-only parameters are options.
        `inputs`: keyword-only parameters that are no options; the component gives them with the data."""

        def add(function: P) -> P:
            parameters = inspect.signature(function, eval_str=True).parameters.values()
            options = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in inputs]

            def component(**overrides: Any) -> T:
                return build(function, **{p.name: p.default for p in options} | overrides)

            component.__name__, component.__doc__ = function.__name__, function.__doc__
            component.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
            self.register(name)(component)
            return function

        return add

    def check(self, spec: Mapping[str, Any], key_path: str, *, partial: bool = False) -> ComponentSpec[T]:
        """Check name, options and types before anything is built. `partial`: missing options are no error, since a
        checkpoint may hold them; the result is not for building. Raises ConfigError: naming every error of this
        component at once."""
        options = dict(spec)
        name = options.pop("type", None)
        if name is None:
            if typo := difflib.get_close_matches("type", options, n=1):
                raise ConfigError(f"{key_path}.{typo[0]}: no such option. Did you mean 'type'?")
            raise ConfigError(f"{key_path}.type: missing. Known: {', '.join(sorted(self.components))}.")
        if not isinstance(name, str) or name not in self.components:
            raise ConfigError(f"{key_path}.type: no {self.kind} '{name}'.{did_you_mean(str(name), self.components)}")
        component = self.components[name]
        return ComponentSpec(name, component, validate(schema(component), options, key_path, partial))


@cache
def schema(component: Callable[..., Any]) -> type[BaseModel]:
    """Return the keyword-only parameters of a component, as a pydantic model that forbids anything else. Raises
    ConfigError if an annotation cannot be evaluated: quoted ones, and all from Python 3.14 on, are evaluated here."""
    try:
        parameters = inspect.signature(component, eval_str=True).parameters.values()
    except Exception as error:
        raise ConfigError(f"{component}: its annotations cannot be evaluated: {error}.") from error
    keys: dict[str, Any] = {
        p.name: (p.annotation, ... if p.default is p.empty else p.default)
        for p in parameters
        if p.kind is p.KEYWORD_ONLY
    }
    rules = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, protected_namespaces=(), allow_inf_nan=False,
        use_attribute_docstrings=True,
    )  # fmt: skip
    return create_model(getattr(component, "__name__", "ComponentConfig"), __config__=rules, **keys)


def choices(component: Callable[..., Any], option: str) -> tuple[Any, ...]:
    """Return the values that a component's `Literal` option can take; none if it has no such option."""
    field = schema(component).model_fields.get(option)
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()


def default(component: Callable[..., Any], option: str) -> Any:
    """Return the default of a component's option; None if it has no such option."""
    field = schema(component).model_fields.get(option)
    return field.get_default() if field is not None else None


def validate(model: type[BaseModel], options: Mapping[str, Any], key_path: str, partial: bool) -> dict[str, Any]:
    try:
        checked = model.model_validate(options)
    except ValidationError as error:
        known_keys = _known_keys(model)
        faults = [fault for fault in error.errors() if not (partial and fault["type"] in MISSING)]
        if not faults:
            return dict(options)
        raise ConfigError(*explain(faults, options, key_path, known_keys)) from None
    if wrong := list(check_bool_as_number(options, checked, key_path)):
        raise ConfigError(*wrong)
    return {name: getattr(checked, name) for name in model.model_fields}


def _known_keys(model: type[BaseModel]) -> Callable[[Sequence[Any]], Iterable[str]]:
    """Return the keys at a place of a component's options: its own, or those of a dataclass that it holds there."""

    def keys_at(location: Sequence[Any]) -> Iterable[str]:
        hints: dict[str, Any] = {name: field.annotation for name, field in model.model_fields.items()}
        known = ["type", *hints]
        for name in location:
            if held := next((arg for arg in get_args(hints.get(str(name))) if is_dataclass(arg)), None):
                hints = get_type_hints(held)
                known = list(hints)
        return known

    return keys_at


def check_bool_as_number(raw: Any, checked: Any, key_path: str) -> Iterator[str]:
    """Yield the errors for booleans where a number belongs; pydantic would take true for 1."""
    if isinstance(raw, Mapping):
        for name, value in raw.items():
            below = checked.get(name) if isinstance(checked, Mapping) else getattr(checked, str(name), None)
            yield from check_bool_as_number(value, below, f"{key_path}.{name}" if key_path else str(name))
    elif isinstance(raw, list) and isinstance(checked, list | tuple):
        for i, pair in enumerate(zip(raw, checked, strict=False)):
            yield from check_bool_as_number(*pair, f"{key_path}.{i}")
    elif isinstance(raw, bool) and isinstance(checked, int | float) and not isinstance(checked, bool):
        yield f"{key_path}: a number, got {str(raw).lower()}."


MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's words for a key that no schema has


def explain(
    faults: Iterable[ErrorDetails],
    tree: Mapping[str, Any],
    key_path: str,
    keys_at: Callable[[Sequence[Any]], Iterable[str]],
) -> list[str]:
    """Return Pydantic's errors as messages, one line per key: where, what came, what would fit."""
    expected: dict[str, list[str]] = {}
    got: dict[str, str] = {}
    faults = list(faults)
    places = [fault["loc"] for fault in faults]
    for fault, place in zip(faults, places, strict=True):
        if fault["type"] == "too_short" and any(other[: len(place)] == place != other for other in places):
            continue  # pydantic counts the items that fit
        loc = _real(place, tree, absent=fault["type"] in MISSING)
        key = ".".join(map(str, [key_path, *loc] if key_path else loc))
        if fault["type"] in UNKNOWN:
            message = f"no such option.{did_you_mean(str(loc[-1]), keys_at(loc[:-1]), '.'.join(map(str, loc[:-1])))}"
        elif fault["type"] in MISSING:
            message = "missing."
        else:
            message = fault["msg"][:1].lower() + fault["msg"][1:]
            got[key] = f", got {fault['input']!r}."
            if fault["type"] in ("list_type", "tuple_type") and "," in str(fault["input"]):
                got[key] += f" Did you mean [{fault['input']}]?"
        expected.setdefault(key, []).append(message.removeprefix("value error, "))
    return [f"{key}: {', or '.join(dict.fromkeys(messages))}{got.get(key, '')}" for key, messages in expected.items()]


def _real(loc: Sequence[Any], tree: Any, *, absent: bool) -> list[Any]:
    """Return the keys of an error's location that the user wrote; pydantic adds the branches of unions it tried."""
    real = []
    for i, name in enumerate(loc):
        items = range(len(tree)) if isinstance(tree, list | tuple) else ()
        exists = name in (tree if isinstance(tree, Mapping) else items)
        last = i == len(loc) - 1 and (isinstance(tree, Mapping) or (bool(items) and isinstance(name, int)))
        if exists or (last and absent):
            real.append(name)
            tree = tree[name] if exists else None
    return real


# Names that other libraries use -> the name here.
COMMON_ALIASES = {
    "lr": "optim.lr", "learning_rate": "optim.lr", "wd": "optim.weight_decay", "bs": "batch_size",
    "batch": "batch_size", "epoch": "epochs", "iterations": "steps", "iters": "steps", "max_steps": "steps",
    "amp": "precision", "fp16": "precision", "bf16": "precision", "num_workers": "data.workers",
    "backbone": "model.encoder", "encoder": "model.encoder", "decoder": "model.decoder", "head": "model.heads",
    "out_dir": "output", "output_dir": "output", "grad_clip": "optim.clip_grad", "dataset": "data.train",
    "grad_accum": "grad_accum_steps", "accumulate": "grad_accum_steps", "accumulate_grad_batches": "grad_accum_steps",
    "gradient_accumulation_steps": "grad_accum_steps", "warmup": "schedule.warmup", "loss": "tasks.depth.losses",
    "pretrained": "model.init_from",
}  # fmt: skip


FEW = 12  # known names that a hint lists


def did_you_mean(word: str, choices: Iterable[str], section: str = "") -> str:
    """Return the hint that ends an error message: the nearest known name, three of many that are least far, or all of
    few.

    Args:
        section: of dotted names that end alike, the one in this section is meant, and its names are those to list.

    >>> did_you_mean("chanels", ["channels", "norm"])
    " Did you mean 'channels'?"
    """
    choices = sorted(set(choices))
    near_last = sorted(choices, key=lambda name: name.rpartition(".")[0] == section)
    leaves = {name.rpartition(".")[2]: name for name in near_last}
    alias = COMMON_ALIASES.get(word.lower())
    if alias in choices:
        return f" Did you mean '{alias}'?"
    begun = [name for leaf, name in leaves.items() if len(word) > 3 and leaf.startswith(word.lower())]
    if len(begun) == 1:
        return f" Did you mean '{begun[0]}'?"
    close = difflib.get_close_matches(word, leaves, n=1) or difflib.get_close_matches(word, choices, n=1)
    if close:
        return f" Did you mean '{leaves.get(close[0], close[0])}'?"
    choices = [name for name in choices if name.rpartition(".")[0] == section] or choices
    if len(choices) > FEW:
        leaves = {name.rpartition(".")[2]: name for name in choices}
        near = difflib.get_close_matches(word, leaves, n=3, cutoff=0)
        return f" Nearest of {len(choices)}: {', '.join(leaves[leaf] for leaf in near)}."
    return f" Known: {', '.join(choices)}." if choices else " It takes no options."


@dataclass(frozen=True)
class Registries:
    """The registries that a config chooses from."""

    encoders: Registry[Any]
    objectives: Registry[Any]
    decoders: Registry[Any]
    heads: Registry[Any]
    tasks: Registry[Any]  # each has a `loss_registry` and `default_losses`
    transforms: Registry[Any]
    datasets: Registry[Any]
    protocols: Collection[str]
    conditionings: Registry[Any]


def import_all(package: str) -> None:
    """Import every module of a package and of those in it, so that their components register."""
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        import_module(module.name)
