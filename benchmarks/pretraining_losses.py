"""The losses of pre-training beside lightly's on the same random logits, and that of MAE beside its formula in float64.

    benchmarks/pretraining_losses.py [--report FILE]

Needs lightly (pip install lightly).
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import lightly
import numpy as np
import torch
from lightly.loss import DINOLoss, IBOTPatchLoss, KoLeoLoss
from machine import made_on
from torch import Tensor

from densevit.losses.pretraining import dino_loss, ibot_loss, koleo_loss, masked_patch_mse, normalise_patches, patchify
from densevit.utils.atomic_io import write_text

B, N, K, D, PATCH = 8, 64, 4096, 384, 16
TEMPERATURE = 0.05


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, ours, the reference."""
    torch.manual_seed(0)
    student, teacher = torch.randn(6, B, K), torch.randn(2, B, K)
    theirs = DINOLoss(output_dim=K, teacher_temp=TEMPERATURE, warmup_teacher_temp_epochs=0)
    reference = theirs(list(teacher), list(student), teacher_temp=TEMPERATURE)
    yield "DINO, 2 large and 4 small views", dino_loss(student, (teacher / TEMPERATURE).softmax(-1)), reference
    student, teacher = torch.randn(B, N, K), torch.randn(B, N, K)
    mask = torch.rand(B, N) < 0.3
    mask[0] = False
    square = mask.reshape(B, 8, 8)
    ibot = IBOTPatchLoss(output_dim=K, teacher_temp=TEMPERATURE)
    reference = ibot(teacher[mask], student[mask], square, teacher_temp=TEMPERATURE)
    yield "iBOT, an image without mask", ibot_loss(student, (teacher / TEMPERATURE).softmax(-1), mask), reference
    x = torch.randn(B, D)
    yield "KoLeo", koleo_loss(x), KoLeoLoss()(x)
    image, prediction = torch.rand(B, 3, 128, 128), torch.randn(B, N, 3 * PATCH**2)
    yield (
        "MAE",
        masked_patch_mse(prediction, normalise_patches(patchify(image, PATCH)), mask),
        mae(image, prediction, mask),
    )


def mae(image: Tensor, prediction: Tensor, mask: Tensor) -> Tensor:
    """He et al. 2022, patch by patch."""
    pixels, guess, total = image.double().numpy(), prediction.double().numpy(), 0.0
    for b, n in np.argwhere(mask.numpy()):
        row, column = divmod(int(n), 128 // PATCH)
        window = np.s_[row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]
        patch = np.stack([pixels[b, c][window] for c in range(3)], -1).reshape(-1)
        patch = (patch - patch.mean()) / np.sqrt(patch.var(ddof=1) + 1e-6)
        total += ((guess[b, n] - patch) ** 2).mean()
    return torch.tensor(total / int(mask.sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    rows = [
        f"| {name} | {float(ours):.6f} | {float(theirs):.6f} | {abs(float(ours) / float(theirs) - 1):.1e} |"
        for name, ours, theirs in pairs()
    ]
    text = f"""# Losses of pre-training beside references

{made_on()}, fp32, lightly {lightly.__version__}. Made by
`benchmarks/pretraining_losses.py --report benchmarks/2026-11-22-pretraining-losses.md`. {B} images, {N} patches,
{K} prototypes, random logits; MAE beside its formula in float64. Goal: within 1e-5.

| loss | ours | reference | relative difference |
|---|---|---|---|
{chr(10).join(rows)}
"""
    sys.stdout.write(text)
    if args.report:
        write_text(args.report, text)


if __name__ == "__main__":
    main()
