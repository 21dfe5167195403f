"""Other implementations, run beside ours where they can be imported, with the same weights.

A reference model starts from random numbers and saves itself in its own format, and our loader reads that file: the
same network is timed twice. b images, h x w pixels, k channels. No weights are downloaded.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.builder.checkpoint import parse_model, restore
from densevit.builder.model import build_card, build_model
from densevit.errors import ConfigError
from densevit.inference.backends.auto import resolve_device_and_precision
from densevit.inference.backends.onnx_runtimes import RUNTIMES, OnnxRuntime, Runtime
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.preprocess_config import PreprocessConfig

SIZES: dict[str, dict[str, Any]] = {
    "small": {"encoder": "vits", "features": 64, "out_channels": [48, 96, 192, 384]},
    "base": {"encoder": "vitb", "features": 128, "out_channels": [96, 192, 384, 768]},
    "large": {"encoder": "vitl", "features": 256, "out_channels": [256, 512, 1024, 1024]},
}
"""Depth Anything V2's own table (its run.py)."""

UNTUNED = "Depth Anything V2, reference, fp32, with glibc's own settings"
"""The reference as its users run it: without `tune_malloc`, in processes of its own and so not in turns."""

SEED = 0
GAIN = 0.1  # of LayerScale: at its usual start, 1e-5, blocks hardly count and differences would not show


class Unavailable(Exception):
    """This implementation cannot run here; the message says what is missing."""


@dataclass(frozen=True)
class ReferenceModel:
    """Another implementation of a network that densevit has."""

    name: str
    family: str  # what our loader calls its files
    module: nn.Module
    forward: Callable[[nn.Module, Tensor], Tensor]  # the module and the normalised image -> b k h w
    save: Callable[[nn.Module, Path], Path]
    patch: int  # sides of images are multiples of it

    def __call__(self, normalised: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b k h w"]:
        return self.forward(self.module, normalised)

    def as_densevit(self, folder: Path) -> DenseModel:
        """Return our network with this one's weights, read from a file as a user would."""
        model, _ = restore(self.save(self.module, folder), self.family)
        return model.eval()


def depth_anything(size: str, folder: Path | None) -> ReferenceModel:
    """Return the reference code of Depth Anything V2, from a folder that holds its repository. Raises Unavailable if no
    folder was named, or it is not that."""
    if folder is None:
        raise Unavailable("Depth Anything V2's reference code: name its folder by --depth-anything.")
    if not (folder / "depth_anything_v2/dpt.py").is_file():
        raise Unavailable(f"Depth Anything V2's reference code: {folder} holds no depth_anything_v2/dpt.py.")
    with on_sys_path(folder):
        module = build_seeded(lambda: require_package("depth_anything_v2.dpt").DepthAnythingV2(**SIZES[size]))
    return ReferenceModel(
        "Depth Anything V2, reference", "depth-anything-v2", module, lambda m, x: m(x)[:, None], save_state_dict, 14
    )


def transformers(size: str) -> ReferenceModel:
    """Raise Unavailable if transformers is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    library = require_package("transformers")
    table, dims = SIZES[size], {"small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}[size]
    out_indices = [3, 6, 9, 12] if dims[1] == 12 else [5, 12, 18, 24]
    backbone = library.Dinov2Config(
        hidden_size=dims[0], num_hidden_layers=dims[1], num_attention_heads=dims[2], image_size=518, patch_size=14,
        out_indices=out_indices, apply_layernorm=True, reshape_hidden_states=False,
    )  # fmt: skip
    config = library.DepthAnythingConfig(
        backbone_config=backbone, reassemble_hidden_size=dims[0], neck_hidden_sizes=table["out_channels"],
        fusion_hidden_size=table["features"],
    )  # fmt: skip
    module = build_seeded(lambda: library.DepthAnythingForDepthEstimation(config))
    processor = {"image_processor_type": "DPTImageProcessor", "do_resize": True, "size": {"height": 518, "width": 518}}

    def save(module: nn.Module, folder: Path) -> Path:
        module.save_pretrained(folder / "transformers")  # type: ignore[operator]
        (folder / "transformers/preprocessor_config.json").write_text(json.dumps(processor))
        return folder / "transformers"

    return ReferenceModel(
        "transformers DepthAnything", "huggingface", module, lambda m, x: m(pixel_values=x).predicted_depth[:, None],
        save, 14,
    )  # fmt: skip


def smp(size: str) -> ReferenceModel:
    """Return the DPT of segmentation-models-pytorch, which knows patches of 16 only. Raises Unavailable if it is not
    installed."""
    library = require_package("segmentation_models_pytorch")
    encoder = f"tu-vit_{size}_patch16_224.augreg_in21k"
    options = {"encoder_weights": None, "classes": 2, "dynamic_img_size": True}
    module = build_seeded(lambda: library.DPT(encoder_name=encoder, **options))

    def save(module: nn.Module, folder: Path) -> Path:
        module.save_pretrained(folder / "smp")  # type: ignore[operator]
        return folder / "smp"

    return ReferenceModel(
        "segmentation-models-pytorch DPT", "smp-dpt", module, lambda m, x: m(x), save, 32
    )  # it halves its grid


def onnx_runtime(
    reference: ReferenceModel, example: Float[Tensor, "1 3 h w"], folder: Path
) -> Callable[[Tensor], Tensor]:
    """Return a reference model, exported for images of one size and run by ONNX Runtime on the CPU. Raises Unavailable:
    onnxruntime, or what torch exports with, is not installed."""
    for name in OnnxRuntime.needs:
        require_package(name)
    path = folder / "reference.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters warn of much that does not concern the result
        torch.onnx.export(reference.module, (example,), str(path), dynamo=True, verbose=False)
    session = OnnxRuntime().open(path, "fp32")

    def run(x: Tensor) -> Tensor:
        output = torch.from_numpy(session(x.numpy())[0])
        return output[:, None] if output.ndim == 3 else output

    return run


def openvino(device: torch.device, precision: str) -> Runtime:
    """Return OpenVINO, to run our network. Raises Unavailable: not installed, or does not support this device or
    precision."""
    try:
        resolve_device_and_precision("openvino", device, precision)
    except ConfigError as reason:
        raise Unavailable(f"densevit by OpenVINO: {reason}") from None
    return RUNTIMES["openvino"]


def single_output(outputs: Mapping[str, Tensor]) -> Tensor:
    """Return the output of a network with one head."""
    (output,) = outputs.values()
    return output


def build_seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference says at length that xFormers is not there
        module = build().eval()
    for name, parameter in module.named_parameters():
        if name.endswith(("gamma", "lambda1")):
            nn.init.constant_(parameter, GAIN)
    return module


def save_state_dict(module: nn.Module, folder: Path) -> Path:
    path = folder / "reference.pth"
    torch.save(module.state_dict(), path)
    return path


def require_package(package: str) -> Any:
    """Import an optional package. Raises Unavailable if it is not installed."""
    if find_spec(package) is None:
        raise Unavailable(f"{package} is not installed.")
    return import_module(package)


@contextmanager
def on_sys_path(folder: Path) -> Iterator[None]:
    """Make the modules of a folder importable."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


RESIZE = PreprocessConfig(mode="lower_bound", size=(518, 518), interpolation="bicubic")


def our_network(size: str) -> tuple[DenseModel, ModelCard]:
    """Return Depth Anything V2's network in our components, with random weights; for when no reference model is
    available."""
    torch.manual_seed(0)
    encoder = {"type": "vit", "size": size, "patch_size": 14, "image_size": 518, "layer_scale": 0.1}
    decoder = {"type": "dpt", "channels": SIZES[size]["features"], "hidden": SIZES[size]["out_channels"]}
    heads = {"depth": {"type": "disparity", "align_corners": True}}
    spec = parse_model({"encoder": encoder, "decoder": decoder, "heads": heads}, "benchmark", RESIZE)
    model = build_model(spec).eval()
    return model, build_card(model, spec)
