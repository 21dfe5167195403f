"""The interface of every training transform, and the names a config may use for them."""

from abc import ABC, abstractmethod

import numpy as np

from densevit.registry import Registry
from densevit.structures import Sample


class Transform(ABC):
    """Sample in, sample out. All randomness comes from `rng`, so a sample's augmentation is a function of its seed."""

    @abstractmethod
    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample: ...


TRANSFORMS = Registry[Transform]("transform")
