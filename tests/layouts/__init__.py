"""Writes samples as the public data sets lie on disk, for tests of their readers: same folders, names and encodings."""

from densevit.data.io.writers import encode, encode_depth
from densevit_rooms.layouts import fill, write_kitti, write_nyu_labeled, write_nyu_sync
from layouts.common import opened
from layouts.folder import write_folder
from layouts.indoor import write_diml, write_hypersim, write_ibims, write_scannet, write_sunrgbd, write_tum
from layouts.outdoor import (
    write_ddad,
    write_diode,
    write_eth3d,
    write_kitti_selection,
    write_make3d,
    write_sintel,
    write_vkitti2,
)
from layouts.segmentation import (
    write_ade20k,
    write_cityscapes,
    write_coco_stuff,
    write_pascal_context,
    write_sbd,
    write_voc,
)

__all__ = [
    "encode", "encode_depth", "fill", "opened", "write_ade20k", "write_cityscapes", "write_coco_stuff", "write_ddad",
    "write_diml", "write_diode", "write_eth3d", "write_folder", "write_hypersim", "write_ibims", "write_kitti",
    "write_kitti_selection", "write_make3d", "write_nyu_labeled", "write_nyu_sync", "write_pascal_context",
    "write_sbd", "write_scannet", "write_sintel", "write_sunrgbd", "write_tum", "write_vkitti2", "write_voc",
]  # fmt: skip
