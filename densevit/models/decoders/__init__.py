"""The decoders, imported so that they register."""

from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.decoders.dpt import DPT
from densevit.models.decoders.eomt import EoMT
from densevit.models.decoders.linear import Linear
from densevit.models.decoders.mask_transformer import MaskTransformer
from densevit.models.decoders.pool import PoolTokens
from densevit.models.decoders.upernet import UPerNet
from densevit.models.decoders.zoedepth import ZoeDepth

__all__ = ["DPT", "ConvTranspose", "EoMT", "Linear", "MaskTransformer", "PoolTokens", "UPerNet", "ZoeDepth"]
