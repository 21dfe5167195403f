"""Short films for tests: a textured picture that shifts under the window, as mp4 files and folders of frames."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from time import sleep

import cv2
import numpy as np
from PIL import Image


def frame(number: int, size: tuple[int, int] = (48, 64), seed: int = 0) -> np.ndarray:
    """RGB; number n is number 0 moved left by n pixels."""
    h, w = size
    noise = np.random.default_rng(seed).uniform(0, 255, (h, w + 400, 1)).astype(np.float32).repeat(3, axis=-1)
    smooth = cv2.GaussianBlur(noise, (0, 0), 2.0)
    spread = (smooth - smooth.mean()) * 5 + 128
    return spread.clip(0, 255).astype(np.uint8)[:, number : number + w].copy()


def write_film(
    path: Path,
    frames: Sequence[np.ndarray],
    *,
    times: Sequence[float] | None = None,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
) -> Path:
    """A film of these frames, at 10 a second or at the times in seconds."""
    import av

    clock = Fraction(1, 9000)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=10)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pix_fmt
        stream.time_base = stream.codec_context.time_base = clock
        stream.options = {"crf": "5", "g": "8", **(options or {})} if codec == "libx264" else (options or {})
        for number, pixels in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            picture.pts = round((number / 10 if times is None else times[number]) * 9000)
            picture.time_base = clock
            out.mux(stream.encode(picture))
        out.mux(stream.encode(None))
    return path


def write_frames(folder: Path, frames: Sequence[np.ndarray]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in enumerate(frames):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


class FakeCamera:
    """In place of cv2.VideoCapture: camera 0 gives these frames, `pause` seconds apart, and is then gone."""

    def __init__(self, number: int, frames: Sequence[np.ndarray], pause: float = 0.0) -> None:
        self.number, self.left, self.pause = number, iter(frames if number == 0 else []), pause

    def isOpened(self) -> bool:
        return self.number == 0

    def read(self) -> tuple[bool, np.ndarray | None]:
        sleep(self.pause)
        image = next(self.left, None)
        return image is not None, None if image is None else image[..., ::-1]

    def release(self) -> None: ...
