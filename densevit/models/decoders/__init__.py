"""The decoders, imported so that they register."""

from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.decoders.dpt import DPT
from densevit.models.decoders.linear import Linear
from densevit.models.decoders.pool import PoolTokens

__all__ = ["DPT", "ConvTranspose", "Linear", "PoolTokens"]
