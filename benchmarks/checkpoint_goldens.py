"""Runs small originals once and keeps what they say, for tests that have no foreign code.

Their weights are made from the names and shapes of their tensors (`tests/weights/seeded.py`), so a file of some
kilobytes is all that a test needs: names, shapes, and the original's map of a picture, thinned out.

    python benchmarks/checkpoint_goldens.py --repositories DIR [--only WORD]

DIR as for `checkpoint_parity.py`.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from checkpoint_cases import dpt, midas, smp, zoedepth
from checkpoint_cases.case import Case
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "weights"))
import seeded

# name of the file -> (case, the layer behind which the output stands, gain and offset of it, sizes of pictures)
OUT = "scratch.output_conv.4"
CORE = "core.core.scratch.output_conv.4"
WIDE, TALL = (60, 90), (110, 70)
GOLDENS = {
    "dpt_vit": ("dpt", "small ViT", dpt.CASES, OUT, 1.0, 1.0, (WIDE, TALL)),
    "dpt_hybrid_nyu": ("dpt-nyu", "small hybrid", dpt.CASES, OUT, 50.0, 600.0, (WIDE,)),
    "dpt_hybrid_ade20k": ("dpt-ade20k", "small hybrid", dpt.CASES, OUT, 1.0, 0.0, (TALL,)),
    "midas_beit": ("midas", "small BEiT", midas.CASES, OUT, 1.0, 1.0, (WIDE, TALL)),
    "midas_swin2": ("midas", "Swin2-T, 256", midas.CASES, OUT, 1.0, 1.0, (WIDE,)),
    "zoedepth_n": ("zoedepth-n", "small", zoedepth.CASES, CORE, 1.0, 1.0, (TALL,)),
    "zoedepth_n_plain": ("zoedepth-n", "small, no margin, no flip", zoedepth.CASES, CORE, 1.0, 1.0, (WIDE,)),
    "zoedepth_k": ("zoedepth-k", "small, no margin, no flip", zoedepth.CASES, CORE, 1.0, 1.0, (WIDE,)),
    "zoedepth_nk": ("zoedepth-nk", "small, no margin, no flip", zoedepth.CASES, CORE, 1.0, 1.0, (WIDE,)),
    "smp_cat": ("smp-dpt", "cat, file", smp.CASES, "segmentation_head.head.4", 1.0, 0.0, (WIDE, TALL)),
    "smp_add": ("smp-dpt", "add, registers", smp.CASES, "segmentation_head.head.4", 1.0, 0.0, (WIDE,)),
}


def make(
    case: Case, repositories: Path, last: str, gain: float, offset: float, sizes: tuple[tuple[int, int], ...]
) -> seeded.Golden:
    with tempfile.TemporaryDirectory() as work:
        torch.manual_seed(0)
        original = case.make(repositories / case.repository, Path(work))
        model = original.model
        assert model is not None
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        state = seeded.seeded(shapes, last, gain, offset)
        buffers = {name: tensor for name, tensor in model.state_dict().items() if name.endswith(seeded.BUFFERS)}
        model.load_state_dict(state | buffers)
        maps = {}
        for size in sizes:
            path = Path(work) / "picture.png"
            Image.fromarray(seeded.picture(size)).save(path)
            maps[size] = seeded.thinned(np.asarray(original.predict(path)))
    return seeded.Golden(shapes, last, gain, offset, maps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repositories", type=Path, required=True, help="folder with clones of the original repositories")
    parser.add_argument("--only", default="", metavar="WORD", help="files with this in their name")
    args = parser.parse_args()
    for name, (family, variant, cases, last, gain, offset, sizes) in GOLDENS.items():
        if args.only in name:
            case = next(case for case in cases if (case.family, case.name) == (family, variant))
            golden = make(case, args.repositories, last, gain, offset, sizes)
            seeded.write(name, golden)
            spans = ", ".join(f"{h}x{w}: {m.min():.3g} to {m.max():.3g}" for (h, w), m in golden.maps.items())
            print(f"{name}: {len(golden.shapes)} tensors; {spans}", flush=True)


if __name__ == "__main__":
    main()
