"""Classes of a head and of its data, whose order must agree."""

import pytest

from densevit.data.labels.class_table import refuse_reordered
from densevit.errors import ConfigError


def test_two_classes_of_one_name_are_in_order() -> None:
    names = ("crane", "boat", "crane")  # the bird and the machine, as in ImageNet
    refuse_reordered("head", names, names)
    refuse_reordered("head", ("dock", "boat", "quay", "lock"), names)
    with pytest.raises(ConfigError, match="0 is 'boat', in the data 'crane'"):
        refuse_reordered("head", ("boat", "crane", "crane"), names)
