"""Our network in int8, by each recipe of `export --precision int8` and each runtime that is installed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from densevit.inference.backends.onnx_runtimes import RUNTIMES, Run, RuntimeName
from densevit.inference.onnx import quantize
from densevit.inference.onnx.graph import NamedOutputs, save_graph
from densevit.models.dense import DenseModel
from densevit.utils.device import Precision
from densevit.utils.packages import is_installed


def int8_forwards(
    model: DenseModel, image: Float[Tensor, "1 3 h w"], folder: Path, absent: list[str]
) -> dict[str, Callable[[], Tensor]]:
    """Ours as `export --precision int8` quantises it, by recipe and runtime; random weights need no budget. What a
    runtime refuses is named in `absent`."""
    plain, random = folder / "fp32.onnx", np.random.default_rng(0)
    with torch.inference_mode(mode=False), torch.no_grad():
        save_graph(NamedOutputs(model, list(model.heads)), (image.clone(),), plain)
    smooth = [cv2.resize(random.random((8, 8, 3), dtype=np.float32), image.shape[:1:-1]) for _ in range(4)]
    images = [each.transpose(2, 0, 1)[None].copy() for each in smooth]
    ways: tuple[tuple[str, RuntimeName, Precision], ...] = (
        ("OpenVINO", "openvino", "bf16"),
        ("OpenVINO", "openvino", "fp32"),
        ("ONNX Runtime", "onnxruntime", "fp32"),
    )
    forwards: dict[str, Callable[[], Tensor]] = {}
    for index, recipe in enumerate(quantize.RECIPES):
        path = folder / f"{index}.onnx"
        quantize.quantize(plain, path, recipe, images, {})
        for name, runtime, rest in ways:
            if all(map(is_installed, RUNTIMES[runtime].needs)):
                title = f"densevit by {name}, {recipe}, rest {rest}"
                try:
                    run = partial(run_session, RUNTIMES[runtime].open(path, rest), image.numpy())
                    run()
                except Exception as error:  # each runtime has its own classes
                    absent.append(f"{title}: {str(error).strip().splitlines()[-1]}")
                else:
                    forwards[title] = run
    return forwards


def run_session(session: Run, image: np.ndarray) -> Tensor:
    return torch.from_numpy(session(image)[0])
