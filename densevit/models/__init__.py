"""Encoders, decoders and heads, imported so that they register, and the model they make together."""

from densevit.models.bins_head import BinsHead
from densevit.models.classifier import Classifier
from densevit.models.decoder import DECODERS, Decoder
from densevit.models.decoders import DPT, ConvTranspose, EoMT, Linear, MaskTransformer, PoolTokens
from densevit.models.dense import DenseModel
from densevit.models.encoder import ENCODERS, Encoder
from densevit.models.heads import HEADS, AffineHead, DisparityHead, Head, MetricHead
from densevit.models.hybrid_encoder import HybridEncoder
from densevit.models.labels_head import LabelsHead
from densevit.models.masks_head import MasksHead
from densevit.models.metric_heads import InverseHead, MetresHead
from densevit.models.sky_head import SkyDepthHead
from densevit.models.swin_encoder import SwinEncoder
from densevit.models.timm_encoder import TimmEncoder
from densevit.models.vit_encoder import ViTEncoder

__all__ = [
    "DECODERS",
    "DPT",
    "ENCODERS",
    "HEADS",
    "AffineHead",
    "BinsHead",
    "Classifier",
    "ConvTranspose",
    "Decoder",
    "DenseModel",
    "DisparityHead",
    "Encoder",
    "EoMT",
    "Head",
    "HybridEncoder",
    "InverseHead",
    "LabelsHead",
    "Linear",
    "MaskTransformer",
    "MasksHead",
    "MetresHead",
    "MetricHead",
    "PoolTokens",
    "SkyDepthHead",
    "SwinEncoder",
    "TimmEncoder",
    "ViTEncoder",
]
