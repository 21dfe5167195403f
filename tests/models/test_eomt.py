"""Queries in the last blocks: against the same written out, with towers of all kinds, and what training does to it."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from toy_models import toy_network

from densevit.errors import ConfigError
from densevit.losses.set_criterion import SetCriterion
from densevit.models.decoders.base import DECODERS
from densevit.models.decoders.dpt import DPT
from densevit.models.decoders.eomt import EoMT, MaskAnnealing, default_spans
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import ENCODERS, Encoder
from densevit.models.heads.segmentation import LabelsHead, MasksHead
from densevit.registry import ComponentConfig

TOWERS: dict[str, ComponentConfig] = {
    "vit": {"type": "vit", "dim": 32, "depth": 4, "heads": 2, "image_size": 48, "registers": 2, "layer_scale": 0.5},
    "dinov2": {"type": "timm", "name": "vit_small_patch14_reg4_dinov2", "arguments": {"depth": 4, "embed_dim": 96}},
    "dinov3": {"type": "timm", "name": "vit_small_patch16_dinov3", "arguments": {"depth": 4, "embed_dim": 96}},
    "rope_mixed": {"type": "timm", "name": "vit_small_patch16_rope_mixed_224", "arguments": {"depth": 4}},
}
IMAGE = (45, 66)


def tower(name: str) -> Encoder:
    torch.manual_seed(0)
    encoder = ENCODERS.check(TOWERS[name], "encoder").build()
    with torch.no_grad():  # gains of 1e-5, as LayerScale begins, would make every block the identity
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return encoder


def build(name: str = "vit", **options: Any) -> DenseModel:
    encoder = tower(name)
    spec = {"type": "eomt", "classes": 3, "queries": 5, "blocks": 2, **options}
    decoder = DECODERS.check(spec, "decoder").build(encoder.features, encoder.prefix_tokens)
    model = DenseModel(encoder, decoder, {"seg": MasksHead(3, classes=("sky", "road", "car"))})
    with torch.no_grad():  # gains of 1 and small weights would hide faults
        for parameter in model.decoder.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
    return model


def test_it_is_what_the_paper_says_written_out() -> None:
    model, image = build().train(), torch.rand(2, 3, 48, 64)
    vit: Any = model.encoder.vit
    head: Any = model.decoder
    prefix, (gh, gw), q = 3, (3, 4), 5
    x = vit.embed((image - model.encoder.mean) / model.encoder.std)
    for block in vit.blocks[:2]:
        x = block(x)
    x = torch.cat([x[:, :prefix], head.q.weight.expand(2, -1, -1), x[:, prefix:]], 1)

    def predict(x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.layer_norm(x, (32,), vit.norm.weight, vit.norm.bias, 1e-6)
        patches = x[:, prefix + q :].transpose(1, 2).reshape(2, 32, gh, gw)
        for step in head.upscale:  # 16 to 4 pixels: two doublings
            patches = step.norm(step.conv2(F.gelu(step.conv1(patches))))
        a, _, b, _, c = head.mask_head
        asked = c(F.gelu(b(F.gelu(a(x[:, prefix : prefix + q])))))
        masks = (asked[:, :, None, None] * patches.permute(0, 2, 3, 1)[:, None]).sum(-1)
        return masks, head.class_head(x[:, prefix : prefix + q])

    seen = [predict(x)]
    for block in vit.blocks[2:]:
        small = F.interpolate(seen[-1][0], (gh, gw), mode="bilinear").flatten(2)
        y = block.norm1(x)
        query, key, value = block.attn.qkv(y).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        weights = query @ key.transpose(-1, -2) / 4
        for i in range(q):
            hidden = small[:, i] <= 0
            weights[:, :, prefix + i, prefix + q :] += torch.where(hidden, -torch.inf, 0.0)[:, None]
        mixed = (weights.softmax(-1) @ value).transpose(1, 2).flatten(2)
        x = x + block.ls1.gamma * block.attn.proj(mixed)
        x = x + block.ls2.gamma * block.mlp(block.norm2(x))
        seen.append(predict(x))
    found = model(image)
    torch.testing.assert_close(found["seg/masks"], torch.stack([masks for masks, _ in seen], 1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["seg/classes"], torch.stack([c for _, c in seen], 1), atol=1e-5, rtol=1e-4)
    masks, classes = seen[-1]
    scores = sum(masks[:, i, None].sigmoid() * classes[:, i].softmax(-1)[:, :3, None, None] for i in range(q))
    expected = F.interpolate(torch.log(scores), (48, 64), mode="bilinear")  # type: ignore[arg-type]
    torch.testing.assert_close(found["seg"], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", TOWERS)
def test_in_evaluation_nothing_is_masked_and_masks_grow_before_the_sigmoid(name: str) -> None:
    model, image = build(name), torch.rand(2, 3, *IMAGE)
    model.decoder.annealing.on_train_step(1.0)  # type: ignore[union-attr,operator]
    training = model.train()(image)  # at the end of training nothing is masked either
    found = model.eval()(image)
    assert set(found) == {"seg"}
    side = tuple(int(x) for x in training["seg/covers"])
    masks = F.interpolate(training["seg/masks"][:, -1], side, mode="bilinear").sigmoid()
    scores = torch.einsum("bqk,bqhw->bkhw", training["seg/classes"][:, -1].softmax(-1)[..., :-1], masks)
    top, left = (side[0] - IMAGE[0]) // 2, (side[1] - IMAGE[1]) // 2
    expected = scores[..., top : top + IMAGE[0], left : left + IMAGE[1]]
    torch.testing.assert_close(found["seg"].exp(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", TOWERS)
def test_the_last_blocks_are_the_encoders_own_and_queries_without_position_change_no_patch(name: str) -> None:
    plain, image, encoders = tower(name).eval(), torch.rand(1, 3, *IMAGE), [tower(name).eval() for _ in range(2)]
    for encoder, out_indices in zip(encoders, (False, True), strict=True):
        encoder.detach_last_blocks(2, out_indices=out_indices)
    assert encoders[0](image).maps == ()
    rest, expected = encoders[0](image).remaining, plain(image).maps[-1]
    torch.testing.assert_close(encoders[1](image).maps[-1], expected, atol=1e-5, rtol=1e-4)
    first = rest.prefix_tokens

    def through(queries: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All tokens, and the map of the patches."""
        x, q = torch.cat([rest.tokens[:, :first], queries, rest.tokens[:, first:]], 1), queries.shape[1]
        for block in rest.blocks:
            x = block(x, mask, q)
        return x, rest.norm(x)[:, first + q :].transpose(1, 2).unflatten(2, rest.grid)

    torch.testing.assert_close(through(rest.tokens[:, :0])[1], expected, atol=1e-5, rtol=1e-4)
    # Rotary positions must be those of the patches, however many queries stand before them.
    total = rest.tokens.shape[1] + 7
    mask = torch.ones(1, 1, total, total, dtype=torch.bool)
    mask[..., first : first + 7] = False
    mask[:, :, first : first + 7, first : first + 7] = True
    found = through(torch.randn(1, 7, rest.tokens.shape[-1]), mask)[1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    # Neither a query nor the class token has a position: rotary embeddings rotate neither.
    x, _ = through(rest.tokens[:, :1])
    torch.testing.assert_close(x[:, first], x[:, 0], atol=1e-5, rtol=1e-4)


def test_the_order_of_queries_does_not_matter() -> None:
    model, image = build("dinov3").eval(), torch.rand(1, 3, *IMAGE)
    before = model(image)["seg"]
    weight = model.decoder.q.weight  # type: ignore[union-attr]
    weight.data = weight.data.flip(0)  # type: ignore[union-attr,operator]
    torch.testing.assert_close(model(image)["seg"], before, atol=1e-4, rtol=1e-4)


def test_other_decoders_read_feature_maps_without_queries_and_earlier_blocks_run_once() -> None:
    image = torch.rand(1, 3, *IMAGE)
    joint = build()
    encoder: Any = joint.encoder
    alone = DPT(encoder.features, encoder.prefix_tokens, channels=8)
    plain = DenseModel(copy.deepcopy(encoder), alone, {"depth": LabelsHead(8, classes=2)}).eval()
    plain.encoder.num_detached = 0  # type: ignore[assignment]
    heads = {"depth": plain.heads["depth"], "seg": joint.heads["seg"]}
    both = DenseModel(encoder, alone, heads, {"seg": joint.decoder}).eval()  # type: ignore[arg-type]
    ran = []
    for i, block in enumerate(encoder.vit.blocks):
        block.register_forward_pre_hook(lambda *_, i=i: ran.append(i))
    found = both(image)
    assert sorted(ran) == [0, 1, 2, 2, 3, 3]  # the detached blocks once for either decoder
    torch.testing.assert_close(found["depth"], plain(image)["depth"], atol=1e-5, rtol=1e-4)
    ran.clear()
    joint = DenseModel(encoder, joint.decoder, {"seg": joint.heads["seg"]}).eval()  # type: ignore[arg-type]
    torch.testing.assert_close(joint(image)["seg"], found["seg"], atol=1e-5, rtol=1e-4)
    assert ran == [0, 1, 2, 3]


def test_two_eomt_decoders_may_start_at_different_blocks() -> None:
    deep = build(blocks=1)
    encoder: Any = deep.encoder
    shallow = EoMT(encoder.features, encoder.prefix_tokens, classes=3, queries=4, blocks=3)
    heads = {"a": deep.heads["seg"], "b": MasksHead(3, classes=3)}
    image = torch.rand(1, 3, *IMAGE)
    expected = deep.eval()(image)["seg"]
    both = DenseModel(encoder, deep.decoder, heads, {"b": shallow}).eval()  # type: ignore[arg-type]
    torch.testing.assert_close(both(image)["a"], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", TOWERS)
def test_checkpointing_changes_no_gradient(name: str) -> None:
    grads = []
    for enable in (False, True):
        model = build(name).train()
        model.encoder.set_grad_checkpointing(enable)  # type: ignore[operator]
        found = model(torch.linspace(0, 1, 3 * 45 * 66).view(1, 3, *IMAGE))
        (found["seg/masks"].square().mean() + found["seg/classes"].square().mean()).backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


def test_detached_blocks_stay_the_encoders_for_learning_rates_and_freezing() -> None:
    model = build()
    encoder: Any = model.encoder
    joined = set(encoder.vit.blocks[-1].parameters())
    assert joined <= {p for group in encoder.layer_groups() for p in group}
    assert not any(p in joined for p in model.decoder.parameters())


def test_masked_attention_is_annealed_block_by_block_as_published() -> None:
    # EoMT on ADE20K, github.com/tue-mps/eomt configs/dinov2/ade20k: starts 6520, 13040, 19560, 26080 and ends 13040,
    # 19560, 26080, 32600 of 31 epochs of 1263 steps; poly with power 0.9.
    steps = 31 * 1263
    for (begin, end), start, stop in zip(
        default_spans(4), (6520, 13040, 19560, 26080), (13040, 19560, 26080, 32600), strict=True
    ):
        assert begin == pytest.approx(start / steps, abs=1e-3)
        assert end == pytest.approx(stop / steps, abs=1e-3)
    annealing = MaskAnnealing(2, ((0.0, 0.5), (0.5, 0.9)))
    for progress, shares in (
        (0.0, (1, 1)),
        (0.25, (0.5**0.9, 1)),
        (0.5, (0, 1)),
        (0.7, (0, 0.5**0.9)),
        (0.9, (0, 0)),
        (1.0, (0, 0)),
    ):
        annealing.on_train_step(progress)
        assert [annealing.probability(i).item() for i in range(2)] == pytest.approx(list(shares), abs=1e-6)
    assert not MaskAnnealing(3).state_dict()  # the trainer tells it anew


def test_a_masked_query_sees_its_patches_and_every_token_that_is_none() -> None:
    model = build(queries=400)
    head: Any = model.decoder
    rest = model.encoder(torch.rand(1, 3, 48, 64)).remaining
    masks = torch.randn(1, 400, 12, 16)
    inside = (F.interpolate(masks, (3, 4), mode="bilinear") > 0).flatten(2)[0]
    total = 3 + 400 + 12
    mask = head.attention_mask(masks, torch.tensor(1.0), rest)
    assert mask.shape == (1, 1, total, total)
    assert torch.equal(mask[0, 0, 3:403, 403:], inside)
    others = mask[0, 0].clone()
    others[3:403, 403:] = True
    assert others.all()
    shares = [
        (~head.attention_mask(masks, torch.tensor(s), rest)[0, 0, 3:403, 403:]).any(1).float().mean()
        for s in (0.0, 0.25)
    ]
    assert shares[0] == 0
    assert shares[1] == pytest.approx(0.25, abs=0.08)  # 400 queries: 3.7 standard deviations


@pytest.mark.slow
def test_it_learns_two_halves_and_the_last_layer_knows_best() -> None:
    torch.manual_seed(0)
    model, loss = build(queries=4).train(), SetCriterion(points=256)
    image, labels = torch.rand(2, 3, 45, 64) * 0.2, torch.zeros(2, 45, 64, dtype=torch.int64)
    image[:, 0, :, 30:], labels[:, :, 30:] = 0.9, 2
    labels[:, :6] = 255
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(60):
        model.decoder.annealing.on_train_step(step / 60)  # type: ignore[union-attr,operator]
        found = model(image)
        value = loss(found["seg"], labels, {key[4:]: x for key, x in found.items() if "/" in key})
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    said = model.eval()(image)["seg"].argmax(1)
    known = labels != 255
    assert (said == labels)[known].float().mean() > 0.97


REFUSED: list[tuple[ComponentConfig, ComponentConfig, str]] = [
    ({}, {"blocks": 4}, "1 to 3"),
    ({"norm": False}, {}, "norm"),
    ({"type": "timm", "name": "test_vit", "arguments": {"depth": 2}}, {"blocks": 2}, "1 to 1"),
    ({"type": "timm", "name": "beit_base_patch16_224", "arguments": {"depth": 3, "embed_dim": 96}}, {}, "BEiT"),
    ({"type": "swin", "name": "swin_tiny_patch4_window7_224", "image_size": 64}, {}, "SwinEncoder has none"),
    ({}, {"anneal": ((0.1, 0.2),)}, "1 spans for 2 blocks"),
    ({}, {"anneal": ((0.1, 0.2), (0.4, 0.3))}, "ends before"),
    ({}, {"classes": None}, "classes"),
]


def test_maps_that_no_decoder_reads_are_not_conditioned() -> None:
    heads, decoder = {"labels": {"type": "mask_logits", "classes": 3}}, {"type": "eomt", "classes": 3, "blocks": 1}
    with pytest.raises(ConfigError, match=r"model\.conditioning: it changes the encoder's feature maps"):
        toy_network(heads, decoder, conditioning={"rays": {}})


def test_what_cannot_be_is_said_before_training() -> None:
    for encoder, decoder, says in REFUSED:
        given = encoder if "type" in encoder else {**TOWERS["vit"], **encoder}
        built = ENCODERS.check(given, "encoder").build()
        spec = DECODERS.check({"type": "eomt", "classes": 3, "blocks": 2, **decoder}, "decoder")
        with pytest.raises(ConfigError, match=says):
            part = spec.build(built.features, built.prefix_tokens)
            DenseModel(built, part, {"seg": MasksHead(3, classes=3)})
