"""Every registered encoder, decoder and head: shapes, gradients, bfloat16, copies, ONNX and compilation.

A component is tested as soon as it is registered. Each decoder and head is tested behind one encoder, and each encoder
before one decoder. Models for ONNX have many heads, because every conversion costs seconds.
"""

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from densevit.engine import distributed
from densevit.inference.backends.onnx_runtimes import RUNTIMES, ExternalRuntimeModule
from densevit.models.decoders.base import DECODERS, Decoder
from densevit.models.dense import DenseModel, as_decoder_output
from densevit.models.encoders.base import ENCODERS
from densevit.models.heads.base import HEADS
from densevit.registry import ComponentConfig
from densevit.structures import EncoderOutput, FeatureSpec, RemainingBlocks

# Options that make a component small; components that are not listed run with their defaults.
SMALL: dict[str, ComponentConfig] = {
    "vit": {"dim": 32, "depth": 3, "heads": 2, "image_size": 48},
    "timm": {"name": "test_vit", "arguments": {"img_size": 48}},
    "hybrid": {"dim": 32, "depth": 2, "heads": 2, "widths": [128] * 3, "depths": [1] * 3, "stem": 32, "image_size": 48},
    "swin": {
        "name": "swin_tiny_patch4_window7_224",  # version 2 starts with zero branches, which get no gradient
        "image_size": 64,
        "arguments": {"embed_dim": 24, "depths": [1, 1, 1, 1]},
    },
    "dpt": {"channels": 16},
    "zoedepth": {
        "channels": 16,
        "head_hidden": 8,
        "bins": 8,
        "embedding": 8,
        "attractors": [2, 2, 2, 2],
        "widths": [16, 8, 8, 8],
    },
    "upernet": {"channels": 16},
    "bins": {"bins": 16},
    "classifier": {"classes": 5},
    "segmentation": {"classes": 5},
    "panoptic": {"classes": 5},
    "instances": {"classes": 5},
    "mask_transformer": {"classes": 5, "dropout": 0.0},
    "eomt": {"classes": 5, "queries": 6, "blocks": 2},
}
# Other options of a decoder that change what it computes.
VARIANTS: list[ComponentConfig] = [
    {"type": "dpt", "channels": 16, "readout": "add", "deepest_unit": True},
    {"type": "dpt", "channels": 16, "readout": "average"},
    {"type": "dpt", "channels": 16, "readout": "project", "norm": "group"},
    {"type": "conv_transpose", "kernel": 4, "fuse": "sum", "norm": "group", "stride": 1},
    {"type": "linear", "class_token": True, "channels": 8, "scale": 4},
    {"type": "conv_transpose", "upsample": "bilinear", "channels": 16, "norm": "batch", "stride": 1},
    {"type": "dpt", "channels": 16, "norm": "batch", "auxiliary": 5},
    {"type": "eomt", "classes": 5, "queries": 6, "blocks": 1, "masked": False},
    {"type": "eomt", "classes": 5, "queries": 6, "blocks": 2, "segments": True},
    {"type": "upernet", "channels": 16, "norm": "group", "bins": [1, 2], "auxiliary": 5},
    {"type": "pool", "pool": "average"},
    {"type": "pool", "pool": "both"},
    {**SMALL["zoedepth"], "type": "zoedepth", "centres": "normed", "attractors": [4, 4, 4, 4]},
]
# Encoders whose maps have several strides, which only DPT takes.
PYRAMIDS = ("hybrid", "swin")


def small(name: str) -> ComponentConfig:
    return {"type": name, **SMALL.get(name, {})}


def decoder_for(encoder: str) -> ComponentConfig:
    return small("dpt" if encoder in PYRAMIDS else "linear")


PLAIN_DECODERS = [small(name) for name in DECODERS.components]
DECODER_SPECS = PLAIN_DECODERS + VARIANTS
OTHER_ENCODERS = [name for name in ENCODERS.components if name != "vit"]

# Each decoder behind one encoder, each encoder before one decoder.
PAIRS = [("vit", spec) for spec in DECODER_SPECS] + [(name, decoder_for(name)) for name in OTHER_ENCODERS]
# Each pair with one head, each head with one pair; and the head for a decoder whose map is depth already.
MODELS = [(encoder, spec, "metric") for encoder, spec in PAIRS]
MODELS += [("vit", small("linear"), head) for head in HEADS.components if head != "metric"]
MODELS += [("vit", small("zoedepth"), "identity_depth")]


def spec_name(spec: ComponentConfig | str) -> str:
    if isinstance(spec, str):
        return spec
    return "-".join(str(value) for key, value in spec.items() if key not in ("channels", "img_size"))


def build(encoder: ComponentConfig, decoder: ComponentConfig, head: ComponentConfig) -> DenseModel:
    return build_many(encoder, decoder, {"depth": head})


def build_many(
    encoder: ComponentConfig,
    decoder: ComponentConfig,
    heads: dict[str, ComponentConfig],
    own_decoders: dict[str, ComponentConfig] | None = None,
) -> DenseModel:
    """A model with several heads, some of which may have a decoder of their own."""
    torch.manual_seed(0)
    built = ENCODERS.check(encoder, "encoder").build()
    shared = DECODERS.check(decoder, "decoder").build(built.features, built.prefix_tokens)
    own = {
        name: DECODERS.check(spec, "decoder").build(built.features, built.prefix_tokens)
        for name, spec in (own_decoders or {}).items()
    }
    parts = {}
    for name, head in heads.items():
        channels = own.get(name, shared).output.channels
        if head["type"] == "mask_logits":  # has as many classes as the decoder has maps
            head = {**head, "classes": max(2, channels)}
        parts[name] = HEADS.check(head, "head").build(channels)
    return DenseModel(built, shared, parts, own)


def identity(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x


def needs_class_token(spec: ComponentConfig) -> bool:
    pooled = spec["type"] == "pool" and spec.get("pool", "token") != "average"
    return pooled or spec.get("readout", "ignore") != "ignore" or bool(spec.get("class_token"))


def run(decoder: Decoder, levels: int, patch: int, prefix: int, grid: tuple[int, int]) -> torch.Tensor:
    features = EncoderOutput(
        tuple(torch.randn(2, 32, *grid) for _ in range(levels)),
        tuple(torch.randn(2, prefix, 32) for _ in range(levels)),
        (grid[0] * patch, grid[1] * patch),
        RemainingBlocks(
            torch.randn(2, prefix + grid[0] * grid[1], 32), prefix, grid, (identity,) * decoder.encoder_blocks, identity
        ),
    )
    return as_decoder_output(decoder(features)).map


# The patch size only sets the stride, so that one size goes through every number of levels and prefix tokens here.
@pytest.mark.parametrize(
    "patch", [14, pytest.param(8, marks=pytest.mark.slow), pytest.param(16, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("spec", DECODER_SPECS, ids=spec_name)
def test_a_decoder_takes_any_grid_levels_and_prefix(spec: ComponentConfig, patch: int) -> None:
    torch.manual_seed(0)
    for levels in (1, 2, 3, 4):
        for prefix in (0, 1, 5):
            if prefix == 0 and needs_class_token(spec):
                continue
            decoder = DECODERS.check(spec, "decoder").build([FeatureSpec(32, patch)] * levels, prefix)
            for grid in ((1, 1), (3, 5), (4, 4)):
                x = run(decoder, levels, patch, prefix, grid)
                assert x.shape[:2] == (2, decoder.output.channels)
                assert torch.isfinite(x).all()
                if spec["type"] == "pool":  # one vector for the whole image
                    assert x.shape[-2:] == (1, 1)
                    continue
                # The stride is as declared, up to rounding for a patch that is no power of two.
                for cells, side in zip(x.shape[-2:], grid, strict=True):
                    assert abs(side * patch / cells - decoder.output.stride) <= 0.5


@pytest.mark.parametrize(("encoder", "spec", "head"), MODELS, ids=spec_name)
def test_the_gradient_reaches_every_parameter(encoder: str, spec: ComponentConfig, head: str) -> None:
    model = build(small(encoder), spec, small(head))
    predictions = model(torch.rand(2, 3, 37, 50))  # with the extras, where a decoder has any
    torch.stack([y.float().square().mean() for y in predictions.values()]).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    zero = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.any()]
    assert zero == []


@pytest.mark.parametrize("out_indices", [(0,), (1, 2), 1])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("encoder", [name for name in ENCODERS.components if name not in PYRAMIDS])
def test_with_any_out_indices_every_parameter_has_a_gradient(encoder: str, out_indices: Any, norm: bool) -> None:
    # DDP then needs no find_unused_parameters.
    model = build(
        {**small(encoder), "out_indices": out_indices, "norm": norm}, small("conv_transpose"), small("metric")
    )
    model(torch.rand(1, 3, 32, 32))["depth"].mean().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    ("encoder", "head"),
    [(name, "metric") for name in OTHER_ENCODERS] + [("vit", name) for name in HEADS.components],
)
def test_a_model_can_be_copied_pickled_and_saved(encoder: str, head: str) -> None:
    model = copy.deepcopy(build(small(encoder), decoder_for(encoder), small(head)))
    state = pickle.loads(pickle.dumps(model)).state_dict()
    # safetensors refuses tensors that share memory
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)


@pytest.mark.parametrize("head", [name for name in HEADS.components if name not in ("panoptic", "instances")])
def test_a_head_keeps_its_range_and_the_image_size(head: str) -> None:
    model = build(small("vit"), small("conv_transpose"), small(head))
    chosen = model.heads["depth"]
    for scale in (1.0, 1e3):
        for parameter in chosen.parameters():
            parameter.data *= scale
        y = model(torch.rand(2, 3, 5, 67))["depth"]  # lower than a patch
        channels = len(chosen.output.classes)  # type: ignore[union-attr,arg-type]
        shapes = {
            "class": (2, 5, 1, 1),
            "focal": (2, 1, 1, 1),
            "labels": (2, channels, 5, 67),
            "normals": (2, 3, 5, 67),
        }
        assert y.shape == shapes.get(chosen.output.kind, (2, 1, 5, 67))  # type: ignore[union-attr,arg-type]
        assert torch.isfinite(y).all()
        if chosen.output.range is not None:  # type: ignore[union-attr]
            low, high = chosen.output.range  # type: ignore[union-attr,misc]
            assert low <= y.min() <= y.max() <= high


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "spec"), PAIRS, ids=spec_name)
def test_bfloat16_stays_near_float(encoder: str, spec: ComponentConfig) -> None:
    model, image = build(small(encoder), spec, small("metric")), torch.rand(2, 3, 37, 50)
    exact = model(image)["depth"]
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(image)["depth"]
    rough.log().mean().backward()
    assert rough.dtype == torch.float32
    assert (rough / exact).log().abs().max() < 0.05


def assert_onnx_agrees(model: DenseModel) -> None:
    model, image = model.eval(), torch.rand(2, 3, 37, 50)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # biases and layer scales that start at 0 would hide what the conversion loses
            torch.nn.init.normal_(parameter, std=0.3)
    with torch.inference_mode():
        found = ExternalRuntimeModule(model, list(model.heads), RUNTIMES["onnxruntime"], "fp32")(image)
        expected = model(image)
        for name in model.heads:
            torch.testing.assert_close(
                found[name], expected[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.slow
def test_all_heads_become_one_onnx_graph() -> None:
    assert_onnx_agrees(build_many(small("vit"), small("linear"), {name: small(name) for name in HEADS.components}))


@pytest.mark.slow
@pytest.mark.parametrize("specs", [PLAIN_DECODERS, VARIANTS], ids=["plain", "variants"])
def test_all_decoders_become_one_onnx_graph(specs: list[ComponentConfig]) -> None:
    own = {f"{i}-{spec['type']}": spec for i, spec in enumerate(specs)}
    assert_onnx_agrees(build_many(small("vit"), small("linear"), dict.fromkeys(own, small("metric")), own))


@pytest.mark.slow
@pytest.mark.parametrize("encoder", OTHER_ENCODERS)
def test_an_encoder_becomes_one_onnx_graph(encoder: str) -> None:
    assert_onnx_agrees(build(small(encoder), decoder_for(encoder), small("metric")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_a_sharded_model_computes_the_same() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    for encoder, spec in [("vit", spec) for spec in PLAIN_DECODERS] + [(name, decoder_for(name)) for name in PYRAMIDS]:
        model, image = build(small(encoder), spec, small("metric")).eval(), torch.rand(2, 3, 37, 50)
        expected = model(image)["depth"].detach()
        depth = distributed.shard(model, mesh)(image)["depth"]
        torch.testing.assert_close(depth.detach(), expected)
        depth.mean().backward()
    dist.destroy_process_group()


@pytest.mark.slow
def test_models_compile_without_breaks() -> None:
    # In a process of its own: torch.compile cannot look through the shape checks that tests run under.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def compile_all() -> None:
    for encoder, spec in PAIRS:
        model, image = build(small(encoder), spec, small("metric")), torch.rand(2, 3, 37, 50)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(image)["depth"], model(image)["depth"], atol=1e-4, rtol=1e-4)
        compiled(image)["depth"].mean().backward()
        torch.compiler.reset()


if __name__ == "__main__":
    compile_all()
