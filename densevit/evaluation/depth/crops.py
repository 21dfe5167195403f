"""The parts of a frame in which protocols score depth."""

from dataclasses import dataclass

from densevit.errors import DataError
from densevit.ops.crops import KB
from densevit.structures import Box, Size


@dataclass(frozen=True)
class RelativeBox:
    """A box given by shares of the frame's sides, cut down to whole pixels; defined at every size."""

    y0: float
    y1: float
    x0: float
    x1: float
    name: str = "shares"

    def box(self, size: Size) -> Box:
        h, w = size
        return int(self.y0 * h), int(self.y1 * h), int(self.x0 * w), int(self.x1 * w)

    def describe(self, of: str) -> str:
        return f"in {self.y0:.1%} to {self.y1:.1%} of the {of}'s height and {self.x0:.1%} to {self.x1:.1%} of its width"


@dataclass(frozen=True)
class FixedBox:
    """A box of given pixels in frames of one size; in another it would mean another region."""

    pixels: Box
    frame: Size
    name: str = "box"

    def box(self, size: Size) -> Box:
        """Raises DataError if the frame has another size."""
        if size != self.frame:
            raise DataError(
                f"the box {box_text(self.pixels)} belongs to {self.frame[0]}x{self.frame[1]} frames, and this "
                f"ground truth is {size[0]}x{size[1]}. Score it at that size, or under the protocol 'plain'."
            )
        return self.pixels

    def describe(self, of: str) -> str:
        return f"in {box_text(self.pixels)} of the {self.frame[0]}x{self.frame[1]} {of}"


GARG = RelativeBox(0.40810811, 0.99189189, 0.03594771, 0.96405229, "Garg")  # Garg et al. 2016
EIGEN_KITTI = RelativeBox(0.3324324, 0.91351351, 0.0359477, 0.96405229, "Eigen")  # Eigen et al. 2014
EIGEN_NYU = FixedBox((45, 471, 41, 601), (480, 640), "Eigen")

KB_WINDOW = FixedBox((0, 352, 0, 1216), KB, "window")


def box_text(box: Box) -> str:
    return f"rows {box[0]}:{box[1]}, columns {box[2]}:{box[3]}"
