"""Depth from a Vision Transformer, all of it on one page: learn one photograph by heart in a few seconds.

    python examples/simple_depth.py [l1 | mse | silog]

Drop the class token, lay the tokens out as a map, double it twice, read a number per cell, stretch it to the image.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from densevit.data.datasets.motorcycle import Motorcycle
from densevit.data.loading.collate import collate
from densevit.data.transforms.geometric import Resize
from densevit.losses.depth import l1, mse, silog
from densevit.models.vit.vision_transformer import VisionTransformer

LOSSES, SIZE, PATCH, DIM = {"l1": l1, "mse": mse, "silog": silog}, (128, 192), 16, 192


class SimpleDepth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vit = VisionTransformer(DIM, 4, 3, PATCH, grid=(SIZE[0] // PATCH, SIZE[1] // PATCH))
        twice = [nn.ConvTranspose2d(DIM // 2**i, DIM // 2 ** (i + 1), 2, stride=2) for i in range(2)]
        self.grow = nn.Sequential(twice[0], nn.GELU(), twice[1], nn.GELU())
        self.read = nn.Conv2d(DIM // 4, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = self.vit(image)[:, 1:]  # b cells D: the class token, in front, is dropped
        x = tokens.transpose(1, 2).unflatten(2, (image.shape[-2] // PATCH, -1))  # b D h/16 w/16
        x = self.read(self.grow(x))  # b 1 h/4 w/4
        return F.softplus(F.interpolate(x, size=image.shape[-2:], mode="bilinear"))  # b 1 h w, positive


def main(loss: str = "silog", steps: int = 100) -> float:
    torch.manual_seed(0)
    photograph = Resize(size=SIZE)(Motorcycle().read(0), np.random.default_rng(0))
    batch = collate([photograph], [0]).to(torch.device("cpu"))
    model, criterion = SimpleDepth(), LOSSES[loss]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(steps):
        depth = model(batch.image * 2 - 1)
        optimizer.zero_grad()
        value = criterion(depth, batch.depth, batch.valid)
        value.backward()
        optimizer.step()
        error = ((depth - batch.depth).abs() / batch.depth)[batch.valid].mean().item()
        if step % 20 == 19:
            print(f"step {step:3}  {loss} {value.item():.4f}  AbsRel {error:.4f}")
    return error


if __name__ == "__main__":
    main(*sys.argv[1:2])
