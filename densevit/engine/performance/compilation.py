"""`compile: true`: torch.compile by transformer block."""

from torch import nn

from densevit.engine.fsdp import transformer_blocks

MOST_GRAPHS = 64  # of one function: each rate of stochastic depth, one a block, has its own


def compile_blocks(model: nn.Module) -> None:
    """Compile each repeated block in place, or a whole model that has none; before DDP or FSDP wrap it.

    FSDP's hooks then lie between the graphs, and the gradients of one block are averaged while those of the next are
    computed. Blocks that are alike share one graph.
    """
    for block in list(transformer_blocks(model)) or [model]:
        block.compile(dynamic=False, recompile_limit=MOST_GRAPHS)  # padding: torch 2.10 fails on symbolic sizes
