"""Graphs and breaks of each recipe's compiled blocks, on tensors without numbers; generates no code.

A program, for the type checks of tests cannot be compiled: prints them as JSON by recipe.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from dry_run import RECIPES, image_size, plan_of, without_numbers
from torch._dynamo.utils import counters

from densevit.builder.model import build_model
from densevit.builder.plan import Plan
from densevit.engine.monitors import compile_blocks


def patches() -> Iterator[Any]:
    yield from without_numbers()
    yield patch("torch.autocast", lambda *args, **kwargs: nullcontext())  # which tensors without numbers do not have
    yield patch.object(torch, "compile", partial(torch.compile, backend="eager"))


def compiled(plan: Plan) -> dict[str, int]:
    """What a forward and a backward pass of the model in training take."""
    torch._dynamo.reset()
    counters.clear()
    with ExitStack() as stack:
        for entry in patches():
            stack.enter_context(entry)
        with torch.device("meta"):
            model = build_model(plan.model).train()
        compile_blocks(model)
        out = model(torch.empty(2, 3, *image_size(plan.run), device="meta"))
        torch.autograd.backward([x.sum() for x in out.values() if x.requires_grad])
    breaks = sum(counters["graph_break"].values()) + len(counters["unimplemented"])
    return {"graphs": counters["stats"]["unique_graphs"], "graph_breaks": breaks}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({recipe: compiled(plan_of(recipe)) for recipe in RECIPES}))
