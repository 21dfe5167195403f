"""Attention by slabs beside torch's fused kernel, in bfloat16 on one core; they take turns.

python benchmarks/slab_attention.py [--tokens 1370] [--heads 6] [--repeats 9]
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from densevit.models.vit.block import slab_attention
from densevit.speed.timing import Spread, Work, speedup, time_interleaved
from densevit.utils.process import tune_malloc

KERNELS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "torch": F.scaled_dot_product_attention,
    "slabs": slab_attention,
}


def works(tokens: int, heads: int) -> dict[str, dict[str, Work]]:
    """For each way of running, what each kernel does."""
    qkv = torch.randn(1, tokens, 3, heads, 64).bfloat16().requires_grad_()

    def forward(name: str) -> Tensor:
        return KERNELS[name](*qkv.permute(2, 0, 3, 1, 4).unbind(0))

    def both(name: str) -> object:
        return torch.autograd.grad(forward(name).float().square().sum(), qkv)

    return {
        "forward": {name: partial(forward, name) for name in KERNELS},
        "forward and backward": {name: partial(both, name) for name in KERNELS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1370, help="of a 518 x 518 image in patches of 14 (1370)")
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tune_malloc()  # as our commands do
    for way, contestants in works(args.tokens, args.heads).items():
        seconds = time_interleaved(contestants, args.repeats, warmup=2).wall
        faster = speedup(seconds, "slabs", "torch")
        times = ", ".join(f"{name} {Spread.of(values).middle * 1e3:.1f} ms" for name, values in seconds.items())
        print(f"{way}: {times}; slabs {faster.middle:.2f} times faster ({faster.low:.2f} to {faster.high:.2f})")


if __name__ == "__main__":
    main()
