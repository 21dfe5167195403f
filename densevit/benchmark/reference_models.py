"""Other implementations, run beside ours where they can be imported, with the same weights.

A peer starts from random numbers, saves itself in its own format, and our loader reads the file: what is compared is
the same network twice. b images, h x w pixels, k channels. No weights are downloaded.
"""

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

from densevit.builder.checkpoint import restore
from densevit.errors import ConfigError
from densevit.inference.backends.onnx_runtimes import RUNTIMES, OnnxRuntime, Runtime, resolve_device_and_precision
from densevit.models.dense import DenseModel

SIZES: dict[str, dict[str, Any]] = {
    "small": {"encoder": "vits", "features": 64, "out_channels": [48, 96, 192, 384]},
    "base": {"encoder": "vitb", "features": 128, "out_channels": [96, 192, 384, 768]},
    "large": {"encoder": "vitl", "features": 256, "out_channels": [256, 512, 1024, 1024]},
}
"""Depth Anything V2's own table (its run.py)."""

PROCESSOR = {"image_processor_type": "DPTImageProcessor", "do_resize": True, "size": {"height": 518, "width": 518}}
SEED = 0
GAIN = 0.1  # of LayerScale: at its usual start, 1e-5, blocks hardly count, and every difference would pass


class Absent(Exception):
    """This peer cannot be run here; the text says what is missing."""


@dataclass(frozen=True)
class Peer:
    """Another implementation of a network that we have, too.

    Attributes:
        family: what our loader calls its files.
        answer: the normalised image and the module -> b k h w.
        patch: sides of images are multiples of it.
    """

    name: str
    family: str
    module: nn.Module
    answer: Callable[[nn.Module, Tensor], Tensor]
    save: Callable[[nn.Module, Path], Path]
    patch: int

    def __call__(self, normalised: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b k h w"]:
        return self.answer(self.module, normalised)

    def twin(self, folder: Path) -> DenseModel:
        """Our network with this one's weights, read from a file as a user would."""
        model, _ = restore(self.save(self.module, folder), self.family)
        return model.eval()


def depth_anything(size: str, folder: Path | None) -> Peer:
    """The reference code of Depth Anything V2, from a folder that holds its repository.

    Raises:
        Absent: no folder was named, or it is not that.
    """
    if folder is None:
        raise Absent("Depth Anything V2's reference code: name its folder by --depth-anything.")
    if not (folder / "depth_anything_v2/dpt.py").is_file():
        raise Absent(f"Depth Anything V2's reference code: {folder} holds no depth_anything_v2/dpt.py.")
    with importable(folder):
        module = seeded(lambda: need("depth_anything_v2.dpt").DepthAnythingV2(**SIZES[size]))
    return Peer("Depth Anything V2, reference", "depth-anything-v2", module, lambda m, x: m(x)[:, None], save_state, 14)


def transformers(size: str) -> Peer:
    """
    Raises:
        Absent: transformers is not installed.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    library = need("transformers")
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
    module = seeded(lambda: library.DepthAnythingForDepthEstimation(config))

    def save(module: nn.Module, folder: Path) -> Path:
        module.save_pretrained(folder / "transformers")  # type: ignore[operator]
        processor = (
            '{"image_processor_type": "DPTImageProcessor", "do_resize": true, "size": {"height": 518, "width": 518}}'
        )
        (folder / "transformers/preprocessor_config.json").write_text(processor)
        return folder / "transformers"

    return Peer(
        "transformers DepthAnything", "huggingface", module, lambda m, x: m(pixel_values=x).predicted_depth[:, None],
        save, 14,
    )  # fmt: skip


def smp(size: str) -> Peer:
    """The DPT of segmentation-models-pytorch, which knows patches of 16 only.

    Raises:
        Absent: it is not installed.
    """
    library = need("segmentation_models_pytorch")
    encoder = f"tu-vit_{size}_patch16_224.augreg_in21k"
    options = {"encoder_weights": None, "classes": 2, "dynamic_img_size": True}
    module = seeded(lambda: library.DPT(encoder_name=encoder, **options))

    def save(module: nn.Module, folder: Path) -> Path:
        module.save_pretrained(folder / "smp")  # type: ignore[operator]
        return folder / "smp"

    return Peer("segmentation-models-pytorch DPT", "smp-dpt", module, lambda m, x: m(x), save, 32)  # it halves its grid


def onnx_runtime(peer: Peer, example: Float[Tensor, "1 3 h w"], folder: Path) -> Callable[[Tensor], Tensor]:
    """A peer's network, exported for images of one size and run by ONNX Runtime on the CPU.

    Raises:
        Absent: onnxruntime, or what torch exports with, is not installed.
    """
    for name in OnnxRuntime.needs:
        need(name)
    path = folder / "peer.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters warn of much that does not concern the result
        torch.onnx.export(peer.module, (example,), str(path), dynamo=True, verbose=False)
    answers = OnnxRuntime().open(path, "fp32")

    def run(x: Tensor) -> Tensor:
        found = torch.from_numpy(answers(x.numpy())[0])
        return found[:, None] if found.ndim == 3 else found

    return run


def openvino(device: torch.device, precision: str) -> Runtime:
    """What computes our network by OpenVINO.

    Raises:
        Absent: it is not installed, or computes neither there nor so.
    """
    try:
        resolve_device_and_precision("openvino", device, precision)
    except ConfigError as reason:
        raise Absent(f"densevit by OpenVINO: {reason}") from None
    return RUNTIMES["openvino"]


def only(answers: Mapping[str, Tensor]) -> Tensor:
    """The answer of a network with one head."""
    (answer,) = answers.values()
    return answer


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference says at length that xFormers is not there
        module = build().eval()
    for name, parameter in module.named_parameters():
        if name.endswith(("gamma", "lambda1")):
            nn.init.constant_(parameter, GAIN)
    return module


def save_state(module: nn.Module, folder: Path) -> Path:
    path = folder / "peer.pth"
    torch.save(module.state_dict(), path)
    return path


def need(package: str) -> Any:
    """A package that we do not require, imported.

    Raises:
        Absent: it is not installed.
    """
    if find_spec(package) is None:
        raise Absent(f"{package} is not installed.")
    return import_module(package)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Modules of a folder can be imported inside; what was imported stays."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
