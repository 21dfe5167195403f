"""Image files to depth files, end to end: our export, our model alone, and the reference's run.py.

They run interleaved over a folder of 640x480 JPEGs, each time in a fresh process, as commands do; loading is not timed.
The reference works as its run.py does: read by OpenCV, `infer_image`, scale to 8 bits, write a PNG, image by image.
"""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np
import torch

from densevit.builder.checkpoint import restore
from densevit.data.io.readers import read_image
from densevit.inference.backends.onnx_runtimes import RuntimeName
from densevit.inference.predict.inputs import find_items
from densevit.inference.predict.output_plan import OutputPlan
from densevit.inference.predict.pipeline import ImageExporter
from densevit.inference.predictor import Predictor
from densevit.inference.writers import DEPTH_FORMATS
from densevit.speed import reference_models
from densevit.speed.dataloader import write_images
from densevit.speed.reference_models import our_network
from densevit.speed.report import Row
from densevit.speed.settings import Settings
from densevit.speed.timing import Prepare, Spread, Work, speedup, time_in_subprocess, time_interleaved
from densevit.utils.process import tune_malloc

EXPORT, MODEL_ONLY, REFERENCE = (
    "densevit predict",
    "the model alone, images in memory",
    "Depth Anything V2, run.py",
)
BY = ", --runtime openvino"
IMAGES_PER_ROUND = 20  # enough that the first and last count little


def measure(settings: Settings) -> Iterator[Row]:
    reference = settings.try_build(lambda: reference_models.depth_anything(settings.size, settings.depth_anything))
    prepares: dict[str, Prepare] = OURS if reference is None else {REFERENCE: prepare_reference, **OURS}
    if settings.try_build(partial(reference_models.openvino, settings.device, settings.precision)) is not None:
        prepares = {**prepares, **{f"{name}{BY}": partial(way, runtime="openvino") for name, way in OURS.items()}}
    with TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        write_images(photos, IMAGES_PER_ROUND, depth=False)
        works = {name: partial(time_in_subprocess, prepare, settings, photos) for name, prepare in prepares.items()}
        rounds = max(2, settings.images // IMAGES_PER_ROUND)
        seconds = time_interleaved(works, rounds, warmup=0, timer=lambda work: work()).wall
    baseline = next(iter(prepares))
    for name in prepares:
        share = speedup(seconds, name, name.replace(EXPORT, MODEL_ONLY)).middle
        note = f"{share:.0%} of the model alone" if name.startswith(EXPORT) else ""
        rate = Spread.of(seconds[name]).map(lambda s: IMAGES_PER_ROUND / s)
        yield Row(
            "export", f"{settings.network()} in {settings.precision}, 640x480 JPEG to PNG16", name, rate, "images/s",
            better="higher", faster=speedup(seconds, name, baseline), note=note,
        )  # fmt: skip


def prepare_reference(settings: Settings, photos: Path) -> Work:
    torch.set_num_threads(settings.threads)
    reference = reference_models.depth_anything(settings.size, settings.depth_anything)
    run_reference(reference, sorted(photos.iterdir())[:1], photos.parent)  # to warm up
    return partial(run_reference, reference, sorted(photos.iterdir()), photos.parent)


def prepare_export(settings: Settings, photos: Path, runtime: RuntimeName = "torch") -> Work:
    predictor = load_predictor(settings, photos, runtime)
    output = Path(tempfile.mkdtemp(dir=photos.parent))
    return partial(export_folder, predictor, photos, output / "maps", settings.workers)


def prepare_model_only(settings: Settings, photos: Path, runtime: RuntimeName = "torch") -> Work:
    predictor = load_predictor(settings, photos, runtime)
    images = [read_image(path) for path in sorted(photos.iterdir())]
    return lambda: [predictor(image) for image in images]


def load_predictor(settings: Settings, photos: Path, runtime: RuntimeName) -> Predictor:
    """Load it with the reference's weights and resizing where it is available; warmed up."""
    tune_malloc()  # as the command does
    torch.set_num_threads(settings.threads)
    reference = settings.try_build(lambda: reference_models.depth_anything(settings.size, settings.depth_anything))
    read = (
        our_network(settings.size)
        if reference is None
        else restore(reference.save(reference.module, photos.parent), reference.family)
    )
    predictor = Predictor(*read, device=settings.device, precision=settings.precision, runtime=runtime)
    predictor(sorted(photos.iterdir())[0])
    return predictor


OURS: dict[str, Prepare] = {MODEL_ONLY: prepare_model_only, EXPORT: prepare_export}


def export_folder(predictor: Predictor, photos: Path, output: Path, workers: int) -> None:
    png = DEPTH_FORMATS.check({"type": "png16"}, "format").build()
    plan = OutputPlan(find_items([photos], [png.suffix], output).items, {"png16": png}, output)
    ImageExporter(predictor, plan, workers=workers).export()


def run_reference(reference: reference_models.ReferenceModel, photos: Sequence[Path], folder: Path) -> None:
    for path in photos:
        depth = reference.module.infer_image(cv2.imread(str(path)), 518)  # type: ignore[operator]
        grey = ((depth - depth.min()) / (depth.max() - depth.min()) * 255.0).astype(np.uint8)
        cv2.imwrite(str(folder / f"{path.stem}.png"), np.repeat(grey[..., np.newaxis], 3, axis=-1))
