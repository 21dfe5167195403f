"""Data: reading files, data sets, transforms and loaders. Importing it registers the data sets."""

from densevit.data.dataset import DATASETS, Dataset, resolve_root
from densevit.data.folder import Folder
from densevit.data.kitti import Kitti
from densevit.data.nyu import Nyu
from densevit.data.rooms import Rooms
from densevit.data.stereo import Motorcycle

__all__ = ["DATASETS", "Dataset", "Folder", "Kitti", "Motorcycle", "Nyu", "Rooms", "resolve_root"]
