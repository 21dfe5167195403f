"""The field's evaluation protocols: one table of frozen rows, each a way to turn a depth map into numbers.

docs/protocols.md shows what each counts in a frame and how far they are apart on one set of predictions;
benchmarks/protocol_parity.py runs the originals beside them.
"""

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth.preprocess import EIGEN_KITTI, EIGEN_NYU, GARG, KB_WINDOW, RelativeBox
from densevit.evaluation.depth.protocol import Protocol
from densevit.model_card import Kind
from densevit.output_kinds import output_kind
from densevit.registry import did_you_mean

__all__ = ["PROTOCOLS", "Protocol", "applicable", "find_protocol"]

Options = dict[str, Any]
"""Attributes that the rows of one program share."""


def variant(base: Protocol, name: str, description: str, **options: Any) -> Protocol:
    """Return a protocol by what distinguishes it from a related one."""
    return replace(base, name=name, description=description, **options)


NYU = Protocol(
    name="nyu_eigen",
    description="NYU Depth v2 as bts, AdaBins and ZoeDepth score it (Eigen's crop).",
    source="cogaplex-bts/bts: pytorch/bts_main.py",
    data=("nyu",),
    range=(1e-3, 10.0),
    region=EIGEN_NYU,
)

KITTI = Protocol(
    name="kitti_eigen_garg_kb",
    description="KITTI's Eigen split as AdaBins, ZoeDepth and bts in training score it: Garg's crop of the window.",
    source="cogaplex-bts/bts: pytorch/bts_main.py, bts_dataloader.py",
    data=("kitti",),
    range=(1e-3, 80.0),
    region=GARG,
    region_of="window",
    window="kb",
)

KITTI_FRAME = variant(
    KITTI,
    "kitti_eigen_garg",
    "KITTI's Eigen split as bts scores saved maps: Garg's crop of the whole frame.",
    source="cogaplex-bts/bts: utils/eval_with_pngs.py",
    region_of="frame",
)

PLAIN = Protocol(name="", description="", range=(1e-3, 80.0))

ALL = variant(PLAIN, "plain", "every pixel with ground truth, in the data set's own range.", range_of_data=True)

ADABINS: Options = {"source": "shariqfarooq123/AdaBins: evaluate.py", "clamp_first": True, "flip": True, "digits": 3}
ZOEDEPTH: Options = {"source": "isl-org/ZoeDepth: zoedepth/utils/misc.py, evaluate.py", "flip": True, "digits": 3}
TOOLBOX: Options = {
    "source": "zhyever/Monocular-Depth-Estimation-Toolbox: depth/core/evaluation/metrics.py",
    "clamp_first": True,
    "flip": True,
}
DINOV2: Options = TOOLBOX | {
    "source": "facebookresearch/dinov2: dinov2/eval/depth, scored by the Toolbox's metrics",
    "resize": "borders",
}
DAV2 = replace(
    PLAIN,
    source="DepthAnything/Depth-Anything-V2: metric_depth/train.py, util/metric.py",
    ends="included",
    min_pixels=10,
    clamp=None,
    silog="half",
)
DINOV3 = variant(
    NYU,
    "nyu_dinov3",
    "NYU Depth v2 as dinov3 scores its metric heads: Eigen's crop in shares of the frame.",
    source="facebookresearch/dinov3: dinov3/eval/depth/eval.py, metrics.py",
    region=RelativeBox(45 / 480, 471 / 480, 41 / 640, 601 / 640, "Eigen"),
    resize="borders",
    flip=True,
    metrics=("extra",),
)
UNIDEPTH: Options = {
    "source": "lpiccinelli-eth/UniDepth: unidepth/utils/evaluation_depth.py, unidepth/datasets",
    "resize": "borders",
    "clamp": None,
    "silog": "unbiased",
    "metrics": ("curve",),
}
MARIGOLD: Options = {
    "source": "prs-eth/Marigold: script/depth/eval.py, src/util",
    "align": "lstsq",
    "metrics": ("extra",),
    "resize": "borders",
}
MOGE = replace(
    PLAIN,
    range=(0.0, math.inf),
    source="microsoft/MoGe: moge/test/metrics.py, moge/utils/alignment.py",
    clamp=None,
    resize="borders",
    epsilon=1e-6,
)
MIDAS: Options = {
    "source": "isl-org/DPT: EVALUATION.md and the two gists it names",
    "align": "lstsq_disparity",
    "resize": "borders",
    "region": None,
}


def _of_both(program: str, how: str, options: Options) -> list[Protocol]:
    data = ((NYU, "NYU Depth v2"), (KITTI, "KITTI's Eigen split"))
    return [variant(row, f"{row.data[0]}_{program}", f"{title} as {how}.", **options) for row, title in data]


def _rows() -> tuple[Protocol, ...]:
    """Return the name, whose it is, and in what each differs from a relative."""
    return (
        ALL,
        NYU,
        KITTI_FRAME,
        KITTI,
        variant(
            KITTI,
            "kitti_eigen",
            "KITTI's Eigen split in Eigen's own crop of the window, as bts offers beside Garg's.",
            region=EIGEN_KITTI,
        ),
        variant(
            NYU,
            "nyu_bts_png",
            "NYU Depth v2 as bts scores its 16-bit files.",
            png_scale=1000,
            source="cogaplex-bts/bts: utils/eval_with_pngs.py",
        ),
        variant(KITTI_FRAME, "kitti_bts_png", "KITTI's Eigen split as bts scores its 16-bit files.", png_scale=256),
        *_of_both("adabins", "AdaBins scores it", ADABINS),
        *_of_both("zoedepth", "ZoeDepth scores it", ZOEDEPTH),
        *_of_both("mdet", "the Monocular-Depth-Estimation-Toolbox scores it", TOOLBOX),
        *_of_both("dinov2", "dinov2's depth heads are scored", DINOV2),
        DINOV3,
        variant(
            DINOV3,
            "nyu_dinov3_lstsq",
            "NYU Depth v2 as dinov3 scores the heads that it trained on synthetic images.",
            align="lstsq",
        ),
        variant(DAV2, "dav2_indoor", "Depth Anything V2's metric models indoors (Hypersim).", range=(1e-3, 20.0)),
        variant(
            DAV2,
            "dav2_outdoor",
            "Depth Anything V2's metric models outdoors (KITTI, Virtual KITTI 2).",
            range=(1e-3, 80.0),
        ),
        *(replace(row, range=(0.0, row.range[1])) for row in _of_both("unidepth", "UniDepth scores it", UNIDEPTH)),
        variant(
            PLAIN,
            "metric3d",
            "Metric3D's own scoring of any data set.",
            range=(1e-8, math.inf),
            source="YvanYin/Metric3D: mono/utils/avg_meter.py, do_test.py",
            clamp=None,
            resize="borders",
            silog="log10",
            rmse_log="log10",
        ),
        variant(
            PLAIN,
            "kitti_benchmark",
            "KITTI's depth prediction benchmark, 352x1216 files.",
            data=("kitti",),
            range=(0.0, math.inf),
            source="KITTI's development kit, evaluate_depth.cpp",
            region=KB_WINDOW,
            region_of="window",
            window="kb",
            fill=True,
            clamp=None,
            metrics=("kitti",),
        ),
        variant(
            NYU,
            "nyu_midas",
            "NYU Depth v2 as MiDaS and DPT are scored, the whole frame.",
            range=(0.0, 10.0),
            clamp=(0.0, 10.0),
            **MIDAS,
        ),
        variant(
            KITTI,
            "kitti_midas",
            "KITTI as MiDaS and DPT are scored, the whole frame.",
            range=(0.0, math.inf),
            clamp=(0.0, 80.0),
            window=None,
            region_of="frame",
            **MIDAS,
        ),
        variant(NYU, "nyu_marigold", "NYU Depth v2 as Marigold is scored.", **MARIGOLD),
        variant(
            KITTI,
            "kitti_marigold",
            "KITTI's Eigen split as Marigold is scored: Eigen's crop of the window.",
            **MARIGOLD | {"range": (1e-5, 80.0), "region": EIGEN_KITTI},
        ),
        *(
            variant(PLAIN, f"{data}_marigold", f"{title} as Marigold is scored.", data=(data,), **MARIGOLD | options)
            for data, title, options in (
                ("eth3d", "ETH3D", {"range": (1e-5, math.inf), "fit_on": "columns1024"}),
                ("scannet", "ScanNet", {"range": (1e-3, 10.0)}),
                ("diode", "DIODE", {"range": (0.6, 350.0)}),
            )
        ),
        variant(
            NYU,
            "nyu_marigold_disparity",
            "NYU Depth v2, disparity as Marigold's program scores it.",
            **MARIGOLD | {"align": "lstsq_disparity_positive"},
        ),
        variant(
            KITTI,
            "kitti_marigold_disparity",
            "KITTI's Eigen split, disparity as Marigold's program scores it.",
            **MARIGOLD | {"range": (1e-5, 80.0), "region": EIGEN_KITTI, "align": "lstsq_disparity_positive"},
        ),
        variant(
            KITTI_FRAME,
            "kitti_monodepth2",
            "KITTI's Eigen split as monodepth2 scores disparity.",
            source="nianticlabs/monodepth2: evaluate_depth.py",
            window=None,
            resize="opencv",
            align="median",
            prediction_type="disparity",
        ),
        variant(MOGE, "moge_metric", "MoGe's metric depth.", align=None),
        variant(MOGE, "moge_scale", "MoGe's scale-invariant depth.", align="l1_scale", fit_on="grid64"),
        variant(MOGE, "moge_affine", "MoGe's affine-invariant depth.", align="l1", fit_on="grid64"),
        variant(MOGE, "moge_disparity", "MoGe's affine-invariant disparity.", align="lstsq_disparity_truth"),
        variant(ALL, "log_scale", "depth up to a scale, the best in log depth (Eigen et al. 2014).", align="log_scale"),
        variant(ALL, "log_lstsq", "log depth up to scale and shift, by least squares.", align="lstsq_log"),
        variant(ALL, "median_scale", "depth up to a scale, by medians.", align="median"),
    )


PROTOCOLS: dict[str, Protocol] = {protocol.name: protocol for protocol in _rows()}
"""Name -> protocol. One more is one more row."""


def applicable(data: str, size: tuple[int, int], kind: Kind, depth_range: tuple[float, float]) -> list[Protocol]:
    """Return every protocol that can score predictions of a kind on a data set with frames of a size (h, w).

    Predictions without unit are scored by those that align them; depth in metres by all of its data sets'.
    """
    protocols = []
    for row in PROTOCOLS.values():
        fits = not row.data or data in row.data
        unaligned = kind != "metric" and row.align is None
        crossed = kind == "affine" and row.compared_as == "disparity"  # shifted depth has no inverse
        if not fits or unaligned or crossed:
            continue
        with suppress(DataError):
            row.score_box(*size)
            protocols.append(row.for_range(*depth_range).for_kind(kind))
    return protocols


def find_protocol(
    name: str, depth_range: tuple[float, float], kind: Kind = "metric", align: str | None = None
) -> Protocol:
    """Return a protocol by name, with the data set's depth range where it has none, and alignment where `kind` has no
    unit. `align`: in place of its own. Raises ConfigError: no such protocol, or predictions that are not depth."""
    if name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{name}'.{did_you_mean(name, PROTOCOLS)}")
    output = output_kind(kind)
    if not output.is_depth:
        option = f"--task {output.task}" if output.task else "--metrics uncertainty"
        raise ConfigError(f"this head gives {output.meaning}, not depth; `densevit eval {option}` scores it.")
    protocol = PROTOCOLS[name].for_range(*depth_range)
    return (protocol if align is None else protocol.aligned(align)).for_kind(kind)
