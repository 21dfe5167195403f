"""The option `classes` of decoders and heads."""

from typing import Annotated

from pydantic import Field

from densevit.errors import ConfigError

Names = Annotated[tuple[str, ...], Field(min_length=2)]
Classes = Annotated[int, Field(ge=2)] | Names | None
"""Names of classes in the order of their ids, or their number; None takes those of the training data."""


def class_names(classes: Classes) -> tuple[str, ...]:
    """Raises ConfigError: None, where no data set names the classes."""
    if classes is None:
        raise ConfigError("classes: missing, and the data set names none; give them, or a classes.json in its folder.")
    return tuple(map(str, range(classes))) if isinstance(classes, int) else classes
