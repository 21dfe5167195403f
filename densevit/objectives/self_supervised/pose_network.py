"""A network that estimates the motion between two frames. b pairs, h x w pixels, colours in [0, 1]."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import CheckpointError, ConfigError
from densevit.objectives.self_supervised.geometry import Motion, rigid, rotation_of

GROUPS = 32  # of norms, or as many as divide the channels: resnet10t's stem has 24
INITIAL_SIZE = 0.01  # of outputs: depth collapses where motions start too large (Monodepth2)


class PoseNetwork(nn.Module):
    """A ResNet of timm on two frames, whose last layer gives axis times angle and translation.

    Without published weights it has group norms; with them its batch norms keep their statistics. So the motion of a
    pair does not depend on the batch, however that is split over processes.
    """

    def __init__(self, name: str, *, pretrained: bool) -> None:
        """Raises ConfigError if timm has no such ResNet, CheckpointError if its weights cannot be had."""
        super().__init__()
        if not name.startswith("resnet"):
            raise ConfigError(f"objective.pose_network: a ResNet of timm, resnet18 say, got '{name}'.")
        from timm.layers.norm import GroupNorm  # timm takes seconds to import

        from densevit.models.timm_adapters import factory

        def group_norm(channels: int, **options: Any) -> nn.Module:
            return GroupNorm(channels, math.gcd(GROUPS, channels), **options)

        norm = {} if pretrained else {"norm_layer": group_norm}
        options = {"in_chans": 6, "num_classes": 6, **norm}
        try:
            self.network: nn.Module = factory.create_model(name, factory.pretrained_cfg_of(name), pretrained, options)
        except CheckpointError as error:
            raise CheckpointError(
                f"objective.pretrained: timm's weights of {name} are not cached, and the hub is unreachable; "
                "set objective.pretrained=false."
            ) from error

    def train(self, mode: bool = True) -> "PoseNetwork":
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, first: Float[Tensor, "b 3 h w"], second: Float[Tensor, "b 3 h w"]) -> Motion:
        """Return the motions from each first frame's camera to that of the second, which comes later."""
        numbers = INITIAL_SIZE * self.network((torch.cat([first, second], 1) - 0.45) / 0.225).float()
        return rigid(rotation_of(numbers[:, :3]), numbers[:, 3:])
