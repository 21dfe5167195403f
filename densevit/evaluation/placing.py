"""Predictions brought onto the frame of their truth. h x w pixels; sizes are (h, w)."""

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional as F

from densevit.errors import DataError
from densevit.evaluation.regions import Box, Size


def place(prediction: Float[np.ndarray, "_ _"], size: Size, window: Box) -> tuple[Float[np.ndarray, "_ _"], bool]:
    """A prediction on a frame of `size`, 0 where it says nothing, and whether it had to be resized.

    One of the frame's size is the frame and one of the window's size is the window, pasted into place. Any other is
    the window at another resolution.

    Raises:
        DataError: a prediction that lies across its frame.
    """
    if prediction.shape == size:
        return prediction, False
    y0, y1, x0, x1 = window
    inside = (y1 - y0, x1 - x0)
    resized = prediction.shape != inside
    frame = np.zeros(size, np.float32)
    frame[y0:y1, x0:x1] = stretch(prediction, inside) if resized else prediction
    return frame, resized


def stretch(prediction: Float[np.ndarray, "_ _"], size: Size) -> Float[np.ndarray, "_ _"]:
    """Bilinear, corners on corners, as AdaBins and ZoeDepth resize before they score.

    Raises:
        DataError: one is upright and the other lies.
    """
    h, w = prediction.shape
    if (h - w) * (size[0] - size[1]) < 0:
        raise DataError(f"the prediction is {h}x{w} where {size[0]}x{size[1]} fits: is it transposed?")
    maps = torch.from_numpy(np.ascontiguousarray(prediction, np.float32))[None, None]
    stretched: Float[np.ndarray, "_ _"] = F.interpolate(maps, size, mode="bilinear", align_corners=True)[0, 0].numpy()
    return stretched
