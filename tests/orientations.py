"""What a camera that writes an EXIF orientation did to the upright picture."""

from PIL import Image

TURNS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def oriented(number: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = number
    return exif
