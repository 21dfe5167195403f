"""Parsers of the commands, made from the signatures of the functions that they call.

A function declares each argument once: its type, its default, and in the section `Args` of its docstring its meaning.
Positional-only parameters and `*words` are the arguments of the command, all others its options: `batch_size` is
`--batch-size`. `**options` stands for the options of `densevit.load`; `**overrides` is Python's form of `*words`. A
keyword whose type is quoted takes a Python object, so the command has none.
"""

import argparse
import importlib
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from densevit.api.models import load
from densevit.utils.docstrings import arguments, flag, prose

Function = Callable[..., Any]
Parameter = inspect.Parameter
WIDTH = 100
METAVARS: Mapping[Any, str] = {int: "N", float: "X", Path: "PATH", str: "NAME", Any: "NAME"}


def find_function(path: str) -> Function:
    """Import `module:function` below `densevit`, which imports nothing heavy before it is called."""
    module, _, name = path.partition(":")
    function: Function = getattr(importlib.import_module(f"densevit.{module}"), name)
    return function


def make_parser(name: str, function: Function) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    paragraphs = [textwrap.fill(paragraph, WIDTH) for paragraph in prose(function).replace("%", "%%").split("\n")]
    parser = argparse.ArgumentParser(
        name,
        description="\n\n".join(paragraphs),
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=WIDTH),
    )
    add_arguments(parser, parameters(function), arguments(function))
    if inherited := inherited_parameters(function):
        add_arguments(parser.add_argument_group("model"), inherited, arguments(load))
    return parser


def parameters(function: Function) -> dict[str, Parameter]:
    """Return the parameters that a command has, too, by name."""
    declared = inspect.signature(function).parameters
    return {name: p for name, p in declared.items() if p.kind is not p.VAR_KEYWORD and not is_object(p)}


def is_object(parameter: Parameter) -> bool:
    """Return whether a parameter takes a Python object alone."""
    return isinstance(parameter.annotation, str) and not is_argument(parameter)


def inherited_parameters(function: Function) -> dict[str, Parameter]:
    """Return the options of `load` that a function takes as `**options`."""
    declared = inspect.signature(function).parameters
    if "options" not in declared or declared["options"].kind is not Parameter.VAR_KEYWORD:
        return {}
    return {n: p for n, p in parameters(load).items() if n not in declared and p.kind is not p.POSITIONAL_ONLY}


def add_arguments(
    parser: argparse._ActionsContainer, options: Mapping[str, Parameter], meanings: Mapping[str, str]
) -> None:
    """Declare parameters; what the command line leaves out is not in the parsed arguments, so that defaults hold."""
    for name, parameter in options.items():
        positional = is_argument(parameter)
        flags = [name] if positional else [flag(name)]
        settings: dict[str, Any] = {"default": argparse.SUPPRESS, "help": help_text(parameter, meanings.get(name, ""))}
        parser.add_argument(*flags, **settings, **how_to_read(parameter))


def is_argument(parameter: Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)


def help_text(parameter: Parameter, meaning: str) -> str:
    """Return the meaning with the default where that is a value."""
    default = parameter.default
    shown = not isinstance(default, bool) and default not in (parameter.empty, None, "", ())
    text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return (meaning + (f" Default: {text}." if shown else "")).replace("%", "%%")


def how_to_read(parameter: Parameter) -> dict[str, Any]:
    """Return the options of `add_argument` for a parameter's type and default."""
    members = alternatives(str if isinstance(parameter.annotation, str) else parameter.annotation)
    several = [member for member in members if get_origin(member) in (Sequence, Mapping)]
    single = several[0] if several else members[0] if len(members) == 1 else None
    if parameter.kind is parameter.VAR_POSITIONAL:
        return {"nargs": "*", "metavar": "key=value"}
    if is_argument(parameter) and single is not None and get_origin(single) is Sequence:
        nargs = "+" if parameter.default is parameter.empty else "*"
        return {**reading(alternatives(get_args(single)[0])), "nargs": nargs, "metavar": parameter.name.upper()}
    if is_argument(parameter):
        metavar = {} if get_origin(single) is Literal else {"metavar": parameter.name.upper()}
        optional = {} if parameter.default is parameter.empty else {"nargs": "?"}
        return {**reading(members), **metavar, **optional}
    required = {"required": True} if parameter.default is parameter.empty else {}
    if single is bool and parameter.default is False:
        return {"action": "store_true"}
    if single is bool:
        return {"action": argparse.BooleanOptionalAction}
    if bool in members:  # alone, or with a value
        return {**reading([member for member in members if member is not bool]), "nargs": "?", "const": True}
    if get_origin(single) is Mapping:
        return {"action": KeyValue, "metavar": "key=value"}
    if single is not None and get_origin(single) is Sequence:
        (item,) = get_args(single)
        items = reading(alternatives(item))
        if Path in alternatives(item):  # whose names may hold commas
            return {**items, "action": "append", **required}
        return {"type": comma_separated(items.get("type", str)), "action": "extend", "metavar": "A,B", **required}
    return {**reading(members), **required}


def alternatives(annotation: Any) -> list[Any]:
    """Return the members of a union, without None, `str` beside `Path`, and lists, which Python takes for tuples."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return [annotation] if annotation is not types.NoneType else []
    members = [member for member_type in get_args(annotation) for member in alternatives(member_type)]
    return [m for m in members if get_origin(m) is not list and (m is not str or Path not in members)]


def reading(members: Sequence[Any]) -> dict[str, Any]:
    """Return type, choices and metavar of an argument that is one of these types."""
    if len(members) == 1 and get_origin(members[0]) is Literal:
        return {"choices": get_args(members[0])}
    read = [reader(member) for member in members]

    def convert(text: str) -> Any:
        problems = []
        for one in read:
            try:
                return one(text)
            except (ValueError, argparse.ArgumentTypeError) as error:
                problems.append(str(error))
        raise argparse.ArgumentTypeError(f"{' or '.join(dict.fromkeys(problems))}; got {text!r}")

    kinds = [metavar(member) for member in members]
    return {"type": convert, "metavar": "|".join(dict.fromkeys(kinds))}


def metavar(member: Any) -> str:
    if get_origin(member) is Literal:
        return "|".join(map(str, get_args(member)))
    if get_origin(member) is tuple:
        return ",".join("X" * len(get_args(member)))
    if get_origin(member) is Annotated:
        return metavar(get_args(member)[0])
    return METAVARS.get(member, "NAME")


def reader(member: Any) -> Callable[[str], Any]:
    """Return what reads one type from a word; its errors say what would fit."""
    origin, inner = get_origin(member), get_args(member)
    if origin is Literal:
        return lambda text: require(text, text in inner, " or ".join(map(repr, inner)))
    if origin is tuple:
        return lambda text: numbers(text, inner)
    if origin is Annotated:
        base, least = inner
        return lambda text: require(value := number(text, base), value >= least, f"{least} or more")
    if member in (int, float):
        return lambda text: number(text, member)
    return Path if member is Path else str


def require(value: Any, fits: bool, what: str) -> Any:
    if not fits:
        raise ValueError(what)
    return value


def number(text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError("a whole number" if kind is int else "a number") from None


def numbers(text: str, kinds: Sequence[type]) -> tuple[Any, ...]:
    """Read comma-separated numbers; of sizes also 480x640."""
    words = (text.lower().replace("x", ",") if set(kinds) == {int} else text).split(",")
    what = "height and width in pixels, as 480,640" if list(kinds) == [int, int] else f"{len(kinds)} numbers, as 1,2"
    try:
        values = tuple(kind(word) for kind, word in zip(kinds, words, strict=True))
    except ValueError:
        raise ValueError(what) from None
    require(values, set(kinds) != {int} or min(values) > 0, what)
    return values


def comma_separated(item: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def read(text: str) -> list[Any]:
        words = [word.strip() for word in text.split(",") if word.strip()]
        if not words:
            raise argparse.ArgumentTypeError(f"one or more, separated by commas; got {text!r}")
        return [item(word) for word in dict.fromkeys(words)]

    return read


class KeyValue(argparse.Action):
    """Collects `key=value`, whose value is YAML, in a mapping; repeatable, or `a=1,b=2`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        from densevit.config.yaml_document import YamlDocument
        from densevit.errors import ConfigError

        document = YamlDocument(dict(getattr(namespace, self.dest, {})))
        try:
            for word in re.split(r",(?=[ \w.-]+=)", values):  # not at the commas of a list
                document.override(word)
        except ConfigError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, document.tree)


def call(function: Function, parsed: argparse.Namespace) -> Any:
    """Call a function with parsed arguments."""
    values = vars(parsed)
    words: list[Any] = []
    for name, parameter in parameters(function).items():
        if is_argument(parameter):
            value = values.pop(name, () if parameter.kind is parameter.VAR_POSITIONAL else parameter.default)
            words.extend(value if parameter.kind is parameter.VAR_POSITIONAL else [value])
    return function(*words, **values)
