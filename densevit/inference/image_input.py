"""One image to predict, with what is known of it."""

from dataclasses import dataclass, field

from densevit.data.io.rgb import Rgb
from densevit.inference.camera import CameraNumbers
from densevit.inference.measured_points import Points
from densevit.model_inputs import ModelInputs


@dataclass(frozen=True, eq=False)
class ImageInput:
    """One image to predict, with what is known of it.

    Attributes:
        camera: its focal length in pixels: one number, along x and y, or fx, fy, cx, cy; None where it is not known.
        points: depth measured at some of its pixels, as `Predictor.__call__` takes it.
        inputs: what else the model takes beside images, as of a batch of one.
    """

    image: Rgb
    camera: CameraNumbers | None = None
    points: Points | None = None
    inputs: ModelInputs = field(default_factory=dict)
