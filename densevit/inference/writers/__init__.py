"""File formats for maps; importing this registers them. The interface is in base.py."""

from densevit.inference.writers.arrays import Hdf5, Npy, Npz, Pfm
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.inference.writers.labels import LABEL_FORMATS, LabelWriter
from densevit.inference.writers.normals import NormalsExr, NormalsNpy, NormalsPng
from densevit.inference.writers.ply import Ply
from densevit.inference.writers.png import Color, Png16

__all__ = [
    "DEPTH_FORMATS",
    "LABEL_FORMATS",
    "Color",
    "Hdf5",
    "LabelWriter",
    "MapWriter",
    "NormalsExr",
    "NormalsNpy",
    "NormalsPng",
    "Npy",
    "Npz",
    "Pfm",
    "Ply",
    "Png16",
    "PredictedMap",
]
