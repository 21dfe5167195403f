"""What a visitor gave the page: an image with its lens, or a clip. h x w pixels."""

from dataclasses import dataclass
from pathlib import Path

from densevit.data.io.exif import exif_focal
from densevit.data.io.images import HEAD, detect_format
from densevit.data.io.readers import read_image
from densevit.data.io.rgb import Rgb
from densevit.data.io.video import VIDEO_SUFFIXES, Span, open_video
from densevit.errors import DataError
from densevit.inference.camera import Lens, assumed_fov
from densevit.inference.predictor import Predictor


@dataclass(frozen=True)
class Limits:
    """What one visitor may ask of the machine.

    Attributes:
        pixels: of an image.
        megabytes: of a file.
        seconds: that the frames of a clip may take, by each checkpoint.
    """

    pixels: int = 24_000_000
    megabytes: int = 200
    seconds: float = 120.0


@dataclass(frozen=True, eq=False)
class GivenImage:
    """
    Attributes:
        focal: in pixels, of its EXIF.
        note: why EXIF gives none, where it gives nonsense.
    """

    path: Path
    image: Rgb
    focal: float | None
    note: str = ""

    def lens(self, predictor: Predictor, fov: float | None) -> tuple[Lens, str]:
        """The camera, and where it is from: the field of view that is given, EXIF, the model, or an assumption."""
        if fov is not None:
            return Lens(fov=fov), "given"
        if self.focal is not None:
            return Lens(focal=self.focal), "from EXIF"
        if predictor.card.camera_head is not None:
            return Lens(focal=predictor.estimate_camera(self.image)), "estimated"
        return Lens(fov=assumed_fov(predictor.card)), "assumed"


@dataclass(frozen=True, eq=False)
class GivenClip:
    path: Path


def open_given(path: Path, limits: Limits) -> GivenImage | GivenClip:
    """Reads an image, or the beginning of a clip.

    Raises:
        DataError: neither of them, damaged, or too large; the message names the file without its folder.
    """
    try:
        return open_clip(path) if is_clip(path) else open_image(path, limits)
    except DataError as error:
        raise DataError(f"{str(error).replace(str(path), path.name)} Choose another image or clip.") from None


def is_clip(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix.lower() in VIDEO_SUFFIXES or detect_format(file.read(HEAD)) == "video"


def open_clip(path: Path) -> GivenClip:
    source = open_video(path)
    next(source.frames(Span()), None)
    return GivenClip(path)


def open_image(path: Path, limits: Limits) -> GivenImage:
    image = read_image(path, max_pixels=limits.pixels)
    try:
        return GivenImage(path, image, exif_focal(path))
    except DataError:
        return GivenImage(path, image, None, "The focal length in its EXIF cannot be true and is left out.")
