"""File formats for maps; importing this registers them. The interface is in base.py."""

from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.inference.writers.labels import LABEL_FORMATS
from densevit.registry import import_all

__all__ = ["DEPTH_FORMATS", "LABEL_FORMATS", "MapWriter", "PredictedMap"]

import_all(__name__)
