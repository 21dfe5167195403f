"""The files that the page offers: what `densevit predict` writes, byte by byte."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from densevit.api.predict import predict
from densevit.api.prediction import Formats
from densevit.app.inputs import GivenClip, GivenImage, given_lens
from densevit.app.models import AppModel, ViewOptions
from densevit.data.io.video import TimeSpan, open_video
from densevit.errors import DataError, DensevitError, PartialError
from densevit.inference.camera import Lens, assumed_fov, focal_of_matrix
from densevit.inference.image_input import ImageInput
from densevit.inference.predict.output_plan import SETTINGS
from densevit.inference.predict.summary import LEDGER
from densevit.inference.video.formats import CLIP_FORMATS
from densevit.inference.writers import DEPTH_FORMATS, LABEL_FORMATS, MapWriter
from densevit.inference.writers.base import head_of_each_format
from densevit.inference.writers.surface import SurfaceWriter
from densevit.ops.geometry import field_of_view
from densevit.output_kinds import DEPTH_KINDS

COLORED = ("color", "mp4")  # formats that take the page's colours


def formats_of(model: AppModel, options: ViewOptions, *, clip: bool = False) -> list[str]:
    """Return the formats that the heads of a model can be written in, those of whole clips first."""
    return [
        name
        for registry in (CLIP_FORMATS, DEPTH_FORMATS, LABEL_FORMATS)[not clip :]
        for name in registry.components
        if source_of(model, name, options) is not None
    ]


def source_of(model: AppModel, format: str, options: ViewOptions) -> str | None:
    """Return the head that a format is written from: the chosen one where several would fit; None where it is for
    none."""
    card = model.predictor.card
    registry = next(r for r in (CLIP_FORMATS, DEPTH_FORMATS, LABEL_FORMATS) if format in r.components)
    for wanted in ([], [options.head]):
        try:
            writer: Any = registry.check({"type": format, **options_of(model, format, options)}, format).build()
            source = head_of_each_format({format: writer}, card, wanted)[format]
            if isinstance(writer, MapWriter):
                writer.check(card.outputs[source])
            return source
        except DensevitError:
            continue
    return None


def options_of(model: AppModel, format: str, options: ViewOptions) -> dict[str, Any]:
    """Return what the page sets of a format."""
    if format in COLORED:
        low, high = options.limits
        return {"cmap": options.cmap, **({} if low is None or high is None else {"range": (low, high)})}
    head = model.head(options.head, DEPTH_KINDS)
    component = DEPTH_FORMATS.components.get(format)
    surface = isinstance(component, type) and issubclass(component, SurfaceWriter)
    unitless = head is not None and model.heads[head].kind != "metric"
    return {"assume_depth": options.assume_depth} if surface and unitless else {}


def write_image_files(
    model: AppModel, given: GivenImage, formats: Sequence[str], options: ViewOptions, folder: Path
) -> list[Path]:
    """Write the formats of one image, with the camera that the page shows it by. Raises ConfigError, DataError,
    StorageError: see `densevit.export`."""
    lens, source = given.lens(model.predictor, options.fov)
    focal = lens.focal if source == "from EXIF" else None  # which the file of a reduced image no longer has
    fov = lens.fov if focal is None else field_of_view(given.image.shape[1], focal)
    heads = chosen_heads(model, formats, options)
    asked: Formats = {name: options_of(model, name, options) for name in formats}
    try:
        predict(
            model.predictor, given.path, folder, formats=asked, heads=heads, overwrite=True,
            fov=fov, workers=1,
        )  # fmt: skip
    except PartialError as error:
        raise DataError(next(iter(error.summary.failed.values()))) from None
    return files_in(folder)


def write_clip_files(
    model: AppModel, given: GivenClip, formats: Sequence[str], options: ViewOptions, folder: Path, end: float | None
) -> list[Path]:
    """Write the formats of a clip; those of single frames as one .zip. `end`: seconds of the clip after which it
    stops. Raises ConfigError, DataError, StorageError: see `densevit.predict`."""
    asked: Formats = {name: options_of(model, name, options) for name in formats}
    try:
        predict(
            model.predictor, given.path, folder, formats=asked, heads=chosen_heads(model, formats, options),
            overwrite=True, stabilize=options.stabilize, end=end, fov=clip_fov(model, options), workers=1,
        )  # fmt: skip
    except PartialError as error:
        if not files_in(folder):
            raise DataError(next(iter(error.summary.failed.values()))) from None
    for frames in [path for path in folder.iterdir() if path.is_dir()]:
        shutil.make_archive(str(frames), "zip", frames)
        shutil.rmtree(frames)
    return files_in(folder)


def affordable_end(model: AppModel, given: GivenClip, options: ViewOptions, seconds: float) -> float | None:
    """Return the second of the clip up to which its frames take no more than `seconds`; None if that is all of it.
    Raises DataError: it cannot be read, or holds no frame."""
    source = open_video(given.path)
    first = next(source.frames(TimeSpan()), None)
    if first is None:
        raise DataError(f"{given.path.name} holds no frame. Choose another clip.")
    camera = None
    if (fov := clip_fov(model, options)) is not None:
        camera = focal_of_matrix(Lens(fov=fov).matrix(first.image.shape[:2]))
    frame = ImageInput(first.image, camera)
    model.predictor.predict_all(frame)  # the first pass also allocates
    begun = perf_counter()
    model.predictor.predict_all(frame)
    frames = max(1, int(seconds / max(perf_counter() - begun, 1e-6)))
    total = source.length()
    return None if total is not None and total <= frames else (frames - 1) / source.rate()


def clip_fov(model: AppModel, options: ViewOptions) -> float | None:
    """Return what is given, here or to the predictor, or assumed; None where the model estimates it."""
    card, lens = model.predictor.card, given_lens(model.predictor, options.fov)
    given = None if lens is None else lens.fov
    return given if given is not None or card.camera_head else assumed_fov(card)


def chosen_heads(model: AppModel, formats: Sequence[str], options: ViewOptions) -> list[str]:
    """Return the chosen head, where one of the formats needs one."""
    return [options.head] if options.head in {source_of(model, name, options) for name in formats} else []


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name not in (SETTINGS, LEDGER))
