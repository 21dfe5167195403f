"""File formats for maps; importing this registers them. The interface is in output.py."""

from densevit.inference.outputs.arrays import Hdf5, Npy, Npz, Pfm
from densevit.inference.outputs.labels import LABEL_OUTPUTS, LabelOutput
from densevit.inference.outputs.output import OUTPUTS, Frame, Output
from densevit.inference.outputs.png import Color, Png16
from densevit.inference.outputs.pointcloud import Ply

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
