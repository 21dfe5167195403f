"""A second classifier, in the middle of the decoder, taught beside the one that answers (PSPNet, Zhao et al. 2017)."""

from collections.abc import Mapping

from torch import Tensor

from densevit.errors import ConfigError
from densevit.losses.segmentation import LABEL_LOSSES, CrossEntropy, Labels, Logits, Scalar


@LABEL_LOSSES.register("auxiliary")
class Auxiliary(CrossEntropy):
    """Cross entropy of the decoder's `auxiliary` logits; DPT weighs it 0.2, mmseg 0.4."""

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        """
        Raises:
            ConfigError: the decoder has no auxiliary classifier.
        """
        if "auxiliary" not in extras:
            raise ConfigError("losses: 'auxiliary' needs a decoder with a second classifier; 'dpt' can have one.")
        return super().forward(extras["auxiliary"], labels, extras)
