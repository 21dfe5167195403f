"""File formats for maps; importing this registers them. The interface is in base.py."""

from densevit.inference.writers.arrays import Hdf5, Npy, Npz, Pfm
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap
from densevit.inference.writers.confidence import Confidence, IntervalNpz
from densevit.inference.writers.labels import LABEL_FORMATS, LabelWriter
from densevit.inference.writers.mesh import Glb, Obj
from densevit.inference.writers.normals import NormalsExr, NormalsNpy, NormalsPng
from densevit.inference.writers.objects import ObjectTable
from densevit.inference.writers.ply import Ply
from densevit.inference.writers.png import Color, Png16
from densevit.inference.writers.segments import CocoResults, Crops, PanopticPng, SegmentOverlay, YoloOutlines
from densevit.inference.writers.viewer import Viewer

__all__ = [
    "DEPTH_FORMATS",
    "LABEL_FORMATS",
    "CocoResults",
    "Color",
    "Confidence",
    "Crops",
    "Glb",
    "Hdf5",
    "IntervalNpz",
    "LabelWriter",
    "MapWriter",
    "NormalsExr",
    "NormalsNpy",
    "NormalsPng",
    "Npy",
    "Npz",
    "Obj",
    "ObjectTable",
    "PanopticPng",
    "Pfm",
    "Ply",
    "Png16",
    "PredictedMap",
    "SegmentOverlay",
    "Viewer",
    "YoloOutlines",
]
