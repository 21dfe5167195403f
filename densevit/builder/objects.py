"""Objects that stand for components: an nn.Module as the encoder, a data set or a list of pairs as the data."""

from typing import Any

from densevit.config.objects import OBJECT, describe_object
from densevit.data.datasets.pairs import as_dataset
from densevit.errors import DataError
from densevit.models.encoders.module import as_encoder
from densevit.registry import ComponentSpec


def as_component(key_path: str, value: Any) -> ComponentSpec[Any]:
    """The object as a component of a plan; building it returns the object. `key_path`: its key in the config, one of
    `densevit.config.objects.PLACES`. Raises ConfigError, DataError if it is of no kind that may stand there."""
    try:
        built = as_encoder(value) if key_path == "model.encoder" else as_dataset(value)
    except DataError as error:
        raise DataError(f"{key_path}: {error}") from None
    return ComponentSpec(OBJECT, lambda **_: built, {"name": describe_object(value)})
