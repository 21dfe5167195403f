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
from checkpoint_cases import depth_anything, depth_anything_3, dinov2, dinov3, dpt, hugging_face, midas, smp, zoedepth
from checkpoint_cases.case import Case
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "weights"))
import seeded

# name of the file -> (case, the layer behind which the output stands, gain and offset of it, sizes of pictures)
OUT = "scratch.output_conv.4"
CORE = "core.core.scratch.output_conv.4"
META = "decode_head.conv_depth.head.4"
WIDE, TALL = (60, 90), (110, 70)
DA = "depth_head.scratch.output_conv2.2"
GOLDENS = {
    "depth_anything_v1": ("depth-anything-v1", "tiny", depth_anything.CASES, DA, 1.0, 1.0, (WIDE, TALL)),
    "depth_anything_v2": ("depth-anything-v2", "tiny", depth_anything.CASES, DA, 1.0, 1.0, (WIDE, TALL)),
    "depth_anything_v2_bn": ("depth-anything-v2", "tiny, use_bn", depth_anything.CASES, DA, 1.0, 1.0, (WIDE, TALL)),
    "depth_anything_v2_metric": ("depth-anything-v2-metric", "tiny", depth_anything.CASES, DA, 1.0, -1.0, (WIDE,)),
    "hugging_face": ("huggingface", "tiny to 20 m", hugging_face.CASES, "head.conv3", 1.0, -1.0, (WIDE, TALL)),
    "hugging_face_dpt": (
        "huggingface-dpt-metric", "tiny DINOv2, padded", hugging_face.CASES, "head.head.4", 1.0, 1.0, (WIDE, TALL)
    ),
    "hugging_face_padded": (
        "huggingface", "tiny, padded, to a block before the last", hugging_face.CASES, "head.conv3", 1.0, 1.0,
        (WIDE, TALL),
    ),
    "hugging_face_dpt_relative": (
        "huggingface-dpt", "tiny DINOv2, resized", hugging_face.CASES, "head.head.4", 1.0, 1.0, (WIDE,)
    ),
    "hugging_face_dpt_narrow": (
        "huggingface-dpt", "tiny DINOv2, fusion width 48", hugging_face.CASES, "head.head.4", 1.0, 1.0, (WIDE,)
    ),
    "hugging_face_classes": (
        "huggingface-dpt-segmentation", "tiny ViT, 4 classes", hugging_face.CASES, "head.head.4", 1.0, 0.0, (WIDE,)
    ),
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
    "dinov2_linear": ("dinov2-depth-nyu", "tiny linear", dinov2.CASES, "decode_head.conv_depth", 3.0, 0.0, (WIDE,)),
    "dinov2_linear4": ("dinov2-depth-kitti", "tiny linear4", dinov2.CASES, "decode_head.conv_depth", 3.0, 0.0, (TALL,)),
    "dinov2_dpt": ("dinov2-depth-nyu", "tiny DPT with registers", dinov2.CASES, META, 2.0, 3.0, (WIDE, TALL)),
    "dinov2_segmentation": (
        "dinov2-segmentation", "tiny linear, 150 classes", dinov2.CASES, "decode_head.conv_seg", 1.0, 0.0, (WIDE,)
    ),
    "dinov3_chmv2": (
        "dinov3-chmv2", "small blocks as ViT-L's", dinov3.CASES, "conv_depth.head.4", 3.0, 0.0, (WIDE, TALL)
    ),
    "dinov3_synthmix": (
        "dinov3-depth-synthmix", "DPT, small blocks as ViT-7B's", dinov3.CASES, "conv_depth.head.4", 3.0, 0.0,
        ((50, 50),),
    ),
    "dinov3_linear": ("dinov3-depth-linear", "last block", dinov3.CASES, "conv_depth", 3.0, 0.0, (TALL,)),
    "depth_anything_3": (
        "depth-anything-3-metric", "tiny", depth_anything_3.CASES, "head.scratch.output_conv2.2", 1.0, 1.0, (WIDE, TALL)
    ),
}  # fmt: skip


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
    parser.add_argument(
        "--repositories", type=Path, required=True, help="folder with clones of the original repositories"
    )
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
