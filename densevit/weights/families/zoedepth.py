"""ZoeDepth (Bhat et al. 2023): metres, from MiDaS on BEiT-L; N for NYU, K for KITTI, NK with bins for both.

https://github.com/isl-org/ZoeDepth
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from densevit.preprocess_config import PreprocessConfig
from densevit.weights.external import FAMILIES, ConvertedCheckpoint, Family, RawCheckpoint
from densevit.weights.families.dpt_keys import MULTIPLE, WIDTHS, decoder_options, key_mapping
from densevit.weights.families.midas import BEIT, BEIT_RULES, BUFFERS, beit_options
from densevit.weights.key_mapping import KeyMapping, Rule

CORE = "core.core."
ROUTER = "patch_transformer.embedding_convPxP.weight"
MARKS = (CORE + BEIT, CORE + "scratch.output_conv.2.weight", "conv2.weight", "projectors.3._net.2.weight")
# What bins belong to, in the order of the router's answers.
DOMAINS = ("nyu", "kitti")
# Parts of the decoder with weights for each domain, stacked in one tensor; `embeddings` are shared.
PIXELWISE = ("decoder.seed.", "decoder.attract.", "decoder.shares.", "decoder.embeddings.")
SHARED = "decoder.embeddings."


def mlp(theirs: str, ours: str) -> tuple[Rule, ...]:
    """Return two layers, of which theirs are numbered around an activation."""
    return ((f"{theirs}.0.*", f"{ours}.first.*"), (f"{theirs}.2.*", f"{ours}.second.*"))


RULES: tuple[Rule, ...] = (
    ("scratch.output_conv.0.*", "decoder.before.*"),
    ("scratch.output_conv.2.*", "decoder.after.*"),
    ("scratch.output_conv.4.*", "decoder.relative.*"),
    ("conv2.*", "decoder.bottom.*"),
    *mlp("seed_bin_regressor._net", "decoder.seed.mlp"),
    *mlp("seed_bin_regressors._net", "decoder.seed.mlp"),
    *mlp("seed_projector._net", "decoder.embeddings.0"),
    *(rule for i in range(4) for rule in mlp(f"projectors.{i}._net", f"decoder.embeddings.{i + 1}")),
    *mlp("attractors.{i}._net", "decoder.attract.{i}.mlp"),
    *mlp("conditional_log_binomial.mlp", "decoder.shares"),
    ("patch_transformer.embedding_convPxP.*", "decoder.router.embed.*"),
    ("patch_transformer.transformer_encoder.layers.{i}.*", "decoder.router.blocks.{i}.*"),
    ("mlp_classifier.*", "decoder.router.classify.*"),
    *BEIT_RULES,
)
OF_DPT = ("channels", "hidden", "readout")  # options of the decoder `dpt` that `zoedepth` has, too
CONSTANTS = "conditional_log_binomial.log_binomial_transform.*"


class ZoeDepth(Family):
    """Base class."""

    licence = "MIT"
    # of the network's input; `centres`: kind of bins; `relative`: whether MiDaS' prediction is used
    size: ClassVar[tuple[int, int]] = (384, 512)
    centres: ClassVar[str] = "softplus"
    relative: ClassVar[bool] = True
    trained_on: ClassVar[str]
    max_depth: float | None = None

    def __init__(self, *, margin: bool = True, flip: bool = True) -> None:
        """
        Args:
            margin: pad images by reflection; `flip`: average with the flipped image. Its `infer` does both by default.
        """
        self.margin, self.flip = margin, flip

    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        domains = DOMAINS if ROUTER in raw.tensors else ("",)
        bins = [name for domain in domains for name in bin_tensor_names(domain)]
        raw.need(*MARKS, *(CORE + name for name in WIDTHS), *bins)
        unused = (*BUFFERS, CONSTANTS, *(() if self.relative else ("scratch.output_conv.4.*",)))
        names = key_mapping(head=RULES, decoder="decoder.dpt", unused=unused)
        tensors = merge_domains(raw.tensors, names)
        encoder, dpt = beit_options(raw, CORE), decoder_options(tensors, "decoder.dpt")
        return ConvertedCheckpoint(
            model={
                "encoder": encoder,
                "decoder": {"type": "zoedepth", **{key: dpt[key] for key in OF_DPT}, **self.bins(tensors)},
                "heads": {"depth": {"type": "identity_depth", "max_depth": self.max_depth}},
            },
            tensors=tensors,
            resize=PreprocessConfig(
                mode="minimal",
                size=self.size,
                interpolation="bilinear",
                align_corners=True,
                output_interpolation="bicubic",
                margin=3.0 if self.margin else 0.0,
                flip=self.flip,
            ),
            multiple=MULTIPLE,
            source=f"{type(self).__name__} (isl-org/ZoeDepth)",
            licence=self.licence,
            trained_on=self.trained_on,
        )

    def bins(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the options of the decoder for tensors under its names."""
        experts, bins, seed = tensors["decoder.seed.mlp.second.weight"].shape
        _, embedding, embed = tensors["decoder.embeddings.0.second.weight"].shape
        points = [tensors[f"decoder.attract.{i}.mlp.second.weight"].shape[1] for i in range(4)]
        attract = tensors["decoder.attract.0.mlp.first.weight"].shape[1]
        weigh = tensors["decoder.shares.first.weight"].shape[1]
        return {
            "head_hidden": tensors["decoder.after.weight"].shape[0],
            "relative": self.relative,
            "bins": bins,
            "embedding": embedding,
            "attractors": [count // 2 for count in points] if self.centres == "normed" else points,
            "widths": (seed, embed, attract, weigh),
            "centres": self.centres,
            "experts": experts,
            **({} if self.max_depth is None else {"max_depth": self.max_depth}),
        }


@FAMILIES.register("zoedepth-n")
class ZoeDepthN(ZoeDepth):
    """Indoors, with unbounded bins."""

    description = "ZoeDepth-N, or another with unlimited bins: metres indoors"
    trained_on = "MIX 12, then NYU"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return looks_like(raw) and attractor_widths(raw) != [32, 16, 8, 2]


@FAMILIES.register("zoedepth-k")
class ZoeDepthK(ZoeDepth):
    """Outdoors, with bins that partition a range that the file does not hold."""

    description = "ZoeDepth-K, or another with bins that divide a range: metres, up to 80 or a max_depth"
    size = (384, 768)
    centres = "normed"
    trained_on = "MIX 12, then KITTI"

    def __init__(
        self,
        *,
        max_depth: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 80.0,
        margin: bool = True,
        flip: bool = True,
    ) -> None:
        """
        Args:
            max_depth: 80 as published.
            margin, flip: as in ZoeDepth-N.
        """
        super().__init__(margin=margin, flip=flip)
        self.max_depth = max_depth

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return looks_like(raw) and all(count % 2 == 0 for count in attractor_widths(raw))


@FAMILIES.register("zoedepth-nk")
class ZoeDepthNK(ZoeDepth):
    """Both, by a router that decides for each image (the original: once for a batch)."""

    description = "ZoeDepth-NK: metres, with bins for indoors and outdoors"
    relative = False
    trained_on = "MIX 12, then NYU and KITTI"

    @classmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        return ROUTER in raw.tensors and CORE + BEIT in raw.tensors


def looks_like(raw: RawCheckpoint) -> bool:
    return raw.has(*MARKS, *bin_tensor_names(""))


def bin_tensor_names(domain: str) -> list[str]:
    """Return the tensors from whose shapes the options of the bins are read."""
    dot, plural = (f".{domain}", "s") if domain else ("", "")
    seeds = [f"seed_bin_regressor{plural}{dot}._net.2.weight", "seed_projector._net.2.weight"]
    attractors = [f"attractors{dot}.{i}._net.2.weight" for i in range(4)]
    return [*seeds, *attractors, f"attractors{dot}.0._net.0.weight", f"conditional_log_binomial{dot}.mlp.0.weight"]


def attractor_widths(raw: RawCheckpoint) -> list[int]:
    """Return the output channels of the attractors of each level."""
    return [raw.shape(f"attractors.{i}._net.2.weight")[0] for i in range(4)]


def merge_domains(theirs: Mapping[str, Tensor], names: KeyMapping) -> dict[str, Tensor]:
    """Return the weights under our names, with the weights of the domains stacked."""
    domains = DOMAINS if ROUTER in theirs else ("",)
    every = [names.to_densevit(domain_tensors(theirs, domain)) for domain in domains]
    tensors = {}
    for name, tensor in every[0].items():
        if not name.startswith(PIXELWISE):
            tensors[name] = tensor
        elif all(name in one for one in every):
            stacked = torch.stack([one[name] for one in (every[:1] if name.startswith(SHARED) else every)])
            tensors[name] = stacked.flatten(2) if name.endswith(".weight") else stacked
    return tensors


def domain_tensors(theirs: Mapping[str, Tensor], domain: str) -> dict[str, Tensor]:
    """Return the shared tensors and those of one domain, without the prefix of the core."""
    others = tuple(f".{name}." for name in DOMAINS if name != domain)
    return {
        name.removeprefix(CORE).replace(f".{domain}.", ".") if domain else name.removeprefix(CORE): tensor
        for name, tensor in theirs.items()
        if not any(other in name for other in others)
    }
