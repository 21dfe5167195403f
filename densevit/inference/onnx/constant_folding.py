"""Constant folding: a traced network whose position embeddings and offset tables are computed once and stored."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg


def trace(module: nn.Module, examples: tuple[Tensor, ...], **shapes: Any) -> ExportedProgram:
    """Return the network as a graph with folded constants; `shapes` as `torch.export.export` takes them."""
    program = torch.export.export(module, examples, **shapes)
    if has_aliased_writes(program):
        flat = torch.export.export(FoldedModule(program, dict(stored_tensors(program))), examples, **shapes)
        program = flat.run_decompositions({})  # every in-place write becomes a new tensor
    return torch.export.export(FoldedModule(program, constants(program)), examples, **shapes)


class FoldedModule(nn.Module):
    """Runs a traced network node by node, with the values of constant nodes stored as buffers.

    `ExportedProgram.module()` writes the names of outputs into Python code, where a head must not be called `class`.
    """

    def __init__(self, program: ExportedProgram, values: Mapping[Node, Any]) -> None:
        """
        Args:
            values: constant nodes, which are not run, with their values.
        """
        super().__init__()
        self.nodes, self.const = list(program.graph.nodes), values
        self.steps = self.needed()
        for node in {node for step in self.steps for node in step.all_input_nodes}:
            if isinstance(value := self.const.get(node), Tensor):
                self.register_buffer(buffer_name(node), value.detach().contiguous())

    def needed(self) -> list[Node]:
        """Return the nodes from the image to the outputs, in order; the output node is last."""
        needed = {self.nodes[-1], *filter(mutates, self.nodes)}
        for node in reversed(self.nodes):
            if node in needed and node not in self.const:
                needed.update(node.all_input_nodes)
        return [node for node in self.nodes if node in needed and node not in self.const and node.op != "placeholder"]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        placeholders = (node for node in self.nodes if node.op == "placeholder" and node not in self.const)
        values: dict[Node, Any] = dict(zip(placeholders, inputs, strict=True))

        def value(node: Node) -> Any:
            if node in self.const:
                return getattr(self, buffer_name(node)) if isinstance(self.const[node], Tensor) else self.const[node]
            return values[node]

        for node in self.steps[:-1]:
            values[node] = evaluate(node, value)
        outputs: Any = self.steps[-1].args[0]
        return tuple(map_arg(outputs, value))


def stored_tensors(program: ExportedProgram) -> Iterator[tuple[Node, Any]]:
    """Yield the parameters, buffers and lifted constants."""
    signature = program.graph_signature
    targets = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    tensors = {**program.constants, **program.state_dict}
    for node in program.graph.nodes:
        if node.name in targets:
            yield node, tensors[targets[node.name]]
        elif node.op == "get_attr":
            yield node, getattr(program.graph_module, node.target)


def constants(program: ExportedProgram) -> dict[Node, Any]:
    """Return the nodes that do not depend on the image, with their values; not those without inputs, such as zeros."""
    values = dict(stored_tensors(program))
    for node in program.graph.nodes:
        if node.op == "call_function" and values.keys() >= set(node.all_input_nodes) and not node.is_impure():
            values[node] = evaluate(node, values.__getitem__)
    return {node: value for node, value in values.items() if node.op != "call_function" or node.all_input_nodes}


def has_aliased_writes(program: ExportedProgram) -> bool:
    """Return whether an in-place write changes a tensor that is read elsewhere: a weight, or one with a view."""
    written = (node.args[0] for node in program.graph.nodes if mutates(node))
    return any(
        isinstance(node, Node) and (node.op != "call_function" or len(node.users) > 1 or shares_memory(node))
        for node in written
    )


def evaluate(node: Node, value: Callable[[Node], Any]) -> Any:
    operator: Any = node.target
    return operator(*map_arg(node.args, value), **map_arg(node.kwargs, value))


def buffer_name(node: Node) -> str:
    """Return another name than the node's own, which the next trace gives to another node."""
    return f"known_{node.name}"


def mutates(node: Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def shares_memory(node: Node) -> bool:
    """Return whether it returns a view of its first argument."""
    schema: Any = getattr(node.target, "_schema", None)
    return schema is not None and any(argument.alias_info is not None for argument in schema.arguments[:1])
