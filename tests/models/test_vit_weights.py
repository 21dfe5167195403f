"""Published layouts in our ViT: files under their names, read as by their own readers, and Hugging Face's code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import Tensor, nn

from densevit.errors import CheckpointError
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.vit.embeddings import resample_pos_embed
from densevit.weights.readers import read_tensors

DIM, DEPTH, HEADS = 16, 2, 2


def ours(image_size: Any = 8, **options: Any) -> ViTEncoder:
    return ViTEncoder(dim=DIM, depth=DEPTH, heads=HEADS, patch_size=4, image_size=image_size, **options).eval()


def loaded(state: Mapping[str, Tensor], **options: Any) -> Any:
    """Our ViT with the weights of a file."""
    encoder = ours(**options)
    encoder.load_weights(state, "w.pth")
    return encoder.vit


def theirs(**options: Any) -> Any:
    return timm.models.VisionTransformer(
        embed_dim=DIM, depth=DEPTH, num_heads=HEADS, patch_size=4, **{"img_size": 8, "num_classes": 0, **options}
    ).eval()


def filled(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}


def same(model: nn.Module, reference: nn.Module) -> None:
    state, expected = model.state_dict(), reference.state_dict()
    assert state.keys() == {name for name in expected if not name.startswith(("head.", "attn_pool."))}
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-6, rtol=1e-6, msg=name)


def openai_clip(prefix: str) -> dict[str, Tensor]:
    block = {
        "ln_1.weight": (DIM,), "ln_1.bias": (DIM,), "ln_2.weight": (DIM,), "ln_2.bias": (DIM,),
        "attn.in_proj_weight": (3 * DIM, DIM), "attn.in_proj_bias": (3 * DIM,),
        "attn.out_proj.weight": (DIM, DIM), "attn.out_proj.bias": (DIM,),
        "mlp.c_fc.weight": (4 * DIM, DIM), "mlp.c_fc.bias": (4 * DIM,),
        "mlp.c_proj.weight": (DIM, 4 * DIM), "mlp.c_proj.bias": (DIM,),
    }  # fmt: skip
    tower: dict[str, tuple[int, ...]] = {
        "class_embedding": (DIM,), "positional_embedding": (5, DIM), "conv1.weight": (DIM, 3, 4, 4), "proj": (DIM, 6),
        "ln_pre.weight": (DIM,), "ln_pre.bias": (DIM,), "ln_post.weight": (DIM,), "ln_post.bias": (DIM,),
        **{f"transformer.resblocks.{i}.{name}": shape for i in range(DEPTH) for name, shape in block.items()},
    }  # fmt: skip
    return filled({prefix + name: shape for name, shape in tower.items()})


@pytest.mark.parametrize("prefix", ["visual.", ""])
def test_openai_clip_runs_as_its_own_code(prefix: str) -> None:
    state = openai_clip(prefix)
    text = {"transformer.resblocks.0.ln_1.weight": torch.ones(3), "logit_scale": torch.ones(())} if prefix else {}
    vit = loaded({**text, **state}, norm_pre=True, mlp="quick_gelu", eps=1e-5)
    image, w = torch.randn(2, 3, 8, 8), {name.removeprefix(prefix): tensor for name, tensor in state.items()}

    def norm(x: Tensor, name: str) -> Tensor:
        return nn.functional.layer_norm(x, (DIM,), w[f"{name}.weight"], w[f"{name}.bias"])

    # CLIP's image tower (Radford et al. 2021) on torch's own attention
    x = nn.functional.conv2d(image, w["conv1.weight"], stride=4).flatten(2).transpose(1, 2)
    x = torch.cat([w["class_embedding"].expand(2, 1, -1), x], dim=1) + w["positional_embedding"]
    x = norm(x, "ln_pre")
    for i in range(DEPTH):
        at = f"transformer.resblocks.{i}."
        attention = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        attention.load_state_dict({n.removeprefix(f"{at}attn."): t for n, t in w.items() if n.startswith(f"{at}attn.")})
        y = norm(x, f"{at}ln_1")
        x = x + attention(y, y, y)[0]
        y = norm(x, f"{at}ln_2") @ w[f"{at}mlp.c_fc.weight"].T + w[f"{at}mlp.c_fc.bias"]
        x = x + (y * torch.sigmoid(1.702 * y)) @ w[f"{at}mlp.c_proj.weight"].T + w[f"{at}mlp.c_proj.bias"]
    torch.testing.assert_close(vit(image), norm(x, "ln_post"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", [8, 12])
def test_dinov2_with_registers_loads_as_in_timm(side: int) -> None:
    # Its file places the class token, and not the registers.
    block = theirs(init_values=1.0).blocks[0].state_dict()
    state = filled(
        {
            "cls_token": (1, 1, DIM), "register_tokens": (1, 4, DIM), "mask_token": (1, DIM), "pos_embed": (1, 10, DIM),
            "patch_embed.proj.weight": (DIM, 3, 4, 4), "patch_embed.proj.bias": (DIM,),
            "norm.weight": (DIM,), "norm.bias": (DIM,),
            **{f"blocks.{i}.{name}": tuple(t.shape) for i in range(DEPTH) for name, t in block.items()},
        }
    )  # fmt: skip
    shape: dict[str, Any] = {"no_embed_class": True}
    reference = theirs(reg_tokens=4, init_values=1.0, img_size=side, **shape)
    reference.load_state_dict(checkpoint_filter_fn(dict(state), reference))
    vit = loaded(state, registers=4, layer_scale=1.0, image_size=side, **shape)
    same(vit, reference)
    # Where registers have positions, too, theirs are zero, and the tokens are the same.
    placed = loaded(state, registers=4, layer_scale=1.0, image_size=side)
    image = torch.randn(1, 3, side, side)
    torch.testing.assert_close(placed(image), vit(image), atol=1e-6, rtol=1e-6)


def test_dinov2_gates_load_under_their_names() -> None:
    gated: dict[str, Any] = {"mlp": "swiglu_packed", "mlp_ratio": 3.0}
    own = ours(**gated).vit.state_dict()
    state = {n.replace("fc1", "w12").replace("fc2", "w3"): torch.randn_like(t) for n, t in own.items()}
    vit = loaded({**state, "mask_token": torch.zeros(1, DIM)}, **gated)
    assert torch.equal(vit.blocks[1].mlp.fc1.weight, state["blocks.1.mlp.w12.weight"])
    assert torch.equal(vit.blocks[1].mlp.fc2.bias, state["blocks.1.mlp.w3.bias"])


def google(prefix: str, newer: bool, stacked: bool, pool: bool) -> dict[str, np.ndarray]:
    """A file as JAX writes it: vision_transformer's older names, or big_vision's."""
    each, out, c = (DIM, HEADS, DIM // HEADS), (HEADS, DIM // HEADS, DIM), (HEADS, DIM // HEADS)
    mha, mlp, ln = (0, 0, 1) if newer else (1, 3, 2)

    def attention(at: str) -> dict[str, tuple[int, ...]]:
        kernels = {f"{at}{name}/kernel": each for name in ("query", "key", "value")}
        biases = {f"{at}{name}/bias": c for name in ("query", "key", "value")}
        return {**kernels, **biases, f"{at}out/kernel": out, f"{at}out/bias": (DIM,)}

    def dense(at: str) -> dict[str, tuple[int, ...]]:
        return {
            f"{at}Dense_0/kernel": (DIM, 4 * DIM), f"{at}Dense_0/bias": (4 * DIM,),
            f"{at}Dense_1/kernel": (4 * DIM, DIM), f"{at}Dense_1/bias": (DIM,),
        }  # fmt: skip

    block = {
        **{f"LayerNorm_{i}/{kind}": (DIM,) for i in (0, ln) for kind in ("scale", "bias")},
        **attention(f"MultiHeadDotProductAttention_{mha}/"),
        **dense(f"MlpBlock_{mlp}/"),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "embedding/kernel": (4, 4, 3, DIM), "embedding/bias": (DIM,),
        "Transformer/encoder_norm/scale": (DIM,), "Transformer/encoder_norm/bias": (DIM,),
    }  # fmt: skip
    if pool:
        at = "MAPHead_0/"
        shapes |= {f"{at}probe": (1, 1, DIM), f"{at}LayerNorm_0/scale": (DIM,), f"{at}LayerNorm_0/bias": (DIM,)}
        shapes |= {**attention(f"{at}MultiHeadDotProductAttention_0/"), **dense(f"{at}MlpBlock_0/")}
    else:
        shapes |= {"cls": (1, 1, DIM), "head/kernel": (DIM, 5), "head/bias": (5,)}
    where = "pos_embedding" if newer else "Transformer/posembed_input/pos_embedding"
    shapes[where] = (1, 4 if pool else 5, DIM)
    if stacked:
        shapes |= {f"Transformer/encoderblock/{name}": (DEPTH, *shape) for name, shape in block.items()}
    else:
        shapes |= {f"Transformer/encoderblock_{i}/{n}": shape for i in range(DEPTH) for n, shape in block.items()}
    return {prefix + name: tensor.numpy() for name, tensor in filled(shapes).items()}


@pytest.mark.parametrize(
    ("prefix", "newer", "stacked", "pool"),
    [
        ("", False, False, False),
        ("opt/target/", False, False, False),
        ("params/", True, True, False),
        ("params/img/", True, False, True),
    ],
)
def test_googles_arrays_load_as_in_timm(tmp_path: Path, prefix: str, newer: bool, stacked: bool, pool: bool) -> None:
    arrays = google(prefix, newer, stacked, pool)
    if pool:
        arrays["params/txt/Embed_0/embedding"] = np.zeros((3, 2), np.float32)
    else:
        arrays["pre_logits/kernel"] = np.zeros((DIM, DIM), np.float32)
    np.savez(tmp_path / "vit.npz", **arrays)
    shape: dict[str, Any] = {"class_token": False} if pool else {"num_classes": 5}
    reference = theirs(**shape, **({"global_pool": "map"} if pool else {}))
    reference.load_pretrained(str(tmp_path / "vit.npz"))
    same(loaded(read_tensors(tmp_path / "vit.npz"), class_token=not pool), reference)


def hugging_face(newer: bool) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A file of ViTForImageClassification, and our name for each of its tensors ('q' for a third of qkv)."""
    attention = "attention." if newer else "attention.attention."
    kinds = {"q": "q_proj", "k": "k_proj", "v": "v_proj"} if newer else {"q": "query", "k": "key", "v": "value"}
    layers = "vit.layers." if newer else "vit.encoder.layer."
    names = {
        "vit.embeddings.cls_token": "cls_token",
        "vit.embeddings.position_embeddings": "pos_embed",
        "vit.embeddings.patch_embeddings.projection.weight": "patch_embed.proj.weight",
        "vit.embeddings.patch_embeddings.projection.bias": "patch_embed.proj.bias",
    }
    for kind in ("weight", "bias"):
        names |= {f"vit.layernorm.{kind}": f"norm.{kind}"}
        for i in range(DEPTH):
            block = {
                **{f"{attention}{kinds[third]}": f"attn.{third}" for third in "qkv"},
                "attention.o_proj" if newer else "attention.output.dense": "attn.proj",
                "layernorm_before": "norm1",
                "layernorm_after": "norm2",
                "mlp.fc1" if newer else "intermediate.dense": "mlp.fc1",
                "mlp.fc2" if newer else "output.dense": "mlp.fc2",
            }
            names |= {f"{layers}{i}.{theirs}.{kind}": f"blocks.{i}.{own}.{kind}" for theirs, own in block.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in ours().vit.state_dict().items()}
    for i in range(DEPTH):
        for kind in ("weight", "bias"):
            rows, *columns = shapes[f"blocks.{i}.attn.qkv.{kind}"]
            shapes |= {f"blocks.{i}.attn.{third}.{kind}": (rows // 3, *columns) for third in "qkv"}
    return filled({theirs: shapes[own] for theirs, own in names.items()}), names


@pytest.mark.parametrize("newer", [False, True])
def test_hugging_face_names_old_and_new_find_their_places(newer: bool) -> None:
    state, names = hugging_face(newer)
    unused = {"vit.pooler.dense.weight": torch.zeros(2, 2), "classifier.weight": torch.zeros(5, DIM)}
    found = loaded({**state, **unused}).state_dict()
    for i in range(DEPTH):
        for kind in ("weight", "bias"):
            thirds = found[f"blocks.{i}.attn.qkv.{kind}"].chunk(3)
            found |= {f"blocks.{i}.attn.{name}.{kind}": third for name, third in zip("qkv", thirds, strict=True)}
    for name, tensor in state.items():
        assert torch.equal(found[names[name]], tensor), name


def test_a_square_grid_of_as_many_cells_as_ours_is_resampled_and_ours_is_not() -> None:
    wide = ours((16, 36), positions="sincos").vit  # 4 x 9 cells
    square = ours(24, positions="sincos").vit  # 6 x 6
    assert torch.equal(loaded(wide.state_dict(), image_size=(16, 36)).pos_embed, wide.pos_embed)
    resampled = resample_pos_embed(square.pos_embed[:, 1:], (6, 6), (4, 9))
    assert torch.equal(loaded(square.state_dict(), image_size=(16, 36)).pos_embed[:, 1:], resampled)


def test_our_own_files_load_and_grids_that_are_not_square_are_kept() -> None:
    source = ours(image_size=(8, 12), registers=1).vit
    same(loaded(source.state_dict(), image_size=(8, 12), registers=1), source)
    with pytest.raises(CheckpointError, match="pos_embed .file .1, 8, 16., model .1, 11, 16"):
        loaded(source.state_dict(), image_size=12, registers=1)


def test_a_missing_third_is_reported() -> None:
    state, _ = hugging_face(newer=False)
    del state["vit.encoder.layer.1.attention.attention.key.bias"]
    with pytest.raises(CheckpointError, match=r"blocks.1.attn.qkv.bias \(file \[32\], model \[48\]\)"):
        loaded(state)


def test_tensors_of_something_else_are_refused_with_names() -> None:
    with pytest.raises(CheckpointError, match=r"w.pth: does not fit.*missing.*1 unexpected: conv1.weight"):
        loaded({"conv1.weight": torch.zeros(1)})


@pytest.mark.parametrize("damage", ["short", "pickle", "array"])
def test_npz_files_that_are_none_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "w.npz"
    if damage == "pickle":
        np.savez(path, a=np.array([{}], dtype=object))
    elif damage == "array":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    else:
        np.savez(path, a=np.ones(1000))
        path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CheckpointError, match="npz"):
        read_tensors(path)


def test_a_bfloat16_array_says_that_torch_cannot_take_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.zeros(3, "V2"))  # what NumPy makes of JAX's bfloat16
    with pytest.raises(CheckpointError, match="a type that torch cannot take"):
        read_tensors(tmp_path / "w.npz")


@pytest.mark.parametrize(
    ("config", "option", "right"),
    [
        ({"vision_config": {"hidden_act": "quick_gelu"}}, "mlp", "quick_gelu"),
        ({"hidden_act": "gelu", "layer_norm_eps": 1e-12}, "eps", 1e-12),
        ({"num_attention_heads": 4}, "heads", 4),
    ],
)
def test_what_shapes_do_not_tell_is_what_the_config_beside_a_file_says(
    tmp_path: Path, config: Any, option: str, right: Any
) -> None:
    """The activation of CLIP read as GELU gave other features in silence, likewise other heads."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    options: Any = {"dim": DIM, "depth": DEPTH, "heads": HEADS, "patch_size": 4, "image_size": 8}
    state, source = ours().vit.state_dict(), str(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"config.json: its .* is {right!r}, .*; use {option}: {right}"):
        ViTEncoder(**options).load_weights(state, source)
    ViTEncoder(**{**options, option: right}).load_weights(state, source)


SIZE: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "patch_size": 8}
CLIP: dict[str, Any] = {"norm_pre": True, "mlp": "quick_gelu", "eps": 1e-5}
DINO: dict[str, Any] = {"layer_scale": 1.0, "pos_embed_interpolation": "bicubic"}


def reference(kind: str) -> tuple[Any, dict[str, Any]]:
    transformers, size = pytest.importorskip("transformers"), {**SIZE, "image_size": 32}
    if kind == "clip":
        config = transformers.CLIPVisionConfig(**size, intermediate_size=192, projection_dim=10)
        return transformers.CLIPVisionModelWithProjection(config), CLIP
    if kind == "vit":
        config = transformers.ViTConfig(**size, intermediate_size=192, num_labels=10)
        return transformers.ViTForImageClassification(config), {"eps": 1e-12}
    if kind == "registers":
        config = transformers.Dinov2WithRegistersConfig(**size)
        options = {**DINO, "registers": 4, "no_embed_class": True, "pos_embed_interpolation": "antialias"}
        return transformers.Dinov2WithRegistersModel(config), options
    gated = kind == "dinov2-swiglu"
    options = {**DINO, "mlp": "swiglu_packed", "mlp_ratio": 2 * 2.66667} if gated else DINO
    return transformers.Dinov2Model(transformers.Dinov2Config(**size, use_swiglu_ffn=gated)), options


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("kind", ["clip", "vit", "dinov2", "dinov2-swiglu", "registers"])
def test_files_of_hugging_face_give_the_same_tokens_and_gradients(tmp_path: Path, kind: str) -> None:
    theirs, options = reference(kind)
    theirs.eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    theirs.save_pretrained(tmp_path)
    encoder = ViTEncoder(dim=48, depth=3, heads=3, patch_size=8, image_size=32, **options).eval()
    encoder.load_weights(read_tensors(tmp_path / "model.safetensors"), kind)
    vit = encoder.vit
    size = (24, 48) if kind.startswith(("dino", "registers")) else (32, 32)
    images = [torch.randn(2, 3, *size).requires_grad_()]
    images.append(images[0].detach().clone().requires_grad_())
    expected = theirs(images[0], output_hidden_states=True)
    outputs = vit.block_outputs(images[1], range(3))
    for found, other in zip(outputs, expected.hidden_states[1:], strict=True):
        torch.testing.assert_close(torch.cat([found.prefix, found.patches], dim=1), other, atol=1e-5, rtol=1e-5)
    norm = theirs.get_submodule({"clip": "vision_model.post_layernorm", "vit": "vit.layernorm"}.get(kind, "layernorm"))
    tokens = norm(expected.hidden_states[-1])
    torch.testing.assert_close(vit(images[1]), tokens, atol=1e-5, rtol=1e-5)
    tokens.square().sum().backward()
    vit(images[1]).square().sum().backward()
    scale = float(images[0].grad.abs().max())
    torch.testing.assert_close(images[1].grad, images[0].grad, atol=1e-5 * scale, rtol=1e-4)
