"""Self-distillation of the DINOv2 kind. b images, h x w pixels, n patches, d channels, k prototypes."""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from densevit.engine.objective import OBJECTIVES
from densevit.errors import ConfigError
from densevit.losses.pretraining import dino_loss, ibot_loss, koleo_loss
from densevit.models.encoders.base import Encoder
from densevit.objectives.pretraining.base import PretrainingMethod, average_into
from densevit.objectives.pretraining.views import block_masks, distort, random_resized_crop
from densevit.structures import Size

Positive = Annotated[int, Field(gt=0, le=2**20)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Scale = tuple[PositiveShare, PositiveShare]
CENTRE_MOMENTUM = 0.9


class Tokens(NamedTuple):
    """What an encoder says of images; the class token is the mean of the patches where it has none."""

    image: Float[Tensor, "b d"]
    patches: Float[Tensor, "b n d"]


class DinoHead(nn.Module):
    """Three linear layers to a unit vector, and its products with k unit prototypes."""

    def __init__(self, dim: int, hidden: int, bottleneck: int, prototypes: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, bottleneck)
        )
        self.prototypes = nn.Parameter(torch.empty(prototypes, bottleneck))
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.trunc_normal_(parameter, std=0.02)
            else:
                nn.init.zeros_(parameter)

    def forward(self, x: Float[Tensor, "*b d"], *, freeze_prototypes: bool = False) -> Float[Tensor, "*b k"]:
        prototypes = self.prototypes.detach() if freeze_prototypes else self.prototypes
        return F.linear(F.normalize(self.mlp(x), dim=-1, eps=1e-6), F.normalize(prototypes, dim=-1))


@OBJECTIVES.register("dino")
class SelfDistillation(PretrainingMethod):
    """A student matches a teacher, its own moving average, across views of an image (DINOv2, Oquab et al. 2023).

    Class tokens of all views (DINO), masked patches of the two large ones (iBOT), and KoLeo, which spreads the features
    of a batch. For every encoder: a masked patch is replaced in the image by learned pixels. The teacher's outputs are
    centred by their moving average. Works from any start: for one's own few images start from good weights with a small
    rate.
    """

    centre: Tensor
    patch_centre: Tensor
    averaged_at: Tensor
    running_statistics = ("centre", "patch_centre")  # which a skipped step leaves as they were

    def __init__(
        self,
        encoder: Encoder,
        *,
        prototypes: Positive = 4096,
        hidden: Positive = 1024,
        bottleneck: Positive = 256,
        global_size: tuple[Positive, Positive] | None = None,
        local_size: tuple[Positive, Positive] | None = None,
        local_crops: Annotated[int, Field(ge=0, le=64)] = 4,
        global_scale: Scale = (0.32, 1.0),
        local_scale: Scale = (0.05, 0.32),
        momentum: Share = 0.994,
        teacher_temperature: tuple[PositiveShare, PositiveShare] = (0.04, 0.07),
        warmup: Share = 0.3,
        freeze_prototypes: Share = 0.01,
        mask_probability: Share = 0.5,
        mask_ratio: tuple[Share, Share] = (0.1, 0.5),
        ibot_weight: Annotated[float, Field(ge=0)] = 1.0,
        koleo_weight: Annotated[float, Field(ge=0)] = 0.1,
    ) -> None:
        """Raise ConfigError: sizes of views that are no multiples of the patch size.

        Args:
            prototypes, hidden, bottleneck: of the heads; DINOv2 has 65,536, 2048 and 256; few images fill few.
            global_size: (h, w) of the two large views; by default that of the images. A multiple of the patch size.
            local_size: side of the small views; by default about 3/7 of `global_size`, as 96 of 224.
            local_crops: number of small views.
            global_scale, local_scale: share of the image's area in a large and a small view.
            momentum: momentum of the teacher at first; rises to 1 by a cosine.
            teacher_temperature: temperature at first, and after `warmup`, a share of the steps.
            freeze_prototypes: share of the steps in which the prototypes stay as they are.
            mask_probability: probability that a large view is masked for iBOT; mask_ratio: share of its patches.
            ibot_weight, koleo_weight: of their losses; that of DINO is 1.
        """
        super().__init__()
        self.patch = max(spec.stride for spec in encoder.features)
        for name, size in (("global_size", global_size), ("local_size", local_size)):
            if size and (size[0] % self.patch or size[1] % self.patch):
                raise ConfigError(f"objective.{name}: sides are multiples of {self.patch}, got {list(size)}.")
        self.global_size, self.local_size, self.local_crops = global_size, local_size, local_crops
        self.global_scale, self.local_scale = global_scale, local_scale
        self.momentum, self.teacher_temperature, self.warmup = momentum, teacher_temperature, warmup
        self.freeze_prototypes = freeze_prototypes
        self.mask_probability, self.mask_ratio = mask_probability, mask_ratio
        self.ibot_weight, self.koleo_weight = ibot_weight, koleo_weight
        self.uses_all_parameters = ibot_weight > 0 and not freeze_prototypes
        dim = encoder.features[-1].channels
        self.mask_patch = nn.Parameter(encoder.mean.detach().clone()[0].expand(3, self.patch, self.patch).clone())
        self.heads = nn.ModuleDict({name: DinoHead(dim, hidden, bottleneck, prototypes) for name in ("image", "patch")})
        self.teacher = deepcopy(encoder).requires_grad_(False)
        self.teacher_heads = deepcopy(self.heads).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(prototypes))
        self.register_buffer("patch_centre", torch.zeros(prototypes))
        self.register_buffer("averaged_at", torch.zeros((), dtype=torch.float64))

    def forward(self, encoder: Encoder, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        self.update_teacher(encoder)
        size = self.global_size or self.whole_patches((image.shape[-2], image.shape[-1]))
        views = torch.cat([self.view(image, size, self.global_scale, *how) for how in ((1.0, 0.0), (0.1, 0.2))])
        grid = (size[0] // self.patch, size[1] // self.patch)
        mask = block_masks(
            len(views), grid, probability=self.mask_probability, ratio=self.mask_ratio, device=image.device
        )
        with torch.no_grad():
            target_image, target_patches = self.targets(views, mask.flatten(1))
        seen = self.tokens(encoder, self.hide(views, mask), grid)
        frozen = self.progress < self.freeze_prototypes
        heads = self.heads
        logits = [torch.unflatten(heads["image"](seen.image, freeze_prototypes=frozen), 0, (2, -1))]
        if self.local_crops:
            local = self.local_size or self.whole_patches((round(size[0] * 3 / 7), round(size[1] * 3 / 7)))
            small = [self.view(image, local, self.local_scale, 0.5) for _ in range(self.local_crops)]
            cells = (local[0] // self.patch, local[1] // self.patch)
            tokens = self.tokens(encoder, torch.cat(small), cells).image
            crops = heads["image"](tokens, freeze_prototypes=frozen)
            logits.append(torch.unflatten(crops, 0, (self.local_crops, -1)))
        losses = {"dino": dino_loss(torch.cat(logits), torch.unflatten(target_image, 0, (2, -1)))}
        if self.ibot_weight:
            patches = heads["patch"](seen.patches, freeze_prototypes=frozen)
            losses["ibot"] = self.ibot_weight * ibot_loss(patches, target_patches, mask.flatten(1))
        if self.koleo_weight:
            losses["koleo"] = self.koleo_weight * sum(map(koleo_loss, seen.image.chunk(2)))  # type: ignore[assignment]
        return losses

    @classmethod
    def fewest_images(cls, options: Mapping[str, Any]) -> int:
        return 2 if options["koleo_weight"] else 1  # it compares neighbours

    def view(
        self, image: Float[Tensor, "b 3 h w"], size: Size, scale: Scale, blur: float, solarize: float = 0.0
    ) -> Float[Tensor, "b 3 height width"]:
        return distort(random_resized_crop(image, size, scale), blur=blur, solarize=solarize)

    def whole_patches(self, size: Size) -> Size:
        """Return the nearest size of whole patches, one at least."""
        h, w = (max(1, round(side / self.patch)) * self.patch for side in size)
        return h, w

    def hide(self, image: Float[Tensor, "b 3 h w"], mask: Bool[Tensor, "b rows columns"]) -> Float[Tensor, "b 3 h w"]:
        """Return the image with learned pixels in place of masked patches."""
        pixels = mask.repeat_interleave(self.patch, 1).repeat_interleave(self.patch, 2)[:, None]
        return torch.where(pixels, self.mask_patch.to(image.dtype).repeat(1, *mask.shape[1:]), image)

    def tokens(self, encoder: Encoder, image: Float[Tensor, "b 3 h w"], grid: Size) -> Tokens:
        output = encoder(image)
        patches = output.maps[-1].flatten(2).transpose(1, 2)
        assert output.maps[-1].shape[-2:] == grid or not self.ibot_weight
        prefix = output.prefix[-1]
        return Tokens(prefix[:, 0] if prefix.shape[1] else patches.mean(1), patches)

    def targets(
        self, views: Float[Tensor, "b 3 h w"], mask: Bool[Tensor, "b n"]
    ) -> tuple[Float[Tensor, "b k"], Float[Tensor, "b n k"]]:
        """Return the teacher's probabilities, centred and sharpened; the centres move towards its outputs."""
        first, last = self.teacher_temperature
        temperature = first + (last - first) * min(1.0, self.progress / self.warmup if self.warmup else 1.0)
        self.teacher.eval()
        grid = (views.shape[-2] // self.patch, views.shape[-1] // self.patch)
        tokens = self.tokens(self.teacher, views, grid)
        image = self.teacher_heads["image"](tokens.image).float()
        patches = self.teacher_heads["patch"](tokens.patches).float()
        probabilities = ((image - self.centre) / temperature).softmax(-1)
        patch_probabilities = ((patches - self.patch_centre) / temperature).softmax(-1)
        move_centre(self.centre, image.mean(0))
        weight = mask.sum().clamp(min=1)
        move_centre(self.patch_centre, (patches * mask[..., None]).sum((0, 1)) / weight, mask.any())
        return probabilities, patch_probabilities

    @torch.no_grad()
    def update_teacher(self, encoder: Encoder) -> None:
        """Update once for each step that was taken, whatever the number of micro-batches."""
        if self.progress != float(self.averaged_at):  # less, where a run is resumed with more steps
            momentum = 1 - (1 - self.momentum) * (math.cos(math.pi * self.progress) + 1) / 2
            average_into(self.teacher, encoder, momentum)
            average_into(self.teacher_heads, self.heads, momentum)
            self.averaged_at.fill_(self.progress)


def move_centre(centre: Float[Tensor, " k"], mean: Float[Tensor, " k"], applies: Tensor | bool = True) -> None:
    """Move the centre in place, over all processes; a mean that is not finite changes nothing."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(mean)
        mean = mean / dist.get_world_size()
    moved = centre.lerp(mean, 1 - CENTRE_MOMENTUM)
    centre.copy_(torch.where(torch.as_tensor(applies, device=mean.device) & mean.isfinite().all(), moved, centre))
