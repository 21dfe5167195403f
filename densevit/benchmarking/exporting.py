"""Photographs to files, end to end: our export beside the model alone, and the reference's own way.

The three take turns over parts of one folder of 640x480 JPEGs. The reference's way is that of its run.py: read by
OpenCV, `infer_image`, scale to 8 bits, write a PNG, one image after another.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

from densevit.assembly import restore
from densevit.benchmarking import peers
from densevit.benchmarking.loading import make_pairs
from densevit.benchmarking.network import network
from densevit.benchmarking.report import Row
from densevit.benchmarking.settings import Settings
from densevit.benchmarking.turns import Spread, Work, take_turns, times_faster
from densevit.data.io import read_image
from densevit.inference.export import export
from densevit.inference.inputs import find_items
from densevit.inference.outputs import OUTPUTS
from densevit.inference.plan import Plan
from densevit.inference.predictor import Predictor

OURS, PURE, REFERENCE = "densevit export-depth", "the model alone, images in memory", "Depth Anything V2, run.py"
PART = 20  # images of a turn: enough that its beginning and end count little


def measure(settings: Settings) -> Iterator[Row]:
    peer = settings.able(lambda: peers.depth_anything(settings.size, settings.depth_anything))
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "photos").mkdir()
        make_pairs(root / "photos", PART, depth=False)
        predictor = load(peer, root, settings)
        images = [read_image(path) for path in sorted((root / "photos").iterdir())]
        number = count()

        def ours() -> None:
            export_folder(predictor, root / "photos", root / f"maps{next(number)}", settings.workers)

        works: dict[str, Work] = {PURE: lambda: [predictor(image) for image in images], OURS: ours}
        if peer is not None:
            works = {REFERENCE: partial(the_reference_way, peer, root / "photos", root), **works}
        baseline = next(iter(works))
        predictor(images[0])  # enough to warm up: a turn is long
        seconds = take_turns(works, max(2, settings.images // PART), warm=0)
        share = times_faster(seconds, OURS, PURE)
        for name in works:
            note = f"{share.middle:.0%} of the model alone ({predictor.precision})" if name == OURS else ""
            rate = Spread.of(seconds[name]).map(lambda s: PART / s)
            yield Row(
                "export", "640x480 JPEG to PNG16", name, rate, "images/s", better="higher",
                faster=times_faster(seconds, name, baseline), note=note,
            )  # fmt: skip


def load(peer: peers.Peer | None, folder: Path, settings: Settings) -> Predictor:
    """With the reference's weights, and resizing as it does, where it is there."""
    read = network(settings.size) if peer is None else restore(peer.save(peer.module, folder), peer.family)
    return Predictor(*read, device=settings.device, precision=settings.precision)


def export_folder(predictor: Predictor, photos: Path, output: Path, workers: int) -> None:
    png = OUTPUTS.check({"type": "png16"}, "format").build()
    plan = Plan(find_items([photos], [png.suffix], output), {"png16": png}, output)
    export(predictor, plan, workers=workers)


def the_reference_way(peer: peers.Peer, photos: Path, folder: Path) -> None:
    for path in sorted(photos.iterdir()):
        depth = peer.module.infer_image(cv2.imread(str(path)), 518)  # type: ignore[operator]
        grey = ((depth - depth.min()) / (depth.max() - depth.min()) * 255.0).astype(np.uint8)
        cv2.imwrite(str(folder / f"{path.stem}.png"), np.repeat(grey[..., np.newaxis], 3, axis=-1))
