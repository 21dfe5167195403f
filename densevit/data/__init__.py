"""Data: reading files, data sets, transforms and loaders. Importing it registers the data sets."""

from densevit.data.ade20k import Ade20k
from densevit.data.cityscapes import Cityscapes
from densevit.data.coco_stuff import CocoStuff
from densevit.data.dataset import DATASETS, Dataset, resolve_root
from densevit.data.ddad import Ddad
from densevit.data.digits import Digits
from densevit.data.diml import Diml
from densevit.data.diode import Diode
from densevit.data.eth3d import Eth3d
from densevit.data.folder import Folder
from densevit.data.hypersim import Hypersim
from densevit.data.ibims import Ibims
from densevit.data.kitti import Kitti
from densevit.data.make3d import Make3d
from densevit.data.mnist import Mnist
from densevit.data.nyu import Nyu
from densevit.data.pascal_context import PascalContext
from densevit.data.rooms import Rooms
from densevit.data.scannet import Scannet
from densevit.data.sintel import Sintel
from densevit.data.stereo import Motorcycle
from densevit.data.sunrgbd import SunRgbd
from densevit.data.tar_shards import TarShards
from densevit.data.tum import Tum
from densevit.data.vkitti2 import VirtualKitti
from densevit.data.voc import Voc

__all__ = [
    "DATASETS",
    "Ade20k",
    "Cityscapes",
    "CocoStuff",
    "Dataset",
    "Ddad",
    "Digits",
    "Diml",
    "Diode",
    "Eth3d",
    "Folder",
    "Hypersim",
    "Ibims",
    "Kitti",
    "Make3d",
    "Mnist",
    "Motorcycle",
    "Nyu",
    "PascalContext",
    "Rooms",
    "Scannet",
    "Sintel",
    "SunRgbd",
    "TarShards",
    "Tum",
    "VirtualKitti",
    "Voc",
    "resolve_root",
]
