"""File formats for maps; importing this registers them. The interface is in output.py."""

from densevit.inference.writers.arrays import Hdf5, Npy, Npz, Pfm
from densevit.inference.writers.base import OUTPUTS, MapWriter, PredictedMap
from densevit.inference.writers.labels import LABEL_OUTPUTS, LabelOutput
from densevit.inference.writers.ply import Ply
from densevit.inference.writers.png import Color, Png16

__all__ = [
    "LABEL_OUTPUTS",
    "OUTPUTS",
    "Color",
    "Hdf5",
    "LabelOutput",
    "MapWriter",
    "Npy",
    "Npz",
    "Pfm",
    "Ply",
    "Png16",
    "PredictedMap",
]
