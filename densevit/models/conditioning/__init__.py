"""What models do with inputs beside images, imported so that they register."""

from densevit.models.conditioning.base import CONDITIONINGS, Conditioning
from densevit.models.conditioning.motion import Motion
from densevit.models.conditioning.points import Points
from densevit.models.conditioning.rays import Rays

__all__ = ["CONDITIONINGS", "Conditioning", "Motion", "Points", "Rays"]
