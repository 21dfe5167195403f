"""Photographs to files, end to end: our export beside the model alone, and the reference's own way.

The three take turns over a folder of 640x480 JPEGs, each time in a process of its own, as commands are; loading is not
timed. The reference's way is that of its run.py: read by OpenCV, `infer_image`, scale to 8 bits, write a PNG, one image
after another.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np
import torch

from densevit.benchmark import reference_models
from densevit.benchmark.dataloader import make_pairs
from densevit.benchmark.interleaved_timing import Spread, Work, take_turns, times_faster
from densevit.benchmark.isolated import each_alone, told
from densevit.benchmark.reference_network import network
from densevit.benchmark.report import Row
from densevit.benchmark.settings import Settings
from densevit.builder.checkpoint import restore
from densevit.data.io.readers import read_image
from densevit.inference.backends.onnx_runtimes import RuntimeName
from densevit.inference.predict.inputs import find_items
from densevit.inference.predict.output_plan import Plan
from densevit.inference.predict.pipeline import export
from densevit.inference.predictor import Predictor
from densevit.inference.writers import OUTPUTS
from densevit.utils.malloc import tune_malloc

OURS, PURE, REFERENCE = "densevit export-depth", "the model alone, images in memory", "Depth Anything V2, run.py"
BY = ", --runtime openvino"
PART = 20  # images of a turn: enough that its beginning and end count little


def measure(settings: Settings) -> Iterator[Row]:
    peer = settings.able(lambda: reference_models.depth_anything(settings.size, settings.depth_anything))
    ways: dict[str, Callable[..., Work]] = {REFERENCE: their_way, **OWN} if peer is not None else OWN
    if settings.able(partial(reference_models.openvino, settings.device, settings.precision)) is not None:
        ways = {**ways, **{f"{name}{BY}": partial(way, runtime="openvino") for name, way in OWN.items()}}
    with TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        make_pairs(photos, PART, depth=False)
        rounds = max(2, settings.images // PART)
        seconds = take_turns(each_alone(ways, settings, photos), rounds, warm=0, clock=told)
    baseline = next(iter(ways))
    for name in ways:
        share = times_faster(seconds, name, name.replace(OURS, PURE)).middle
        note = f"{share:.0%} of the model alone ({settings.precision})" if name.startswith(OURS) else ""
        rate = Spread.of(seconds[name]).map(lambda s: PART / s)
        yield Row(
            "export", "640x480 JPEG to PNG16", name, rate, "images/s", better="higher",
            faster=times_faster(seconds, name, baseline), note=note,
        )  # fmt: skip


def their_way(settings: Settings, photos: Path) -> Work:
    torch.set_num_threads(settings.threads)
    peer = reference_models.depth_anything(settings.size, settings.depth_anything)
    the_reference_way(peer, sorted(photos.iterdir())[:1], photos.parent)  # to warm up
    return partial(the_reference_way, peer, sorted(photos.iterdir()), photos.parent)


def our_way(settings: Settings, photos: Path, runtime: RuntimeName = "torch") -> Work:
    predictor = ready(settings, photos, runtime)
    output = Path(tempfile.mkdtemp(dir=photos.parent))
    return partial(export_folder, predictor, photos, output / "maps", settings.workers)


def alone_in_memory(settings: Settings, photos: Path, runtime: RuntimeName = "torch") -> Work:
    predictor = ready(settings, photos, runtime)
    images = [read_image(path) for path in sorted(photos.iterdir())]
    return lambda: [predictor(image) for image in images]


def ready(settings: Settings, photos: Path, runtime: RuntimeName) -> Predictor:
    """With the reference's weights, and resizing as it does, where it is there; warm."""
    tune_malloc()  # as the command does
    torch.set_num_threads(settings.threads)
    peer = settings.able(lambda: reference_models.depth_anything(settings.size, settings.depth_anything))
    read = network(settings.size) if peer is None else restore(peer.save(peer.module, photos.parent), peer.family)
    predictor = Predictor(*read, device=settings.device, precision=settings.precision, runtime=runtime)
    predictor(sorted(photos.iterdir())[0])
    return predictor


OWN: dict[str, Callable[..., Work]] = {PURE: alone_in_memory, OURS: our_way}


def export_folder(predictor: Predictor, photos: Path, output: Path, workers: int) -> None:
    png = OUTPUTS.check({"type": "png16"}, "format").build()
    plan = Plan(find_items([photos], [png.suffix], output), {"png16": png}, output)
    export(predictor, plan, workers=workers)


def the_reference_way(peer: reference_models.Peer, photos: Sequence[Path], folder: Path) -> None:
    for path in photos:
        depth = peer.module.infer_image(cv2.imread(str(path)), 518)  # type: ignore[operator]
        grey = ((depth - depth.min()) / (depth.max() - depth.min()) * 255.0).astype(np.uint8)
        cv2.imwrite(str(folder / f"{path.stem}.png"), np.repeat(grey[..., np.newaxis], 3, axis=-1))
