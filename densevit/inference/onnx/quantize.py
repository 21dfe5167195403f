"""Quantises an ONNX file to int8 with NNCF.

The file gets pairs of QuantizeLinear and DequantizeLinear (QDQ), which ONNX Runtime, OpenVINO and TensorRT compute in
int8. Activations are calibrated on images, with SmoothQuant (Xiao et al. 2023) for the outliers of Transformers.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from densevit.inference.onnx.graph import quiet
from densevit.utils.packages import refuse_telemetry

if TYPE_CHECKING:
    import onnx

NEEDS = ("nncf",)
CONVOLUTIONS, PRODUCTS = "convolutions", "products of attention"
OPERATORS = {"Conv": CONVOLUTIONS, "ConvTranspose": CONVOLUTIONS, "MatMul": PRODUCTS}

RECIPES: Mapping[str, tuple[str, ...]] = {
    "all layers in int8": (),
    "linear layers and products of attention in int8": (CONVOLUTIONS,),
    "linear layers in int8": (CONVOLUTIONS, PRODUCTS),
}
"""Name -> which layers stay in floating point; from the fastest to the most accurate."""


def quantize(
    path: Path, output: Path, recipe: str, images: Sequence[np.ndarray], about: Mapping[str, str]
) -> list[str]:
    """Write an int8 file, and return the names of the layers that stay in floating point. `images`: to calibrate on,
    each as the file takes one; `about`: metadata beside those of the file at `path`."""
    refuse_telemetry()
    import nncf
    import onnx

    model = onnx.load(path)
    float_layers = [node.name for node in model.graph.node if kind_of(model, node) in RECIPES[recipe]]
    outside = nodes_outside(model)
    input_name = model.graph.input[0].name
    with quiet_nncf():
        made = nncf.quantize(
            model,
            nncf.Dataset(images, lambda image: {input_name: image}),
            subset_size=len(images),
            model_type=nncf.ModelType.TRANSFORMER,
            ignored_scope=nncf.IgnoredScope(names=[*float_layers, *outside], validate=False),
        )
    separate_biases(made)
    made.producer_name, made.producer_version = model.producer_name, model.producer_version
    onnx.helper.set_model_props(made, {**{entry.key: entry.value for entry in model.metadata_props}, **about})
    onnx.save(made, output)
    return float_layers


def kind_of(model: "onnx.ModelProto", node: "onnx.NodeProto") -> str | None:
    """Return which of the kinds of `RECIPES` a node is; None for others, linear layers among them."""
    kind = OPERATORS.get(node.op_type)
    weights = {tensor.name for tensor in model.graph.initializer}
    return None if kind == PRODUCTS and weights.intersection(node.input) else kind


def nodes_outside(model: "onnx.ModelProto") -> list[str]:
    """Return the nodes that are not quantised: all but products, and products of the preprocessing.

    Sums and activations gain nothing from int8, and those of a head round the prediction. An encoder begins with a
    convolution, the patch embedding; what does not depend on one is preprocessing.
    """
    reached: set[str] = set()
    names = []
    for node in model.graph.node:  # in topological order
        inside = node.op_type == "Conv" or bool(reached.intersection(node.input))
        if inside:
            reached.update(node.output)
        if not inside or node.op_type not in (*OPERATORS, "Gemm"):
            names.append(node.name)
    return names


def separate_biases(model: "onnx.ModelProto") -> None:
    """Give biases of linear layers the shape 1 x 1 x k, in place.

    ONNX Runtime (1.31) joins a product and a bias of k numbers into a Gemm before it looks for int8, and computes that
    in fp32: at 518 x 518 slower than the fp32 file. With another shape it computes the product in int8.
    """
    from onnx import numpy_helper

    values = {tensor.name: tensor for tensor in model.graph.initializer}
    products = {output for node in model.graph.node if node.op_type == "MatMul" for output in node.output}
    for node in model.graph.node:
        if node.op_type != "Add" or not products.intersection(node.input):
            continue
        for i, name in enumerate(node.input):
            if name in values and len(values[name].dims) == 1:
                node.input[i] = separate = f"{name}/bias"
                if separate not in values:  # equal weights of several layers are one tensor
                    bias = numpy_helper.from_array(numpy_helper.to_array(values[name])[None, None], separate)
                    model.graph.initializer.append(bias)
                    values[separate] = bias


@contextmanager
def quiet_nncf() -> Iterator[None]:
    """Silence NNCF's messages and progress bars."""
    import nncf

    before = logging.getLogger("nncf").level
    try:
        nncf.set_log_level(logging.ERROR)
        with quiet(), redirect_stdout(StringIO()):
            yield
    finally:
        nncf.set_log_level(before)
