"""`download`: published data sets whose terms and servers allow it, into the folders that their readers look in."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from densevit.data.prepare.fetch import fetch, unpack
from densevit.errors import ConfigError, DataError
from densevit.registry import did_you_mean
from densevit.utils.atomic_io import write_text

RECORD = "downloads.json"  # archives that were unpacked, with their checksums


@dataclass(frozen=True)
class Archive:
    """One file of a data set."""

    url: str
    checksum: str  # as `md5:...`
    gigabytes: float

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class DownloadSource:
    """Where a data set comes from."""

    page: str
    terms: str  # its licence or terms of use
    free: bool  # the terms allow any use, so that nobody must accept them first
    parts: Mapping[str, Archive]  # of its archives, by a name; the first is what `download` takes by default


SOURCES: Mapping[str, DownloadSource] = {
    # Checksums: the devkit's README.
    "diode": DownloadSource(
        page="https://diode-dataset.org",
        terms="MIT",
        free=True,
        parts={
            "val": Archive(
                "http://diode-dataset.s3.amazonaws.com/val.tar.gz", "md5:5c895d09201b88973c8fe4552a67dd85", 2.8
            ),
            "train": Archive(
                "http://diode-dataset.s3.amazonaws.com/train.tar.gz", "md5:3a94632398fe1d002d89f11743f748b1", 81
            ),
        },
    ),
    # Checksum: GluonCV's scripts/datasets/ade20k.py.
    "ade20k": DownloadSource(
        page="https://groups.csail.mit.edu/vision/datasets/ADE20K",
        terms="images for research and teaching only, not commercial",
        free=False,
        parts={
            "all": Archive(
                "http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip",
                "sha1:219e1696abb36c8ba3a3afe7fb2f4b4606a897c7",
                0.97,
            )
        },
    ),
    # Checksums: torchvision's datasets/voc.py and sbd.py.
    "voc": DownloadSource(
        page="http://host.robots.ox.ac.uk/pascal/VOC/voc2012",
        terms="images under Flickr's terms of use",
        free=False,
        parts={
            "voc2012": Archive(
                "https://thor.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
                "md5:6cd6e144f989b92b3379bac3b3de84fd",
                2.0,
            ),
            "sbd": Archive(
                "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/benchmark.tgz",
                "md5:82b4d87ceb2ed10f6038a1cba92111cb",
                1.4,
            ),
        },
    ),
}

# Data set -> its page, and why it is fetched by hand.
BY_HAND: Mapping[str, tuple[str, str]] = {
    "camvid": ("http://mi.eng.cam.ac.uk/research/projects/VideoRec/CamVid", "it states no licence"),
    "cityscapes": ("https://www.cityscapes-dataset.com/downloads", "it asks for an account"),
    "coco_stuff": ("https://github.com/nightrome/cocostuff", "it states no checksums"),
    "ddad": ("https://github.com/TRI-ML/DDAD", "it states no checksums"),
    "diml": ("https://dimlrgbd.github.io", "it asks to accept its terms"),
    "eth3d": ("https://www.eth3d.net/datasets", "it states no checksums"),
    "hypersim": ("https://github.com/apple/ml-hypersim", "its own script fetches its 457 archives"),
    "ibims": ("https://www.asg.ed.tum.de/lmf/ibims1", "it states no checksums"),
    "kitti": ("https://www.cvlibs.net/datasets/kitti", "it asks for an account"),
    "make3d": ("http://make3d.cs.cornell.edu/data.html", "it states no checksums"),
    "mnist": ("http://yann.lecun.com/exdb/mnist", "{type: mnist, download: true} fetches it"),
    "seven_scenes": (
        "https://www.microsoft.com/en-us/research/project/rgb-d-dataset-7-scenes",
        "it states no checksums",
    ),
    "nyu": ("https://cs.nyu.edu/~fergus/datasets/nyu_depth_v2.html", "it states no checksums"),
    "pascal_context": ("https://cs.stanford.edu/~roozbeh/pascal-context", "it states no checksums"),
    "scannet": ("http://www.scan-net.org", "its terms of use are to be signed"),
    "sintel": ("http://sintel.is.tue.mpg.de/depth", "it states no checksums"),
    "sunrgbd": ("https://rgbd.cs.princeton.edu", "it states no checksums"),
    "tum": ("https://cvg.cit.tum.de/data/datasets/rgbd-dataset", "it states no checksums"),
    "vkitti2": ("https://europe.naverlabs.com/proxy-virtual-worlds-vkitti-2", "it asks to accept its terms"),
}


def download(
    name: str,
    root: str | Path | None = None,
    *,
    parts: Sequence[str] = (),
    accept_terms: bool = False,
    keep_archives: bool = False,
) -> Path:
    """Fetch a published data set, check it and unpack it where its reader looks.

    >>> densevit.data.download("diode")  # doctest: +SKIP

    What is there already is not fetched again; an interrupted call goes on where it stopped, and an archive that
    somebody put into the folder by hand is checked and taken. Raises ConfigError: no such part, or terms that were not
    accepted. Raises DataError: a data set to be fetched by hand, with its page and the folder; no connection; a wrong
    checksum. Raises StorageError if the disk is full or read-only. Returns the folder, `root` in a config.

    Args:
        name: as in a config: diode, ade20k, voc.
        root: its folder; default NAME in `$DENSEVIT_DATASETS`, else in `./datasets`.
        parts: which, of a data set in several archives; default the first (`val` of diode, `voc2012` of voc).
        accept_terms: you agree to the terms of use, of data sets that are not free for all purposes.
        keep_archives: after they are unpacked.
    """
    folder = Path(root).expanduser() if root else Path(os.environ.get("DENSEVIT_DATASETS", "datasets")) / name
    source = _source(name, folder)
    if unknown := [part for part in parts if part not in source.parts]:
        raise ConfigError(f"{name} has no part '{unknown[0]}'; there are {', '.join(source.parts)}.")
    archives = [source.parts[part] for part in parts or list(source.parts)[:1]]
    if not (source.free or accept_terms):
        raise ConfigError(
            f"{name}: {source.terms}. Read {source.page}; accept_terms=True (--accept-terms) says that you agree."
        )
    done = _unpacked(folder)
    for archive in archives:
        if done.get(archive.name) == archive.checksum:
            continue
        path = fetch(archive.url, folder / archive.name, archive.checksum)
        unpack(path, folder)
        done[archive.name] = archive.checksum
        write_text(folder / RECORD, json.dumps(done, indent=1))
        if not keep_archives:
            path.unlink()
    return folder


def _source(name: str, folder: Path) -> DownloadSource:
    if name in SOURCES:
        return SOURCES[name]
    if name in BY_HAND:
        page, why = BY_HAND[name]
        raise DataError(f"{name}: fetch it by hand from {page} ({why}) into {folder}; docs/data.md has its layout.")
    raise ConfigError(f"no published data set '{name}'.{did_you_mean(name, [*SOURCES, *BY_HAND])}")


def _unpacked(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}  # unpacking again finds what is there
