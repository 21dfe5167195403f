"""timm's Swin Transformers as an encoder: feature maps at strides 4, 8, 16 and 32. b images, h x w pixels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import CheckpointError
from densevit.models.encoders.base import (
    ENCODERS,
    Encoder,
    OutIndices,
    check_one_weight_source,
    load_encoder,
    resolve_out_indices,
)
from densevit.models.lora import Lora
from densevit.ops.resize import pad_to_multiple
from densevit.structures import EncoderOutput, FeatureSpec

Positive = Annotated[int, Field(gt=0)]
ANCHOR = "patch_embed.proj.weight"
# Classifier and final norm of published files.
UNUSED = ("head.weight", "head.bias", "head.fc.weight", "head.fc.bias", "norm.weight", "norm.bias")
NO_WEIGHT_DECAY = ("logit_scale", "relative_position_bias_table")


@ENCODERS.register("swin")
class SwinEncoder(Encoder):
    """Swin and Swin V2: attention in shifted windows, patch merging between stages."""

    def __init__(
        self,
        *,
        name: str,
        pretrained: bool = False,
        weights: Path | None = None,
        out_indices: OutIndices = None,
        drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        image_size: Positive | tuple[Positive, Positive] | None = None,
        arguments: dict[str, bool | int | float | str | tuple[int, ...]] | None = None,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        lora: Lora | None = None,
    ) -> None:
        """Raise ConfigError: no such model, one of another kind, or arguments it does not take. Raises
        CheckpointError: pretrained weights that are neither in a cache nor within reach.

        Args:
            name: name as in `timm.list_models("swin*")`, with or without the tag of its weights.
            pretrained: published weights, from a local cache or the network.
            weights: a local file instead, loaded when the model is built.
            out_indices: stages to return, 0-based, or how many of the last; all by default.
            image_size: side, or (h, w), that limits the window sizes to those of the maps; the encoder takes any size.
            arguments: more for `timm.create_model`.
            mean, std: the model's own unless given.
            lora: low-rank updates of attention and MLP, trained in place of the weights (models/lora.py).
        """
        super().__init__()
        check_one_weight_source(pretrained, weights)
        from densevit.models.timm_adapters import factory

        swin = factory.create_swin(name, pretrained, factory.create_model_kwargs(arguments, drop_path, image_size))
        self.weights, self.lora, self.prefix_tokens = weights, lora, 0
        self.licence = factory.licence_of(name, pretrained, weights)
        card = swin.pretrained_cfg
        self.set_normalisation(mean or card["mean"], std or card["std"])
        self.out_indices = resolve_out_indices(out_indices, len(swin.layers))
        specs = [FeatureSpec(info["num_chs"], info["reduction"], tokens=False) for info in swin.feature_info]
        self.features = [specs[index] for index in self.out_indices]
        self.patch_size = specs[self.out_indices[-1]].stride
        self.unused = set(swin.state_dict())
        swin.layers = swin.layers[: self.out_indices[-1] + 1]
        self.unused -= set(swin.state_dict())
        self.swin: Any = swin

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        from densevit.models.timm_adapters.factory import forward_stages

        x, _ = pad_to_multiple((image - self.mean) / self.std, self.patch_size)
        stages = forward_stages(self.swin, x)
        maps = tuple(stages[index] for index in self.out_indices)
        none = tuple(map_.new_zeros(map_.shape[0], 0, map_.shape[1]) for map_ in maps)
        return EncoderOutput(maps, none, (x.shape[-2], x.shape[-1]))

    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        from densevit.models.timm_adapters.factory import convert

        anchor = next((name for name in state if name.endswith(ANCHOR)), None)
        if anchor is None:
            raise CheckpointError(f"{source}: holds no Swin Transformer; it has no {ANCHOR}.")
        prefix = anchor.removesuffix(ANCHOR)
        weights = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        load_encoder(self.swin, convert(self.swin, weights), source, {*self.unused, *UNUSED})

    def layer_groups(self) -> list[list[nn.Parameter]]:
        blocks = [
            [*(stage.downsample.parameters() if i == 0 else ()), *block.parameters()]
            for stage in self.swin.layers
            for i, block in enumerate(stage.blocks)
        ]
        return [list(self.swin.patch_embed.parameters()), *blocks]

    def no_weight_decay(self) -> set[str]:
        names = (name for name, _ in self.named_parameters())
        return {name for name in names if name.rpartition(".")[2] in NO_WEIGHT_DECAY or ".cpb_mlp." in name}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        for stage in self.swin.layers:
            stage.grad_checkpointing = enable
