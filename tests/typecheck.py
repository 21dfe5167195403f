"""How signatures with shapes are checked while tests run: by beartype, an int being a float as PEP 484 has it.

A size may be symbolic: it is so in a graph that is traced for images of any size.

jaxtyping binds the arguments of every call and checks them twice, which costs more than a step of a small model. So
functions go through beartype alone, inside a context in which a letter is one size only. Functions without shapes are
left to mypy: with their checks all tests took a tenth longer. So are functions inside functions, which are made anew
by each call.
"""

import inspect
from functools import wraps
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
jaxtyping_decorator = _decorator.jaxtyped
sizes_of_one_call = _decorator.jaxtyped("context")


def has_shape(hint: Any) -> bool:
    """Tell whether a type hint has the shape of a tensor anywhere, or is a text that may."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return isinstance(hint, str) or any(has_shape(part) for part in get_args(hint))


def with_shapes(function: Any) -> Any:
    """Check the calls of a function by beartype, every letter being one size in each."""
    checked = check(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with sizes_of_one_call:
            return checked(*args, **kwargs)

    return call


def jaxtyped(function: Any = None, *, typechecker: Any) -> Any:
    """Check the calls of a function, or of a data class's __init__.

    By jaxtyping itself where a hint is a text, which may name what is not imported, or a size is that of an argument.
    """
    if function is None:
        return lambda function: jaxtyped(function, typechecker=typechecker)
    if not inspect.isfunction(function):
        return jaxtyping_decorator(function, typechecker=typechecker)
    hints = function.__annotations__.values()
    if "<locals>" in function.__qualname__ or not any(map(has_shape, hints)):
        return function
    if inspect.isgeneratorfunction(function) or any(isinstance(hint, str) or "{" in str(hint) for hint in hints):
        return jaxtyping_decorator(function, typechecker=typechecker)
    return with_shapes(function)


# jaxtyping's hook finds the one, its recursion into classes, properties and class methods the other.
jaxtyping.jaxtyped = _decorator.jaxtyped = jaxtyped
