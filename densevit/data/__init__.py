"""The data sets; importing this registers them. `download` fetches some of them."""

from densevit.data.datasets.base import DATASETS, Dataset, resolve_root
from densevit.data.datasets.classification.digits import Digits
from densevit.data.datasets.classification.mnist import Mnist
from densevit.data.datasets.depth.ddad import Ddad
from densevit.data.datasets.depth.diml import Diml
from densevit.data.datasets.depth.diode import Diode
from densevit.data.datasets.depth.eth3d import Eth3d
from densevit.data.datasets.depth.hypersim import Hypersim
from densevit.data.datasets.depth.ibims import Ibims
from densevit.data.datasets.depth.kitti import Kitti
from densevit.data.datasets.depth.make3d import Make3d
from densevit.data.datasets.depth.nyu.dataset import Nyu
from densevit.data.datasets.depth.scannet import Scannet
from densevit.data.datasets.depth.seven_scenes import SevenScenes
from densevit.data.datasets.depth.sintel import Sintel
from densevit.data.datasets.depth.sunrgbd import SunRgbd
from densevit.data.datasets.depth.tum import Tum
from densevit.data.datasets.depth.vkitti2 import VirtualKitti
from densevit.data.datasets.folder import Folder
from densevit.data.datasets.huggingface import HuggingFace
from densevit.data.datasets.mix import Mix
from densevit.data.datasets.motorcycle import Motorcycle
from densevit.data.datasets.pseudo_labels import PseudoLabels
from densevit.data.datasets.recording import Recording
from densevit.data.datasets.rooms import Rooms
from densevit.data.datasets.segmentation.ade20k import Ade20k
from densevit.data.datasets.segmentation.camvid import CamVid
from densevit.data.datasets.segmentation.cityscapes import Cityscapes
from densevit.data.datasets.segmentation.coco import Coco
from densevit.data.datasets.segmentation.coco_stuff import CocoStuff
from densevit.data.datasets.segmentation.pascal_context import PascalContext
from densevit.data.datasets.segmentation.voc import Voc
from densevit.data.datasets.segmentation.yolo import Yolo
from densevit.data.datasets.webdataset import WebDataset
from densevit.data.prepare.download import download

__all__ = [
    "DATASETS",
    "Ade20k",
    "CamVid",
    "Cityscapes",
    "Coco",
    "CocoStuff",
    "Dataset",
    "Ddad",
    "Digits",
    "Diml",
    "Diode",
    "Eth3d",
    "Folder",
    "HuggingFace",
    "Hypersim",
    "Ibims",
    "Kitti",
    "Make3d",
    "Mix",
    "Mnist",
    "Motorcycle",
    "Nyu",
    "PascalContext",
    "PseudoLabels",
    "Recording",
    "Rooms",
    "Scannet",
    "SevenScenes",
    "Sintel",
    "SunRgbd",
    "Tum",
    "VirtualKitti",
    "Voc",
    "WebDataset",
    "Yolo",
    "download",
    "resolve_root",
]
