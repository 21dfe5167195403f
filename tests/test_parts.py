"""Encoders, decoders and heads of the registries work together; a new part is tested the day it registers."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch

from densevit.inference.backends.onnx_runtimes import RUNTIMES, ExternalRuntimeModule
from densevit.models import DECODERS, ENCODERS, HEADS, DenseModel
from densevit.models.decoders.base import Decoder
from densevit.models.dense import decoded
from densevit.registry import ComponentConfig
from densevit.structures import EncoderOutput, FeatureSpec, RemainingBlocks

# What a part needs beyond its defaults to be small; parts that are not listed run as they are.
SMALL: dict[str, ComponentConfig] = {
    "vit": {"dim": 32, "depth": 3, "heads": 2, "image_size": 48},
    "timm": {"name": "test_vit", "arguments": {"img_size": 48}},
    "hybrid": {"dim": 32, "depth": 2, "heads": 2, "widths": [128] * 3, "depths": [1] * 3, "stem": 32, "image_size": 48},
    "swin": {
        "name": "swin_tiny_patch4_window7_224",  # version 2 begins with branches of 0, without a gradient
        "image_size": 64,
        "arguments": {"embed_dim": 24, "depths": [1, 1, 1, 1]},
    },
    "dpt": {"channels": 16},
    "zoedepth": {
        "channels": 16,
        "fine": 8,
        "bins": 8,
        "embedding": 8,
        "attractors": [4, 4, 4, 4],
        "widths": [16, 8, 8, 8],
    },
    "bins": {"bins": 16},
    "classifier": {"classes": 5},
    "labels": {"classes": 5},
    "mask_transformer": {"classes": 5, "dropout": 0.0},
    "eomt": {"classes": 5, "queries": 6, "blocks": 2},
}
# Other ways to build a part that deserve the same tests.
VARIANTS: list[ComponentConfig] = [
    {"type": "dpt", "channels": 16, "readout": "add", "deepest_unit": True},
    {"type": "dpt", "channels": 16, "readout": "average"},
    {"type": "dpt", "channels": 16, "readout": "project", "norm": "group"},
    {"type": "conv_transpose", "kernel": 4, "fuse": "sum", "norm": "group", "stride": 1},
    {"type": "linear", "class_token": True, "channels": 8, "scale": 4},
    {"type": "conv_transpose", "upsample": "bilinear", "channels": 16, "norm": "batch", "stride": 1},
    {"type": "dpt", "channels": 16, "norm": "batch", "auxiliary": 5},
    {"type": "eomt", "classes": 5, "queries": 6, "blocks": 1, "masked": False},
    {"type": "pool", "pool": "average"},
    {"type": "pool", "pool": "both"},
    {**SMALL["zoedepth"], "type": "zoedepth", "centres": "normed"},
]
# Encoders whose maps have several strides, which only DPT takes.
PYRAMIDS = ("hybrid", "swin")


def small(name: str) -> ComponentConfig:
    return {"type": name, **SMALL.get(name, {})}


def behind(encoder: str) -> ComponentConfig:
    return small("dpt" if encoder in PYRAMIDS else "linear")


DECODER_SPECS = [small(name) for name in DECODERS.parts] + VARIANTS

# Each decoder behind one encoder, each encoder before one decoder.
PAIRS = [("vit", spec) for spec in DECODER_SPECS]
PAIRS += [(name, behind(name)) for name in ENCODERS.parts if name != "vit"]


def spec_name(spec: ComponentConfig | str) -> str:
    if isinstance(spec, str):
        return spec
    return "-".join(str(value) for key, value in spec.items() if key not in ("channels", "img_size"))


def build(encoder: ComponentConfig, decoder: ComponentConfig, head: ComponentConfig) -> DenseModel:
    torch.manual_seed(0)
    built = ENCODERS.check(encoder, "encoder").build()
    decoding = DECODERS.check(decoder, "decoder").build(built.features, built.prefix_tokens)
    if head["type"] == "mask_logits":  # has as many classes as the decoder has maps
        head = {**head, "classes": max(2, decoding.output.channels)}
    return DenseModel(built, decoding, {"depth": HEADS.check(head, "head").build(decoding.output.channels)})


def standing(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x


def needs_class_token(spec: ComponentConfig) -> bool:
    pooled = spec["type"] == "pool" and spec.get("pool", "token") != "average"
    return pooled or spec.get("readout", "ignore") != "ignore" or bool(spec.get("class_token"))


def run(
    spec: ComponentConfig, out_indices: int, patch: int, prefix: int, grid: tuple[int, int]
) -> tuple[Decoder, torch.Tensor]:
    torch.manual_seed(0)
    decoder = DECODERS.check(spec, "decoder").build([FeatureSpec(32, patch)] * out_indices, prefix)
    features = EncoderOutput(
        tuple(torch.randn(2, 32, *grid) for _ in range(out_indices)),
        tuple(torch.randn(2, prefix, 32) for _ in range(out_indices)),
        (grid[0] * patch, grid[1] * patch),
        RemainingBlocks(
            torch.randn(2, prefix + grid[0] * grid[1], 32), prefix, grid, (standing,) * decoder.joins, standing
        ),
    )
    return decoder, decoded(decoder(features)).map


@pytest.mark.parametrize("spec", DECODER_SPECS, ids=spec_name)
@pytest.mark.parametrize("patch", [8, 14, 16])
def test_a_decoder_takes_any_grid_taps_and_prefix(spec: ComponentConfig, patch: int) -> None:
    for out_indices in (1, 2, 3, 4):
        for prefix in (0, 1, 5):
            if prefix == 0 and needs_class_token(spec):
                continue
            for grid in ((1, 1), (3, 5), (4, 4)):
                decoder, x = run(spec, out_indices, patch, prefix, grid)
                assert x.shape[:2] == (2, decoder.output.channels)
                assert torch.isfinite(x).all()
                if spec["type"] == "pool":  # one vector for the whole image
                    assert x.shape[-2:] == (1, 1)
                    continue
                # The stride is what it says, up to rounding a patch that is no power of two.
                for cells, side in zip(x.shape[-2:], grid, strict=True):
                    assert abs(side * patch / cells - decoder.output.stride) <= 0.5


@pytest.mark.parametrize(("encoder", "spec"), PAIRS, ids=spec_name)
def test_the_gradient_reaches_every_parameter(encoder: str, spec: ComponentConfig) -> None:
    for head in HEADS.parts:
        if spec["type"] == "zoedepth" and head == "mask_logits":  # one map makes no classes
            continue
        model = build(small(encoder), spec, small(head))
        answers = model(torch.rand(2, 3, 37, 50))  # with the extras, where a decoder has any
        torch.stack([y.float().square().mean() for y in answers.values()]).sum().backward()
        assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
        still = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.any()]
        assert still == []


@pytest.mark.parametrize("out_indices", [(0,), (1, 2), 1])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("encoder", [name for name in ENCODERS.parts if name not in PYRAMIDS])
def test_whatever_the_taps_no_parameter_is_left_without_a_gradient(encoder: str, out_indices: Any, norm: bool) -> None:
    # DDP then needs no find_unused_parameters.
    model = build(
        {**small(encoder), "out_indices": out_indices, "norm": norm}, small("conv_transpose"), small("metric")
    )
    model(torch.rand(1, 3, 32, 32))["depth"].mean().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("head", HEADS.parts)
@pytest.mark.parametrize("encoder", ENCODERS.parts)
def test_a_model_can_be_copied_pickled_and_saved(encoder: str, head: str) -> None:
    model = copy.deepcopy(build(small(encoder), behind(encoder), small(head)))
    state = pickle.loads(pickle.dumps(model)).state_dict()
    # safetensors refuses tensors that share memory
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)


@pytest.mark.parametrize("head", HEADS.parts)
def test_a_head_keeps_its_word_and_the_size_of_the_image(head: str) -> None:
    model = build(small("vit"), small("conv_transpose"), small(head))
    chosen = model.heads["depth"]
    for scale in (1.0, 1e3):
        for parameter in chosen.parameters():
            parameter.data *= scale
        y = model(torch.rand(2, 3, 29, 67))["depth"]
        shapes = {"class": (2, 5, 1, 1), "labels": (2, len(chosen.output.classes), 29, 67)}  # type: ignore[union-attr,arg-type]
        assert y.shape == shapes.get(chosen.output.kind, (2, 1, 29, 67))  # type: ignore[union-attr,arg-type]
        assert torch.isfinite(y).all()
        if chosen.output.range is not None:  # type: ignore[union-attr]
            low, high = chosen.output.range  # type: ignore[union-attr,misc]
            assert low <= y.min() <= y.max() <= high


@pytest.mark.parametrize(("encoder", "spec"), PAIRS, ids=spec_name)
def test_bfloat16_stays_near_float(encoder: str, spec: ComponentConfig) -> None:
    model, image = build(small(encoder), spec, small("metric")), torch.rand(2, 3, 37, 50)
    exact = model(image)["depth"]
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(image)["depth"]
    rough.log().mean().backward()
    assert rough.dtype == torch.float32
    assert (rough / exact).log().abs().max() < 0.05


GRAPHS = [(encoder, spec, "metric") for encoder, spec in PAIRS]
GRAPHS += [("vit", small("linear"), head) for head in HEADS.parts if head != "metric"]


@pytest.mark.parametrize(("encoder", "spec", "head"), GRAPHS, ids=spec_name)
def test_a_model_is_one_graph_that_other_programs_compute(encoder: str, spec: ComponentConfig, head: str) -> None:
    model, image = build(small(encoder), spec, small(head)).eval(), torch.rand(2, 3, 37, 50)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # biases and layer scales that start at nothing would hide what is lost
            torch.nn.init.normal_(parameter, std=0.3)
    with torch.inference_mode():
        answer = ExternalRuntimeModule(model, ["depth"], RUNTIMES["onnxruntime"], "fp32")(image)["depth"]
        torch.testing.assert_close(answer, model(image)["depth"], rtol=1e-4, atol=1e-5)


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
