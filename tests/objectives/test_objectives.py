"""Masked autoencoding and self-distillation on tiny encoders."""

import math
from copy import deepcopy
from typing import Any

import pytest
import torch

from densevit.errors import ConfigError
from densevit.losses.pretraining import masked_patch_mse, normalise_patches, patchify
from densevit.models.encoders.base import ENCODERS, Encoder, TokenEncoder
from densevit.objectives.pretraining import views
from densevit.objectives.pretraining.dino import SelfDistillation
from densevit.objectives.pretraining.mae import MaskedAutoencoder, blank_patches, random_mask

VIT = {"type": "vit", "dim": 32, "depth": 2, "heads": 2, "patch_size": 16, "image_size": 64}
TIMM = {"type": "timm", "arguments": {"depth": 2}}
NARROW = {"embed_dim": 24, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8]}
SWIN = {"type": "swin", "name": "swin_tiny_patch4_window7_224", "image_size": 64, "arguments": NARROW}
VITS = [
    VIT,
    VIT | {"registers": 2, "stem": "conv"},
    TIMM | {"name": "vit_tiny_patch16_224"},
    TIMM | {"name": "vit_small_patch16_dinov3"},
    TIMM | {"name": "eva02_tiny_patch14_224"},
]
SMALL_DINO: dict[str, Any] = {"prototypes": 32, "hidden": 16, "bottleneck": 8, "local_crops": 2}


def build(spec: dict[str, Any]) -> Encoder:
    torch.manual_seed(0)
    return ENCODERS.check(spec, "encoder").build()


@pytest.mark.parametrize("spec", VITS, ids=str)
def test_visible_tokens_are_the_encoder_s_own_where_all_patches_are_kept(spec: dict[str, Any]) -> None:
    encoder = build(spec).eval()
    assert isinstance(encoder, TokenEncoder)
    side = 4 * encoder.patch_size
    image = torch.rand(2, 3, side, side)
    whole = encoder(image)
    order = torch.stack([torch.randperm(16), torch.arange(16)])
    tokens = encoder.visible_tokens((image - encoder.mean) / encoder.std, order)
    patches = whole.maps[-1].flatten(2).transpose(1, 2)
    assert torch.allclose(tokens[:, : encoder.prefix_tokens], whole.prefix[-1], atol=1e-5)
    for i in range(2):
        assert torch.allclose(tokens[i, encoder.prefix_tokens :], patches[i, order[i]], atol=1e-5)
    few = encoder.visible_tokens((image - encoder.mean) / encoder.std, order[:, :4])
    assert few.shape[1] == encoder.prefix_tokens + 4


def test_masks_keep_a_share_of_the_patches_of_each_image() -> None:
    kept, mask = random_mask(3, 20, 0.75, torch.device("cpu"))
    assert kept.shape == (3, 5)
    assert mask.sum(1).tolist() == [15, 15, 15]
    assert not mask.gather(1, kept).any()
    assert len({tuple(row) for row in kept.tolist()}) == 3
    assert random_mask(2, 16, 0.01, torch.device("cpu"))[1].sum(1).tolist() == [1, 1]  # none would be a loss of 0 / 0


@pytest.mark.parametrize("stem", ["patch", "conv"])
def test_mae_sees_no_masked_pixels(stem: str) -> None:
    """The loss as its formula, with the mask drawn again; and pixels of masked patches do not matter for it."""
    encoder = build(VIT | {"stem": stem}).eval()
    objective = MaskedAutoencoder(encoder, dim=32, depth=1, heads=2).eval()
    image = torch.rand(2, 3, 64, 64)
    torch.manual_seed(1)
    loss = objective(encoder, image)["mae"]
    torch.manual_seed(1)
    kept, mask = random_mask(2, 16, 0.75, torch.device("cpu"))
    x = (image - encoder.mean) / encoder.std
    target = normalise_patches(patchify(x, 16))
    hidden = mask.reshape(2, 1, 4, 4).repeat_interleave(16, 2).repeat_interleave(16, 3)
    blank = torch.where(hidden, 0.0, x)
    prediction = objective.decode(encoder.visible_tokens(blank, kept), kept, (4, 4))  # type: ignore[attr-defined]
    assert torch.allclose(loss, masked_patch_mse(prediction, target, mask), rtol=1e-5)
    assert torch.equal(blank_patches(torch.where(hidden, torch.rand_like(x), x), mask.reshape(2, 4, 4), 16), blank)
    if stem == "patch":  # a patch by itself: masked ones need not be blank
        whole = objective.decode(encoder.visible_tokens(x, kept), kept, (4, 4))  # type: ignore[attr-defined]
        assert torch.equal(prediction, whole)
    loss.backward()
    assert [name for name, p in [*encoder.named_parameters(), *objective.named_parameters()] if p.grad is None] == []


def test_mae_learns_to_fill_in_a_gradient() -> None:
    encoder = build(VIT)
    objective = MaskedAutoencoder(encoder, dim=32, depth=1, heads=2, norm_pixels=False)
    image = torch.linspace(0, 1, 64).expand(8, 3, 64, 64)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *objective.parameters()], lr=3e-3)
    losses = []
    for _ in range(30):
        loss = objective(encoder, image)["mae"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.4 * losses[0]


def test_mae_refuses_encoders_that_need_all_patches() -> None:
    with pytest.raises(ConfigError, match="take dino"):
        MaskedAutoencoder(build(TIMM | {"name": "beit_base_patch16_224"}))
    with pytest.raises(ConfigError, match="take dino for others"):
        MaskedAutoencoder(build(SWIN))


@pytest.mark.parametrize(
    "spec",
    [VIT, VIT | {"class_token": False}, SWIN],
    ids=["vit", "no class token", "swin"],
)
def test_self_distillation_trains_student_and_heads_and_never_the_teacher(spec: dict[str, Any]) -> None:
    encoder = build(spec)
    objective = SelfDistillation(encoder, **SMALL_DINO, global_size=(64, 64), local_size=(32, 32), mask_probability=1.0)
    objective.on_train_step(0.5)
    losses = objective(encoder, torch.rand(4, 3, 64, 64))
    assert losses.keys() == {"dino", "ibot", "koleo"}
    assert all(loss.isfinite() for loss in losses.values())
    sum(losses.values()).backward()  # type: ignore[union-attr]
    trained = {name: p for name, p in objective.named_parameters() if p.requires_grad}
    assert {name for name in trained if name.startswith("teacher")} == set()
    assert [name for name, p in trained.items() if p.grad is None or not p.grad.abs().sum()] == []
    assert sum(p.grad is None for p in encoder.parameters()) == 0


def test_the_teacher_is_the_student_s_average_once_a_step() -> None:
    encoder = build(VIT)
    objective = SelfDistillation(encoder, **SMALL_DINO, momentum=0.9)
    before = deepcopy(objective.teacher.state_dict())
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 1
    image = torch.rand(2, 3, 64, 64)
    objective(encoder, image)  # the first step: the teacher is still the start
    name = "vit.blocks.0.mlp.fc1.weight"
    assert torch.equal(objective.teacher.state_dict()[name], before[name])
    objective.on_train_step(0.25)
    objective(encoder, image)
    momentum = 1 - 0.1 * (math.cos(math.pi * 0.25) + 1) / 2
    moved = objective.teacher.state_dict()[name]
    assert torch.allclose(moved, before[name] + (1 - momentum), atol=1e-6)
    objective(encoder, image)  # a second micro-batch of the same step
    assert torch.equal(objective.teacher.state_dict()[name], moved)


def test_the_teacher_s_outputs_are_centred_and_sharpened() -> None:
    encoder = build(VIT)
    objective = SelfDistillation(encoder, **SMALL_DINO)
    image, mask = torch.rand(4, 3, 64, 64), torch.ones(4, 16, dtype=torch.bool)
    with torch.no_grad():
        logits = objective.teacher_heads["image"](objective.tokens(objective.teacher.eval(), image, (4, 4)).image)
        first, _ = objective.targets(image, mask)
    assert torch.allclose(first, (logits / 0.04).softmax(-1), atol=1e-5)
    assert torch.allclose(objective.centre, 0.1 * logits.mean(0), atol=1e-6)
    objective.on_train_step(1.0)
    with torch.no_grad():
        centre = objective.centre.clone()
        second, patches = objective.targets(image, mask)
    assert torch.allclose(second, ((logits - centre) / 0.07).softmax(-1), atol=1e-5)
    assert torch.allclose(patches.sum(-1), torch.ones(4, 16))
    objective.centre.fill_(1.0)
    bad = torch.full_like(image, float("nan"))
    with torch.no_grad():
        objective.targets(bad, mask)
    assert objective.centre.isfinite().all()


def test_masked_patches_show_learned_pixels() -> None:
    encoder = build(VIT)
    objective = SelfDistillation(encoder, **SMALL_DINO)
    mask = torch.zeros(1, 4, 4, dtype=torch.bool)
    mask[0, 1, 2] = True
    image = torch.rand(1, 3, 64, 64)
    hidden = objective.hide(image, mask)
    assert torch.equal(hidden[0, :, 16:32, 32:48], objective.mask_patch)
    assert (hidden != image).any(1).sum() == 256


def test_what_cannot_be_distilled_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"objective.local_size: sides are multiples of 16, got \[30, 32\]"):
        SelfDistillation(build(VIT), local_size=(30, 32))
    assert [SelfDistillation.fewest_images({"koleo_weight": weight}) for weight in (0.0, 0.1)] == [1, 2]


def test_views_are_images_again() -> None:
    torch.manual_seed(0)
    image = torch.rand(6, 3, 40, 56)
    crop = views.random_resized_crop(image, (32, 48), (0.05, 0.3))
    assert crop.shape == (6, 3, 32, 48)
    assert crop.min() >= 0 and crop.max() <= 1
    whole = views.random_resized_crop(image, (40, 56), (1.0, 1.0))
    assert whole.shape == image.shape
    other = views.distort(crop, blur=1.0, solarize=0.5)
    assert other.shape == crop.shape and other.min() >= 0 and other.max() <= 1
    assert not torch.equal(other, crop)
    assert torch.equal(views.distort(crop, blur=0.0, jitter=0.0, grey=0.0), crop)
    grey = views.distort(crop, blur=0.0, jitter=0.0, grey=1.0)
    assert torch.allclose(grey[:, 0], grey[:, 2])


def test_turning_the_hue_keeps_grey_and_a_whole_turn_keeps_all() -> None:
    image = torch.rand(2, 3, 4, 4) * 0.5 + 0.25
    assert torch.allclose(views.rotate_hue(image, torch.ones(2)), image, atol=1e-4)
    turned = views.rotate_hue(image, torch.full((2,), 1 / 3))
    assert torch.allclose(views.to_grey(turned), views.to_grey(image), atol=0.05)
    flat = torch.full((1, 3, 2, 2), 0.4)
    assert torch.allclose(views.rotate_hue(flat, torch.tensor([0.3])), flat, atol=1e-3)


def test_a_blur_keeps_the_mean_and_narrows_the_spread() -> None:
    image = torch.rand(2, 3, 32, 32)
    blurred = views.gaussian_blur(image, torch.tensor([2.0, 0.1]))
    assert torch.allclose(blurred.mean(), image.mean(), atol=0.02)
    assert blurred[0].std() < 0.5 * image[0].std()
    assert torch.allclose(blurred[1], image[1], atol=1e-3)


def test_masks_of_rectangles_have_the_shares_that_were_asked_for() -> None:
    torch.manual_seed(0)
    masks = views.block_masks(8, (10, 12), probability=0.5, ratio=(0.1, 0.5), device=torch.device("cpu"))
    shares = sorted((masks.flatten(1).sum(1) / 120).tolist())
    assert shares[:4] == [0, 0, 0, 0]
    assert shares[4:] == pytest.approx([0.2, 0.3, 0.4, 0.5], abs=0.1)
