"""File formats for maps; importing this registers them. The interface is in output.py."""

from densevit.inference.writers.arrays import Hdf5, Npy, Npz, Pfm
from densevit.inference.writers.base import OUTPUTS, Frame, Output
from densevit.inference.writers.labels import LABEL_OUTPUTS, LabelOutput
from densevit.inference.writers.ply import Ply
from densevit.inference.writers.png import Color, Png16

__all__ = [
    "LABEL_OUTPUTS",
    "OUTPUTS",
    "Color",
    "Frame",
    "Hdf5",
    "LabelOutput",
    "Npy",
    "Npz",
    "Output",
    "Pfm",
    "Ply",
    "Png16",
]
