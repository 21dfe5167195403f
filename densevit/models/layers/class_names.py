"""How a part is told which classes there are."""

from typing import Annotated

from pydantic import Field

from densevit.errors import ConfigError

Names = Annotated[tuple[str, ...], Field(min_length=2)]
Classes = Annotated[int, Field(ge=2)] | Names | None
"""The names of classes in the order of their ids, or how many there are; None takes those of the training data."""


def class_names(classes: Classes) -> tuple[str, ...]:
    """
    Raises:
        ConfigError: None, which a config leaves to its data, has reached a part that is built without any.
    """
    if classes is None:
        raise ConfigError("classes: missing, and the data names none to take; of a folder classes.json does.")
    return tuple(map(str, range(classes))) if isinstance(classes, int) else classes
