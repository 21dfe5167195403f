"""Runs the original programs' own metric code beside densevit's protocols and prints how far they are apart.

    benchmarks/protocol_parity.py CLONES [--samples FOLDER] [--output REPORT.md]

CLONES holds clones named bts, AdaBins, ZoeDepth, Depth-Anything-V2, Monocular-Depth-Estimation-Toolbox, dinov3,
UniDepth, Metric3D, Marigold, monodepth2, MoGe, utils3d, ml-depth-pro, and kitti-devkit, the benchmark's kit with its
`cpp/` (compiled by g++ in double, without its reading of files); what is missing is told and left out. Functions
are cut out of their files by name and run as they stand, in float64, so that none of their requirements is needed.
Where a program has its steps inline in a loop over files, the steps are repeated here.

SAMPLES holds `kitti/depth/*.png` and `nyu_v2/depth/*.png`, real truth; the predictions are made up. Other frames are
random.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from densevit.data.io.readers import read_depth
from densevit.evaluation.depth.geometry_metrics import boundary_depth_pro, boundary_moge, point_metrics
from densevit.evaluation.depth.published_protocols import PROTOCOLS

LIMIT = 1e-6
ALIASES = {
    "a1": "d1", "a2": "d2", "a3": "d3", "log_10": "log10", "arel": "abs_rel", "sqrel": "sq_rel", "rmselog": "rmse_log",
    "tau": "within_3", "medianlog": "median_log", "silog_rmse": "silog", "i_rmse": "irmse", "delta1": "d1",
    "abs_relative_difference": "abs_rel", "squared_relative_difference": "sq_rel", "rmse_linear": "rmse",
    "delta1_acc": "d1", "delta2_acc": "d2", "delta3_acc": "d3", "rel": "abs_rel",
}  # fmt: skip

NEGATIVE = "on purpose: {:,} aligned depths are under 0, which the original counts as right"

Scores = dict[str, float]


@dataclass(frozen=True)
class Case:
    """One frame: prediction, truth (0 where unknown), and the same prediction as disparity known up to an affinity."""

    name: str
    data: str
    prediction: np.ndarray
    truth: np.ndarray

    @property
    def kitti(self) -> bool:
        return self.data == "kitti"

    @property
    def far(self) -> float:
        return 80.0 if self.kitti else 10.0

    @property
    def disparity(self) -> np.ndarray:
        return (3 / self.prediction + 0.2).astype(np.float32)

    @property
    def unitless(self) -> np.ndarray:
        return (0.3 * self.prediction + 0.4).astype(np.float32)

    def seen(self, values: np.ndarray) -> np.ndarray:
        """The window of KITTI's benchmark, which programs hand to their networks; of NYU the whole frame."""
        return window(values) if self.kitti else values

    def options(self, **more: Any) -> types.SimpleNamespace:
        """The options of the programs that grew out of bts, under their common names."""
        names = {"dataset": self.data, "garg_crop": self.kitti, "eigen_crop": not self.kitti}
        return types.SimpleNamespace(**names, **more)


def cases(samples: Path | None) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    for data, size, far in (("nyu", (480, 640), 11.0), ("kitti", (375, 1242), 90.0), ("kitti", (370, 1226), 90.0)):
        truth = rng.uniform(0.3, far, size).astype(np.float32)
        truth.flat[:4] = 1e-3, 5e-4, 10.0, 80.0  # the ends of ranges
        truth[rng.random(size) < (0.1 if data == "nyu" else 0.8)] = 0
        yield Case(f"random {size[0]}x{size[1]}", data, predicted(truth, rng), truth)
    if samples is not None:
        for path in sorted(samples.glob("kitti/depth/*.png")):
            truth = read_depth(path, 256)
            yield Case(f"kitti {path.stem}", "kitti", predicted(truth, rng), truth)
        for path in sorted(samples.glob("nyu_v2/depth/*.png")):
            truth = read_depth(path, 1000)
            yield Case(f"nyu {path.stem}", "nyu", predicted(truth, rng), truth)


def predicted(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A smooth, wrong guess: positive everywhere, some of it beyond every range."""
    known = np.where(truth > 0, truth, truth[truth > 0].mean()).astype(np.float32)
    smooth = cv2.GaussianBlur(known, (0, 0), 3)
    bent = smooth * np.exp(rng.normal(0.05, 0.2, truth.shape))
    bent[:20, :20], bent[-20:, -20:] = 1e-4, 200.0
    return bent.astype(np.float32)


# --- cutting functions out of files ---


def cut(path: Path, *names: str, **given: Any) -> dict[str, Any]:
    """Functions, classes and constants of a file by name (`Class.method` for a method), in one name space."""
    tree = ast.parse(path.read_text())
    wanted: list[ast.stmt] = []
    for name in names:
        body, _, rest = name.partition(".")
        node = next(n for n in tree.body if body in named(n))
        if rest:
            node = next(n for n in node.body if rest in named(n))  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef):
            node.decorator_list, node.returns = [], None
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                argument.annotation = None
        wanted.append(node)
    space: dict[str, Any] = {"np": np, "torch": torch, "F": torch.nn.functional, "nn": torch.nn, "cv2": cv2} | given
    exec(compile(ast.Module(wanted, []), str(path), "exec"), space)
    return space


def named(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return (
        [target.id for target in node.targets if isinstance(target, ast.Name)] if isinstance(node, ast.Assign) else []
    )


def renamed(found: dict[str, Any]) -> Scores:
    return {ALIASES.get(name, name): float(value) for name, value in found.items()}


def t(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float64))


def window(values: np.ndarray) -> np.ndarray:
    h, w = values.shape
    top, left = h - 352, int((w - 1216) / 2)
    return values[top : top + 352, left : left + 1216]


def silent(*_: object) -> None:
    """Stands for `print`."""


def halved(values: np.ndarray) -> np.ndarray:
    """At half the size, as networks give maps."""
    return cv2.resize(values, (values.shape[1] // 2, values.shape[0] // 2))


def in_order(names: Sequence[str], row: Iterable[Any]) -> Scores:
    return dict(zip(names, map(float, row), strict=True))


def garg(h: int, w: int) -> np.ndarray:
    mask = np.zeros((h, w), bool)
    mask[int(0.40810811 * h) : int(0.99189189 * h), int(0.03594771 * w) : int(0.96405229 * w)] = True
    return mask


# --- one runner per program: yields (protocol, original scores, prediction handed to ours) ---

Found = Iterator[tuple[str, Scores, np.ndarray]]


def bts(clones: Path, case: Case) -> Found:
    args = case.options(min_depth_eval=1e-3, max_depth_eval=case.far, do_kb_crop=case.kitti)
    order = ("silog", "log10", "abs_rel", "sq_rel", "rmse", "rmse_log", "d1", "d2", "d3")
    units = 256 if case.kitti else 1000
    eigen, png = ("kitti_eigen_garg", "kitti_bts_png") if case.kitti else ("nyu_eigen", "nyu_bts_png")
    for name, prediction in ((eigen, case.prediction), (png, np.floor(case.prediction * units) / units)):
        handed = case.seen(prediction)
        given = {"args": args, "missing_ids": set(), "gt_depths": [case.truth.astype(np.float64)], "print": silent}
        space = cut(clones / "bts/utils/eval_with_pngs.py", "compute_errors", "eval", **given)
        row = space["eval"]([handed.astype(np.float64)])
        yield name, in_order(order, (values[0] for values in row)), handed if name == eigen else case.prediction
    if case.kitti:
        errors = cut(clones / "bts/pytorch/bts_main.py", "compute_errors")["compute_errors"]
        gt, p = window(case.truth).astype(np.float64), window(case.prediction).clip(1e-3, 80).astype(np.float64)
        mask = (gt > 1e-3) & (gt < 80) & garg(*gt.shape)
        order = ("silog", "abs_rel", "log10", "rmse", "sq_rel", "rmse_log", "d1", "d2", "d3")
        yield "kitti_eigen_garg_kb", in_order(order, errors(gt[mask], p[mask])), window(case.prediction)


def adabins(clones: Path, case: Case) -> Found:
    """The whole of its `eval`, around a model that returns half-size maps, of the image and of its mirror image."""
    small = halved(case.seen(case.prediction)).astype(np.float64)
    rows: list[dict[str, float]] = []
    recorder = type("Recorder", (), {"update": lambda self, row: rows.append(row), "get_value": lambda self: {}})
    given = {"RunningAverageDict": recorder, "tqdm": lambda x: x, "device": torch.device("cpu"), "os": None}
    names = ("compute_errors", "predict_tta", "eval")
    space = cut(clones / "AdaBins/evaluate.py", *names, print=silent, **given)
    space["torch"] = types.SimpleNamespace(
        Tensor=lambda x: torch.as_tensor(np.ascontiguousarray(x)),
        device=torch.device,
        no_grad=torch.no_grad,
        cuda=torch.cuda,
    )

    class Model:
        calls = 0

        def eval(self) -> None: ...

        def __call__(self, image: torch.Tensor) -> list[torch.Tensor]:
            self.calls += 1
            shown = small if self.calls == 1 else small[:, ::-1]
            return [t(shown)[None, None]]

    truth = case.seen(case.truth)
    args = case.options(min_depth=1e-3, max_depth=case.far, save_dir=None)
    batch = {"image": torch.zeros(1, 3, *truth.shape), "depth": t(truth)[None, None]}
    space["eval"](Model(), [batch], args, gpus=[torch.device("cpu")])
    yield f"{case.data}_adabins", renamed(rows[0]), small.astype(np.float32)


def zoedepth(clones: Path, case: Case) -> Found:
    score = cut(clones / "ZoeDepth/zoedepth/utils/misc.py", "compute_errors", "compute_metrics")["compute_metrics"]
    small, options = halved(case.seen(case.prediction)), case.options(min_depth_eval=1e-3, max_depth_eval=case.far)
    row = score(t(case.seen(case.truth))[None, None], t(small)[None, None], **vars(options))
    yield f"{case.data}_zoedepth", renamed(row), small


def toolbox(clones: Path, case: Case) -> Found:
    """`metrics` and the data sets' own `eval_mask` and crop; the clamp before resizing is the depther's, inline."""
    root = clones / "Monocular-Depth-Estimation-Toolbox/depth"
    space = cut(root / "core/evaluation/metrics.py", "calculate", "metrics")
    methods = [f"{case.data.upper()}Dataset.eval_mask", *(["KITTIDataset.eval_kb_crop"] * case.kitti)]
    owner = cut(root / f"datasets/{case.data}.py", *methods)
    me, truth = case.options(min_depth=1e-3, max_depth=case.far), case.truth.astype(np.float64)
    truth = owner["eval_kb_crop"](me, truth)[0] if case.kitti else truth
    mask = owner["eval_mask"](me, truth)[0]
    small = halved(case.seen(case.prediction))
    order = ("d1", "d2", "d3", "abs_rel", "rmse", "log10", "rmse_log", "silog", "sq_rel")
    for who, corners in (("mdet", True), ("dinov2", False)):
        clamped = t(small)[None, None].clamp(1e-3, case.far)
        p = torch.nn.functional.interpolate(clamped, truth.shape, mode="bilinear", align_corners=corners)[0, 0].numpy()
        yield f"{case.data}_{who}", in_order(order, space["metrics"](truth[mask], p[mask], 1e-3, case.far)), small


def depth_anything(clones: Path, case: Case) -> Found:
    score = cut(clones / "Depth-Anything-V2/metric_depth/util/metric.py", "eval_depth")["eval_depth"]
    small, how = halved(case.prediction), {"mode": "bilinear", "align_corners": True}
    p = torch.nn.functional.interpolate(t(small)[None, None], case.truth.shape, **how)[0, 0]
    for name, far in (("dav2_indoor", 20.0), ("dav2_outdoor", 80.0)):
        gt = t(case.truth)
        mask = (gt > 0) & (gt >= 1e-3) & (gt <= far)
        yield name, renamed(score(p[mask], gt[mask])), small


def dinov3(clones: Path, case: Case) -> Found:
    if case.kitti:
        return
    root = clones / "dinov3/dinov3/eval/depth"
    from enum import Enum

    mask_of = cut(root / "datasets/datasets_utils.py", "_EvalCropType", "make_valid_mask", Enum=Enum)
    align = cut(root / "utils.py", "align_depth_least_square", logger=None)["align_depth_least_square"]
    names = ("a1", "a2", "a3", "abs_rel", "rmse", "log_10", "rmse_log", "silog", "sq_rel", "mae")
    fields = [types.SimpleNamespace(name=name) for name in names]
    given = {"DEPTH_METRICS": fields, "_DepthMetric": None, "_DepthMetricValues": lambda **row: row}
    score = cut(root / "metrics.py", "calculate_depth_metrics", **given)["calculate_depth_metrics"]
    gt = t(case.truth)[None, None]
    gt = torch.where((gt >= 10) | (gt <= 1e-3), 0.0, gt)
    mask = mask_of["make_valid_mask"](gt, mask_of["_EvalCropType"]("NYU_EIGEN"))
    for name, source in (("nyu_dinov3", case.prediction), ("nyu_dinov3_lstsq", case.unitless)):
        small = cv2.resize(source, (320, 240))
        p = torch.nn.functional.interpolate(t(small)[None, None], (480, 640), mode="bilinear", align_corners=False)
        if "lstsq" in name:
            p = torch.from_numpy(lstsq_in_double(align, gt[0], p[0], mask[0]))[None]
        yield name, renamed(score(gt, p.clamp(1e-3, 10), mask)), small


def lstsq_in_double(align: Callable[..., Any], gt: torch.Tensor, p: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    """dinov3 casts predictions to float32 before the fit; handed arrays it does not."""
    scale, shift = np.linalg.lstsq(
        np.stack([p[mask].numpy(), np.ones(int(mask.sum()))], 1), gt[mask].numpy(), rcond=None
    )[0]
    single = align(gt, p, mask)[0].numpy()
    ours = p.numpy() * scale + shift
    assert np.abs(single - ours).max() < 1e-4 * np.abs(ours).max()
    return ours


def unidepth(clones: Path, case: Case) -> Found:
    root = clones / "UniDepth/unidepth"
    names = ("delta", "tau", "ssi", "si", "arel", "d_auc", "DICT_METRICS", "eval_depth")
    space = cut(root / "utils/evaluation_depth.py", *names, partial=partial, defaultdict=defaultdict)
    module, kind = ("kitti", "KITTI") if case.kitti else ("nyuv2", "NYUv2Depth")
    owner = cut(root / f"datasets/{module}.py", f"{kind}.eval_mask")
    small, far = halved(case.seen(case.prediction)), case.far
    gt = t(case.seen(case.truth))[None, None]
    mask = owner["eval_mask"](types.SimpleNamespace(crop="garg"), (gt > 0) & (gt < far), {}).bool()
    row = space["eval_depth"](gt, t(small)[None, None], mask, max_depth=far)
    kept = {name: float(value[0]) for name, value in row.items()}
    names = ("d1", "d2", "d3", "rmse", "rmselog", "arel", "sqrel", "log10", "silog", "medianlog", "d_auc", "tau")
    yield f"{case.data}_unidepth", renamed({name: kept[name] for name in names}), small
    for how, suffix in (("ssi", "lstsq"), ("si", "median_lower")):
        yield f"{case.data}_unidepth+{suffix}", renamed({n: kept[f"{n}_{how}"] for n in ("d1", "arel", "tau")}), small


def metric3d(clones: Path, case: Case) -> Found:
    names = ("absrel", "sqrel", "log10", "rmse", "rmse_log", "silog")
    space = cut(clones / "Metric3D/mono/utils/avg_meter.py", *(f"get_{name}_err" for name in names))
    p, gt = t(case.prediction)[None, None], t(case.truth)[None, None]
    row = {name: float(space[f"get_{name}_err"](p, gt, gt > 1e-8)[0]) for name in names}
    row["abs_rel"], row["sq_rel"] = row.pop("absrel"), row.pop("sqrel")
    yield "metric3d", row, case.prediction


def marigold(clones: Path, case: Case) -> Found:
    root = clones / "Marigold/src/util"
    space = cut(root / "alignment.py", "align_depth_least_square", "depth2disparity", "disparity2depth")
    names = ("abs_relative_difference", "squared_relative_difference", "rmse_linear", "rmse_log", "log10", "i_rmse")
    names += ("delta1_acc", "delta2_acc", "delta3_acc", "silog_rmse")
    metrics = cut(root / "metric.py", "threshold_percentage", *names)
    low, high = 1e-5 if case.kitti else 1e-3, case.far
    gt = case.seen(case.truth).astype(np.float64)
    h, w = gt.shape
    mask = np.zeros((h, w), bool)
    if case.kitti:
        mask[int(0.3324324 * h) : int(0.91351351 * h), int(0.0359477 * w) : int(0.96405229 * w)] = True
    else:
        mask[45:471, 41:601] = True
    mask &= (gt > low) & (gt < high)
    for suffix, source in (("", case.unitless), ("_disparity", case.disparity)):
        p = case.seen(source).astype(np.float64)
        if suffix:
            truth, known = space["depth2disparity"](gt, return_mask=True)
            aligned = space["align_depth_least_square"](truth, p, mask & known & (p > 0))[0]
            depth = space["disparity2depth"](np.clip(aligned, 1e-3, None))
        else:
            depth = space["align_depth_least_square"](gt, p, mask)[0]
        depth = torch.from_numpy(np.clip(np.clip(depth, low, high), 1e-6, None))
        row = {name: float(metrics[name](depth.clone(), t(gt), torch.from_numpy(mask))) for name in names}
        row["i_rmse"] *= 1000  # ours is per kilometre
        yield f"{case.data}_marigold{suffix}", renamed(row), case.seen(source)


def eth3d(clones: Path, case: Case) -> Found:
    """Marigold's `alignment_max_res`, on a frame enlarged to need it."""
    align = cut(clones / "Marigold/src/util/alignment.py", "align_depth_least_square")["align_depth_least_square"]
    size = (1100, 1700)
    gt = cv2.resize(case.truth, size[::-1], interpolation=cv2.INTER_NEAREST).astype(np.float64)
    p = cv2.resize(case.unitless, size[::-1])
    mask = gt > 1e-5
    aligned = align(gt, p.astype(np.float64), mask, max_resolution=1024)[0].clip(1e-5, None)[mask]
    row = {
        "abs_rel": float((np.abs(aligned - gt[mask]) / gt[mask]).mean()),
        "rmse": float(np.sqrt(((aligned - gt[mask]) ** 2).mean())),
    }
    yield "eth3d_marigold", row, p


def monodepth2(clones: Path, case: Case) -> Found:
    """The whole of its `evaluate`, on disparity and truth from files."""
    if not case.kitti:
        return
    rows: list[Any] = []
    errors = cut(clones / "monodepth2/evaluate_depth.py", "compute_errors")["compute_errors"]
    small = cv2.resize(1 / case.prediction, (640, 192))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "eigen").mkdir()
        np.save(Path(folder) / "disps.npy", small[None])
        np.savez(Path(folder) / "eigen/gt_depths.npz", data=case.truth[None].astype(np.float64))
        off = ("eval_stereo", "eval_eigen_to_benchmark", "save_pred_disps", "no_eval", "disable_median_scaling")
        on = {"eval_mono": True, "ext_disp_to_eval": f"{folder}/disps.npy", "eval_split": "eigen"}
        options = types.SimpleNamespace(**on, **dict.fromkeys(off, False), pred_depth_scale_factor=1)
        given = {"os": os, "splits_dir": folder, "print": silent}
        given["compute_errors"] = lambda *maps: rows.append(errors(*maps)) or rows[-1]
        evaluate = cut(clones / "monodepth2/evaluate_depth.py", "evaluate", **given)
        evaluate["evaluate"](options)
    order = ("abs_rel", "sq_rel", "rmse", "rmse_log", "d1", "d2", "d3")
    yield "kitti_monodepth2", in_order(order, rows[0]), small


def moge(clones: Path, case: Case) -> Found:
    sys.path.insert(0, str(clones / "utils3d"))
    import math

    import utils3d  # type: ignore[import-not-found]

    names = ("scatter_min", "_pad_inf", "_pad_cumsum", "_compute_residual", "align")
    names += ("align_depth_scale", "align_depth_affine", "align_affine_lstsq")
    space = cut(clones / "MoGe/moge/utils/alignment.py", *names, math=math, utils3d=utils3d)
    score = cut(clones / "MoGe/moge/test/metrics.py", "rel_depth", "delta1_depth")
    mask = torch.from_numpy(case.truth > 0)
    gt = t(case.truth)
    small, index = utils3d.pt.masked_nearest_resize(mask=mask, size=(64, 64), return_index=True)

    def rows(p: torch.Tensor) -> Scores:
        return {"abs_rel": score["rel_depth"](p[mask], gt[mask]), "d1": score["delta1_depth"](p[mask], gt[mask])}

    p = t(case.prediction)
    yield "moge_metric", rows(p), case.prediction
    at, to = p[index][small], gt[index][small]
    yield "moge_scale", rows(p * space["align_depth_scale"](at, to, 1 / to)), case.prediction
    # Its search forgets the error of pixels predicted exactly as the one that it tries lines through, so that it misses
    # the best line where predictions are tied; a jitter in float64 leaves no ties.
    untied = case.unitless * np.exp(np.random.default_rng(2).normal(0, 1e-4, case.truth.shape))
    p = t(untied)
    at = p[index][small]
    scale, shift = space["align_depth_affine"](at, to, 1 / to)
    yield "moge_affine", rows(p * scale + shift), untied
    p = t(case.disparity)
    scale, shift = space["align_affine_lstsq"](p[mask], 1 / gt[mask])
    yield "moge_disparity", rows(1 / (p * scale + shift).clamp_min(1 / gt[mask].max().item())), case.disparity


KIT = """
#include <cstdio>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <fstream>
#include <string>
#include <vector>
#include <dirent.h>
namespace png {
struct rgb_pixel { int red, green, blue; rgb_pixel(int r = 0, int g = 0, int b = 0) : red(r), green(g), blue(b) {} };
typedef uint16_t gray_pixel_16;
enum { color_type_gray, color_type_rgb };
template <class P> struct image {
  image(std::string) {} image(int, int) {}
  int get_width() { return 0; } int get_height() { return 0; }
  P get_pixel(int, int) { return P(); } void set_pixel(int, int, P) {} void write(std::string) {}
};
}
inline double upper(double a, double b) { return a > b ? a : b; }
inline double lower(double a, double b) { return a < b ? a : b; }
namespace std { using ::upper; using ::lower; }
#define max upper
#define min lower
#define float double
#define main kit_main
#define imageFormat(...) true
#define UTILS_H
#define statMean(a, b) 0
#define statMin(a, b) 0.0
#define statMax(a, b) 0.0
#include "evaluate_depth.cpp"
#undef main
int main(int, char **argv) {
  int32_t size[2];
  FILE *file = fopen(argv[1], "rb");
  if (fread(size, 4, 2, file) != 2) return 1;
  std::vector<double> truth(size[0] * size[1]), found(size[0] * size[1]);
  for (auto *map : {&truth, &found})
    if (fread(map->data(), 8, map->size(), file) != map->size()) return 1;
  DepthImage gt(truth.data(), size[1], size[0]), map(found.data(), size[1], size[0]);
  map.interpolateBackground();
  for (double value : depthError(gt, map)) printf("%.17g ", value);
}
"""


@cache
def compiled(kit: Path) -> Path:
    """The kit's two functions as a program: file of h, w, truth and prediction -> its nine numbers."""
    folder = Path(tempfile.mkdtemp(prefix="kitti-devkit-"))
    (folder / "png++").mkdir()
    (folder / "png++/png.hpp").touch()
    (folder / "utils.h").touch()
    (folder / "kit.cpp").write_text(KIT)
    # Of the kit's own folder only these two: its utils.h reads files.
    for name in ("io_depth.h", "evaluate_depth.cpp", "log_colormap.h"):
        (folder / name).write_bytes((kit / "cpp" / name).read_bytes())
    subprocess.run(["g++", "-O1", "-w", f"-I{folder}", "-o", folder / "kit", folder / "kit.cpp"], check=True)
    return folder / "kit"


def kitti_devkit(clones: Path, case: Case) -> Found:
    """With whole predictions, and with holes: in rows, at their ends, and whole rows at top and bottom."""
    if not case.kitti:
        return
    whole = window(case.prediction).copy()
    holes = whole.copy()
    holes[np.random.default_rng(2).random(whole.shape) < 0.3] = 0
    holes[:9], holes[-5:], holes[:, :7], holes[:, 500:540], holes[50:, -11:] = 0, 0, 0, 0, 0
    names = ("mae", "rmse", "", "irmse", "", "rmse_log", "silog", "abs_error_rel", "sq_error_rel")
    units = {"irmse": 1000, "silog": 100, "abs_error_rel": 100, "sq_error_rel": 100}
    for prediction in (whole, holes):
        truth = window(case.truth)
        maps = [np.where(values > 0, values, -1.0).astype(np.float64) for values in (truth, prediction)]
        with tempfile.NamedTemporaryFile() as file:
            file.write(np.array(truth.shape, np.int32).tobytes() + b"".join(values.tobytes() for values in maps))
            file.flush()
            told = subprocess.run(
                [compiled(clones / "kitti-devkit"), file.name], capture_output=True, text=True, check=True
            ).stdout
        numbers = dict(zip(names, map(float, told.split()), strict=True))
        wanted = {name: value * units.get(name, 1) for name, value in numbers.items() if name not in ("", "mae")}
        yield "kitti_benchmark", wanted, prediction


RUNNERS: dict[str, Callable[[Path, Case], Found]] = {
    "bts": bts,
    "AdaBins": adabins,
    "ZoeDepth": zoedepth,
    "Monocular-Depth-Estimation-Toolbox": toolbox,
    "Depth-Anything-V2": depth_anything,
    "dinov3": dinov3,
    "UniDepth": unidepth,
    "Metric3D": metric3d,
    "Marigold": marigold,
    "Marigold ": eth3d,
    "monodepth2": monodepth2,
    "MoGe": moge,
    "kitti-devkit": kitti_devkit,
}


def ours(name: str, prediction: np.ndarray, case: Case) -> Scores:
    base, _, align = name.partition("+")
    protocol = PROTOCOLS[base].aligned(align) if align else PROTOCOLS[base]
    truth = case.truth
    if prediction.shape == (1100, 1700):
        truth = cv2.resize(truth, (1700, 1100), interpolation=cv2.INTER_NEAREST)
    return protocol.score(prediction, truth, truth > 0)


def boundaries(clones: Path) -> Iterator[tuple[str, str, float, float]]:
    """The boundary metrics and the point clouds' area, on dense made-up maps."""
    rng = np.random.default_rng(1)
    truth = cv2.GaussianBlur(rng.uniform(1, 9, (96, 128)), (0, 0), 2) ** 3
    p = truth * np.exp(rng.normal(0, 0.04, truth.shape))
    valid = np.ones(truth.shape, bool)
    if (clones / "ml-depth-pro").is_dir():
        names = ("fgbg_depth", "boundary_f1", "get_thresholds_and_weights", "invert_depth", "SI_boundary_F1")
        score = cut(clones / "ml-depth-pro/src/depth_pro/eval/boundary_metrics.py", *names, Tuple=tuple)[
            "SI_boundary_F1"
        ]
        yield "ml-depth-pro", "boundary_depth_pro", float(score(p, truth)), boundary_depth_pro(p, truth, valid)
    if (clones / "MoGe").is_dir() and (clones / "utils3d").is_dir():
        sys.path.insert(0, str(clones / "utils3d"))
        import utils3d

        stub = types.SimpleNamespace(
            pt=types.SimpleNamespace(
                sliding_window_2d=lambda x, window_size, stride, dim: utils3d.pt.sliding_window(
                    x, window_size=window_size, stride=stride, dim=dim
                )
            )
        )
        score = cut(clones / "MoGe/moge/test/metrics.py", "boundary_f1", utils3d=stub)["boundary_f1"]
        some = rng.random(truth.shape) > 0.2
        for radius in (1, 2, 3):
            for mask in (valid, some):
                theirs = score(t(p), t(truth), torch.from_numpy(mask), radius=radius)
                yield "MoGe", f"boundary_moge_{radius}", theirs, boundary_moge(p, truth, mask, radius)
    if (clones / "UniDepth").is_dir():

        def nearest(a: torch.Tensor, b: torch.Tensor, **_: Any) -> tuple[torch.Tensor, torch.Tensor, None, None]:
            squares = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") ** 2
            return squares.amin(2), squares.amin(1), None, None

        score = cut(clones / "UniDepth/unidepth/utils/evaluation_depth.py", "f1_score", chamfer_cls=nearest)["f1_score"]
        camera = np.array([[100.0, 0, 63.5], [0, 100, 47.5], [0, 0, 1]])
        from densevit.ops.geometry import backproject

        clouds = [t(backproject(depth, camera)[valid])[None] for depth in (truth / 100, p / 100)]
        thresholds = torch.linspace(np.log(0.005), np.log(10 / 20), 100, dtype=torch.float64).exp()
        mine = point_metrics(p / 100, truth / 100, valid, camera, furthest=10.0)["f_auc"]
        yield "UniDepth", "f_auc (chamfer kernel replaced by torch.cdist)", float(score(*clouds, thresholds)), mine


def report(clones: Path, samples: Path | None) -> Iterator[str]:
    yield "| program | protocol | frame | metrics | largest relative difference |"
    yield "|---|---|---|---|---|"
    worst = 0.0
    for case in cases(samples):
        for program, run in RUNNERS.items():
            if not (clones / program.strip()).is_dir() or (program == "MoGe" and not (clones / "utils3d").is_dir()):
                continue
            for name, theirs, handed in run(clones, case):
                mine = ours(name, handed, case)
                apart = {k: abs(mine[k] - v) / max(abs(v), 1e-12) for k, v in theirs.items()}
                metric = max(apart, key=lambda k: apart[k])
                under = int(mine["invalid_predictions"]) if PROTOCOLS[name.partition("+")[0]].limits is None else 0
                worst = max(worst, 0.0 if under else apart[metric])
                sign = "" if apart[metric] <= LIMIT else f" {NEGATIVE.format(under)}" if under else " **over**"
                found = f"{apart[metric]:.1e} ({metric}){sign}"
                yield f"| {program.strip()} | {name} | {case.name} | {len(apart)} | {found} |"
    for program, name, theirs_value, mine_value in boundaries(clones):
        apart_value = abs(mine_value - theirs_value) / max(abs(theirs_value), 1e-12)
        worst = max(worst, apart_value)
        sign = "" if apart_value <= LIMIT else " **over**"
        yield f"| {program} | {name} | dense 96x128 | 1 | {apart_value:.1e}{sign} |"
    missing = [name for name in RUNNERS if not (clones / name.strip()).is_dir()]
    yield ""
    yield f"Largest of all: {worst:.1e}; the limit is {LIMIT:.0e}." + (
        f" No clone of {', '.join(missing)}." if missing else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--samples", type=Path)
    parser.add_argument("--output", type=Path, help="write the table there, too")
    args = parser.parse_args()
    lines = []
    for line in report(args.clones, args.samples):
        print(line, flush=True)
        lines.append(line)
    if args.output is not None:
        args.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
