"""Encoders, decoders and heads, imported so that they register, and the model they make together."""

from densevit.models.conditioning import CONDITIONINGS, Conditioning
from densevit.models.decoders import DPT, ConvTranspose, EoMT, Linear, MaskTransformer, PoolTokens, UPerNet
from densevit.models.decoders.base import DECODERS, Decoder
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import ENCODERS, Encoder
from densevit.models.encoders.hybrid import HybridEncoder
from densevit.models.encoders.swin import SwinEncoder
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.heads.base import HEADS, Head
from densevit.models.heads.bins import BinsHead
from densevit.models.heads.depth import AffineHead, DisparityHead, IdentityDepthHead, InverseHead, MetricHead
from densevit.models.heads.image_level import Classifier, FocalHead
from densevit.models.heads.normals import NormalsHead
from densevit.models.heads.segmentation import LabelsHead, MasksHead
from densevit.models.heads.segments import InstancesHead, PanopticHead
from densevit.models.heads.sky import SkyDepthHead

__all__ = [
    "CONDITIONINGS",
    "DECODERS",
    "DPT",
    "ENCODERS",
    "HEADS",
    "AffineHead",
    "BinsHead",
    "Classifier",
    "Conditioning",
    "ConvTranspose",
    "Decoder",
    "DenseModel",
    "DisparityHead",
    "Encoder",
    "EoMT",
    "FocalHead",
    "Head",
    "HybridEncoder",
    "IdentityDepthHead",
    "InstancesHead",
    "InverseHead",
    "LabelsHead",
    "Linear",
    "MaskTransformer",
    "MasksHead",
    "MetricHead",
    "NormalsHead",
    "PanopticHead",
    "PoolTokens",
    "SkyDepthHead",
    "SwinEncoder",
    "TimmEncoder",
    "UPerNet",
    "ViTEncoder",
]
