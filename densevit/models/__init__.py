"""Encoders, decoders and heads, imported so that they register, and the model they make together."""

from densevit.models.classifier import Classifier
from densevit.models.decoder import DECODERS, Decoder
from densevit.models.decoders import DPT, ConvTranspose, Linear, PoolTokens
from densevit.models.dense import DenseModel
from densevit.models.encoder import ENCODERS, Encoder
from densevit.models.heads import HEADS, AffineHead, BinsHead, DisparityHead, Head, MetricHead
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
    "Head",
    "Linear",
    "MetricHead",
    "PoolTokens",
    "TimmEncoder",
    "ViTEncoder",
]
