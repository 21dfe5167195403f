"""What a visitor gave the page: an image with its lens, or a clip. h x w pixels."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from densevit.data.index.matching import IMAGE_SUFFIXES
from densevit.data.io.exif import exif_focal
from densevit.data.io.images import HEAD, Raster, detect_format
from densevit.data.io.readers import Rgb, read_image
from densevit.data.io.video import VIDEO_SUFFIXES, TimeSpan, open_video
from densevit.errors import DataError
from densevit.inference.camera import Lens, assumed_fov
from densevit.inference.predictor import Predictor

ASSUMED = "assumed: type yours under Lens and clips"
LARGEST = 250_000_000  # pixels of an image that is decoded to be reduced


@dataclass(frozen=True)
class Limits:
    """What one visitor may ask of the machine.

    Attributes:
        pixels: of an image; a larger one is reduced.
        megabytes: of a file.
        seconds: that the frames of a clip may take, by each checkpoint.
    """

    pixels: int = 2_000_000
    megabytes: int = 200
    seconds: float = 120.0


def given_lens(predictor: Predictor, fov: float | None) -> Lens | None:
    """Return the camera of a field of view that is given, else the one given to the predictor."""
    override = predictor.cameras.override
    return Lens(fov=fov) if fov is not None else override if isinstance(override, Lens) else None


@dataclass(frozen=True, eq=False)
class GivenImage:
    """
    Attributes:
        focal: in pixels, of its EXIF.
        note: that it was reduced or is the first of several, and why EXIF gives no focal length.
    """

    path: Path
    image: Rgb
    focal: float | None
    note: str = ""

    def lens(self, predictor: Predictor, fov: float | None) -> tuple[Lens, str]:
        """Return the camera, and where it is from: the field of view that is given, here or to the predictor, EXIF,
        the model, or an assumption."""
        given = given_lens(predictor, fov)
        if given is not None:
            return given, "given"
        if self.focal is not None:
            return Lens(focal=self.focal), "from EXIF"
        if predictor.card.camera_head is not None:
            return Lens(focal=predictor.estimate_camera(self.image)), "estimated"
        return Lens(fov=assumed_fov(predictor.card)), ASSUMED


@dataclass(frozen=True, eq=False)
class GivenClip:
    path: Path


def open_given(path: Path, limits: Limits, folder: Path) -> GivenImage | GivenClip:
    """Read an image, or the beginning of a clip. `folder`: for a reduced image, and a clip that is named otherwise.
    Raises DataError: neither of them, damaged, or too large; the message names the file without its folder."""
    try:
        return open_clip(path, folder) if is_clip(path) else open_image(path, limits, folder)
    except DataError as error:
        raise DataError(f"{str(error).replace(str(path), path.name)} Choose another image or clip.") from None


def is_clip(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix.lower() in VIDEO_SUFFIXES or detect_format(file.read(HEAD)) == "video"


def open_clip(path: Path, folder: Path) -> GivenClip:
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        path = Path(shutil.copy(path, folder / f"{path.stem}.mp4"))  # players and readers go by the content
    source = open_video(path)
    next(source.frames(TimeSpan()), None)
    return GivenClip(path)


def open_image(path: Path, limits: Limits, folder: Path) -> GivenImage:
    image, focal, notes = read_image(path, max_pixels=LARGEST), None, []
    if Raster.open(path, LARGEST).has_frames:
        notes.append("Only the first frame is shown. To see all frames, convert the animation to a video (MP4).")
    try:
        focal = exif_focal(path, LARGEST)
    except DataError:
        notes.append("The focal length in its EXIF cannot be true and is left out.")
    h, w = image.shape[:2]
    known = path.suffix.lower() in IMAGE_SUFFIXES  # readers go by the content, but `predict` takes .txt for a list
    name = path.name if known else f"{path.stem}.png"
    if h * w > limits.pixels:
        scale = (limits.pixels / (h * w)) ** 0.5
        image = np.asarray(cv2.resize(image, (int(w * scale), int(h * scale)), interpolation=cv2.INTER_AREA))
        focal = None if focal is None else focal * image.shape[1] / w
        path = folder / name
        Image.fromarray(image).save(path, "PNG", compress_level=1)
        notes.insert(0, f"Reduced from {w} x {h} pixels (--max-pixels {limits.pixels:,}).")
    elif not known:
        path = Path(shutil.copy(path, folder / name))
    return GivenImage(path, image, focal, " ".join(notes))
