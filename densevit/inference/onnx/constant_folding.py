"""A traced network without the work that is the same for every image: positions on a grid, tables of offsets."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg


def traced(module: nn.Module, example: Tensor, **given: Any) -> ExportedProgram:
    """The network as a graph whose constants are computed; `given` as `torch.export.export` has it."""
    program = torch.export.export(module, (example,), **given)
    if overwritten(program):
        flat = torch.export.export(Folded(program, dict(inputs(program))), (example,), **given)
        program = flat.run_decompositions({})  # every write makes a tensor of its own now
    return torch.export.export(Folded(program, constants(program)), (example,), **given)


class Folded(nn.Module):
    """Runs a traced network node by node, with what is known stored.

    Modules keep the names of their parts in Python's code, where a head must not be called `class`; nodes do not.
    """

    def __init__(self, program: ExportedProgram, known: Mapping[Node, Any]) -> None:
        """
        Args:
            known: nodes that are not to be run, with their values.
        """
        super().__init__()
        self.nodes, self.known = list(program.graph.nodes), known
        self.steps = self.needed()
        for node in {node for step in self.steps for node in step.all_input_nodes}:
            if isinstance(value := self.known.get(node), Tensor):
                self.register_buffer(stored(node), value.detach().contiguous())

    def needed(self) -> list[Node]:
        """What leads from the image to the answers, in order; the answers themselves are last."""
        wanted = {self.nodes[-1], *filter(mutates, self.nodes)}
        for node in reversed(self.nodes):
            if node in wanted and node not in self.known:
                wanted.update(node.all_input_nodes)
        return [node for node in self.nodes if node in wanted and node not in self.known and node.op != "placeholder"]

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        values: dict[Node, Any] = {}

        def value(node: Node) -> Any:
            if node in self.known:
                return getattr(self, stored(node)) if isinstance(self.known[node], Tensor) else self.known[node]
            return values.get(node, image)  # the one placeholder that is not known is the image

        for node in self.steps[:-1]:
            values[node] = result(node, value)
        answers: Any = self.steps[-1].args[0]
        return tuple(map_arg(answers, value))


def inputs(program: ExportedProgram) -> Iterator[tuple[Node, Any]]:
    """Weights, and what else a network brings along."""
    signature = program.graph_signature
    places = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    tensors = {**program.constants, **program.state_dict}
    for node in program.graph.nodes:
        if node.name in places:
            yield node, tensors[places[node.name]]
        elif node.op == "get_attr":
            yield node, getattr(program.graph_module, node.target)


def constants(program: ExportedProgram) -> dict[Node, Any]:
    """All nodes that are the same for every image, with their values; but not zeros, say, which are made of nothing."""
    known = dict(inputs(program))
    for node in program.graph.nodes:
        if node.op == "call_function" and known.keys() >= set(node.all_input_nodes) and not node.is_impure():
            known[node] = result(node, known.__getitem__)
    return {node: value for node, value in known.items() if node.op != "call_function" or node.all_input_nodes}


def overwritten(program: ExportedProgram) -> bool:
    """Whether something is written to in place that others see: a weight, or a part of what is read elsewhere."""
    written = (node.args[0] for node in program.graph.nodes if mutates(node))
    return any(
        isinstance(node, Node) and (node.op != "call_function" or len(node.users) > 1 or shares_memory(node))
        for node in written
    )


def result(node: Node, value: Callable[[Node], Any]) -> Any:
    operator: Any = node.target
    return operator(*map_arg(node.args, value), **map_arg(node.kwargs, value))


def stored(node: Node) -> str:
    """Under what name; that of the node will be given again, to others."""
    return f"known_{node.name}"


def mutates(node: Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def shares_memory(node: Node) -> bool:
    """Whether it gives a view of what it is given first."""
    schema: Any = getattr(node.target, "_schema", None)
    return schema is not None and any(argument.alias_info is not None for argument in schema.arguments[:1])
