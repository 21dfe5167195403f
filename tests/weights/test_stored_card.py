"""Cards and metadata of files that somebody else wrote: whatever they hold, they load or are an error of the file."""

import json
import math
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from shell import Shell
from toy_models import save_network, toy_network

from densevit.builder.checkpoint import restore
from densevit.data.io.readers import read_depth
from densevit.errors import CheckpointError, DensevitError
from densevit.inference.onnx.load import load_onnx
from densevit.weights.readers import read_arrays

NETWORK, CARD = toy_network()
TREE = json.loads(json.dumps(asdict(CARD)))
BRACKETS = "[" * 100_000


DEPTH = TREE["outputs"]["depth"]
UNREADABLE, OTHER = "its card cannot be read", r"its card says .*, and its model gives \{'depth': 'metric from .*'\}"
IMAGES = r"its card says that the {} of images is \(0.5, 0.5, 0.5\)"
ENCODER = r"its model has patches of 14 pixels and blocks \(0, 1\)"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (BRACKETS, UNREADABLE),
        ({"fov": "x"}, UNREADABLE),
        ({"outputs": {"../../../evil": DEPTH}}, UNREADABLE),
        ({"multiple": 0}, UNREADABLE),
        ({"resize": {**TREE["resize"], "size": [-1, 4]}}, UNREADABLE),
        ({"resize": {**TREE["resize"], "window": [0, 4]}}, UNREADABLE),
        ({"outputs": {}}, OTHER),
        *(({"outputs": {"depth": {**DEPTH, **change}}}, OTHER) for change in (
            {"kind": "disparity"}, {"range": [0.5, 20.0]}, {"range": None}, {"focal": 100.0}, {"unit": "mm"},
        )),
        *(({name: [0.5, 0.5, 0.5]}, IMAGES.format(name)) for name in ("mean", "std")),
        ({"multiple": 16}, ENCODER),
        ({"out_indices": [0, 2]}, ENCODER),
    ],
)  # fmt: skip
def test_a_bad_card_and_one_of_another_model_are_one_error(change: Any, told: str, tmp_path: Path) -> None:
    card = change if change is BRACKETS else json.dumps({**TREE, **change})
    safetensors.torch.save_file(NETWORK.state_dict(), tmp_path / "model.safetensors", {"densevit": card})
    with pytest.raises(CheckpointError, match=told):
        restore(tmp_path / "model.safetensors")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(value: float, tmp_path: Path, shell: Shell) -> None:
    network, card = toy_network()
    torch.nn.init.constant_(next(network.encoder.parameters()), value)
    folder = save_network(tmp_path / "model", (network, card))
    (tmp_path / "0.png").write_bytes(b"")
    told = shell.refused("predict", folder, tmp_path / "0.png", "--output", tmp_path / "out")
    assert "1 weights are NaN or infinite: encoder." in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("read", [read_arrays, read_depth])
def test_an_array_that_claims_a_petabyte_is_an_error_of_its_file(read: Any, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive, archive.open("depth.npy", "w") as entry:
        shape = (10**7, 10**8)
        np.lib.format.write_array_header_1_0(entry, {"descr": "<u1", "fortran_order": False, "shape": shape})
    with pytest.raises(DensevitError, match="huge.npz"):
        read(tmp_path / "huge.npz")


def file_of(path: Path, dims: int = 4, output: str = "depth", **metadata: str) -> Path:
    """A graph of one operation with the metadata of an export."""
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 28, 28][:dims])
    depth = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Identity", ["image"], [output])], "g", [image][:dims], [depth])
    model = helper.make_model(graph, producer_name="densevit")
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({}, "its card cannot be read"),
        ({"card": "[]"}, "its card cannot be read"),
        ({"card": BRACKETS}, "its card cannot be read"),
        ({"card": json.dumps(TREE), "dims": 0}, "no batch of images"),
        ({"card": json.dumps(TREE), "dims": 2}, "no batch of images"),
        ({"card": json.dumps(TREE), "window": "(0, 9, 0"}, "its window is"),
        ({"card": json.dumps(TREE), "output": "other"}, "names outputs that it does not have: depth"),
    ],
)
def test_an_onnx_file_with_bad_metadata_is_an_error_of_the_file(facts: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=told):
        load_onnx(file_of(tmp_path / "bad.onnx", **facts))
