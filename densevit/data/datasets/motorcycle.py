"""`motorcycle`: scikit-image's bundled stereo photograph with its measured depth, one real metric sample (500 x 741).

The pair is of the Middlebury 2014 set (Scharstein et al., GCPR 2014), measured by structured light: 2.1 to 5 m.
"""

import numpy as np

from densevit.data.datasets.base import DATASETS, Dataset
from densevit.errors import DataError
from densevit.ops.geometry import pinhole
from densevit.structures import Sample

# Calibration of the left camera at the bundled size, from scikit-image's docstring of `stereo_motorcycle`.
FOCAL, CX, CY = 994.978, 311.193, 254.877  # pixels
OFFSET = 31.086  # pixels between the two cameras' principal points
BASELINE = 0.193001  # metres


@DATASETS.register("middlebury_motorcycle")
class Motorcycle(Dataset):
    """The left view with depth z = f B / (disparity + offset)."""

    depth_range = (1.0, 10.0)

    def __init__(self) -> None:
        self.names = ["motorcycle"]

    def read(self, index: int) -> Sample:
        from skimage import data  # heavy

        try:
            left, _, disparity = data.stereo_motorcycle()  # type: ignore[no-untyped-call]
        except Exception as error:  # the loader's errors are of many kinds; an installation without the file is one
            raise DataError(f"scikit-image's stereo_motorcycle cannot be read ({error}).") from error
        # Unmeasured is inf in the file, whereas the docstring says NaN.
        valid = np.isfinite(disparity) & (disparity + OFFSET > 0)
        depth = np.zeros(disparity.shape, np.float32)
        depth[valid] = FOCAL * BASELINE / (disparity[valid] + OFFSET)
        intrinsics = pinhole(FOCAL, FOCAL, CX, CY)
        return Sample(name=self.names[index], image=left, depth=depth, valid=valid, intrinsics=intrinsics)
