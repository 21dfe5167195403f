"""How signatures are checked while tests run: by beartype, an int being a float as PEP 484 has it.

A size may be symbolic: it is so in a graph that is traced for images of any size.

jaxtyping binds the arguments of every call that it checks, which costs more than a step of a small model: so only
functions whose signature has shapes go through it, and all others through beartype alone. Functions inside of functions
are not checked: they are made anew by each call, and making the check takes milliseconds.
"""

import inspect
from typing import Any, get_args

import jaxtyping
import torch
from beartype import BeartypeConf, FrozenDict, beartype
from jaxtyping import _decorator

check = beartype(
    conf=BeartypeConf(
        is_pep484_tower=True,
        hint_overrides=FrozenDict({int: int | torch.SymInt}),
        violation_type=jaxtyping.TypeCheckError,
    )
)
with_shapes = _decorator.jaxtyped


def has_shape(hint: Any) -> bool:
    """Tell whether a type hint has the shape of a tensor anywhere, or is a text that may."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return isinstance(hint, str) or any(has_shape(part) for part in get_args(hint))


def jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """Check the calls of a function, or of a data class's __init__, by jaxtyping where its signature has shapes."""
    if function is None:
        return lambda function: jaxtyped(function, typechecker=typechecker)
    if inspect.isfunction(function) and "<locals>" in function.__qualname__:
        return function
    if inspect.isfunction(function) and not any(map(has_shape, function.__annotations__.values())):
        return typechecker(function)
    return with_shapes(function, typechecker=typechecker)


# jaxtyping's hook finds the one, its recursion into classes, properties and class methods the other.
jaxtyping.jaxtyped = _decorator.jaxtyped = jaxtyped
