"""Each published protocol on made-up frames, against numbers that the published programs gave for the same frames.

benchmarks/protocol_parity.py runs those programs; the report of that day stands beside it. Some store float32.
"""

import cv2
import numpy as np
import pytest

from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.ops.crops import kb_box

GOLDEN = {
    "nyu_eigen": {"abs_rel": 0.13740629, "rmse": 0.600462437, "silog": 15.5146713, "d1": 0.82983315},
    "nyu_bts_png": {"abs_rel": 0.137356803, "rmse": 0.600381494, "silog": 15.5160789, "d1": 0.830000818},
    "nyu_adabins": {"abs_rel": 0.140782413, "rmse": 0.602820733, "silog": 16.0065003, "d1": 0.820150067},
    "nyu_zoedepth": {"abs_rel": 0.140782413, "rmse": 0.602820733, "silog": 16.0065003, "d1": 0.820150067},
    "nyu_mdet": {"abs_rel": 0.140782413, "rmse": 0.602820733, "silog": 16.0065003, "d1": 0.820150067},
    "nyu_dinov2": {"abs_rel": 0.140393751, "rmse": 0.60444611, "silog": 15.9427784, "d1": 0.820401576},
    "dav2_indoor": {"abs_rel": 0.140513912, "rmse": 2.13916961, "silog": 0.160041781, "d1": 0.808716774},
    "dav2_outdoor": {"abs_rel": 0.136946692, "rmse": 5.19794369, "silog": 0.157030729, "d1": 0.818743944},
    "nyu_dinov3": {"abs_rel": 0.140393751, "rmse": 0.60444611, "silog": 15.9427784, "d1": 0.820401549},
    "nyu_dinov3_lstsq": {"abs_rel": 0.146260303, "rmse": 0.532500814, "silog": 16.9036549, "d1": 0.800783873},
    "nyu_unidepth": {"abs_rel": 0.140393751, "rmse": 0.60444611, "silog": 15.9429455, "d1": 0.820401549},
    "nyu_unidepth+lstsq": {"abs_rel": 0.146260294, "d1": 0.800783873},
    "nyu_unidepth+median_lower": {"abs_rel": 0.133902021, "d1": 0.743251145},
    "metric3d": {"abs_rel": 0.137134146, "rmse": 5.23069497, "silog": 0.0680822644, "rmse_log": 0.0684522797},
    "nyu_marigold": {"abs_rel": 0.143297506, "rmse": 0.526930794, "silog": 16.4429369, "d1": 0.805499673},
    "nyu_marigold_disparity": {"abs_rel": 0.12816224, "rmse": 0.535361651, "silog": 15.276145, "d1": 0.854648709},
    "moge_metric": {"abs_rel": 0.137134138, "d1": 0.818078339},
    "moge_scale": {"abs_rel": 0.129496936, "d1": 0.837820709},
    "moge_disparity": {"abs_rel": 0.133744667, "d1": 0.83398819},
    "kitti_eigen_garg": {"abs_rel": 0.132450059, "rmse": 2.27450967, "silog": 15.5156946, "d1": 0.829583645},
    "kitti_bts_png": {"abs_rel": 0.132482767, "rmse": 2.27428365, "silog": 15.5213804, "d1": 0.829404652},
    "kitti_eigen_garg_kb": {"abs_rel": 0.13157742, "rmse": 2.09859065, "silog": 15.3741605, "d1": 0.837299796},
    "kitti_adabins": {"abs_rel": 0.13175256, "rmse": 2.10418067, "silog": 15.3784053, "d1": 0.836762335},
    "kitti_zoedepth": {"abs_rel": 0.13175256, "rmse": 2.10418067, "silog": 15.3784053, "d1": 0.836762335},
    "kitti_mdet": {"abs_rel": 0.13175256, "rmse": 2.10418067, "silog": 15.3784053, "d1": 0.836762335},
    "kitti_dinov2": {"abs_rel": 0.131589882, "rmse": 2.09905315, "silog": 15.3807729, "d1": 0.836955821},
    "kitti_unidepth": {"abs_rel": 0.131589882, "rmse": 2.09905315, "silog": 15.3809382, "d1": 0.836955845},
    "kitti_unidepth+lstsq": {"abs_rel": 0.0845167995, "d1": 0.975857258},
    "kitti_unidepth+median_lower": {"abs_rel": 0.136460992, "d1": 0.752402425},
    "kitti_marigold": {"abs_rel": 0.12793763, "rmse": 2.66501625, "silog": 14.959488, "d1": 0.86032176},
    "kitti_marigold_disparity": {"abs_rel": 0.124273181, "rmse": 3.23207373, "silog": 15.9286528, "d1": 0.851138651},
    "kitti_monodepth2": {"abs_rel": 0.153544196, "rmse": 2.63743874, "d1": 0.66233017},
}  # fmt: skip

HALF = ("adabins", "zoedepth", "mdet", "dinov2", "dinov3", "dav2", "unidepth")  # were handed maps of half the size
DISPARITY = ("nyu_marigold_disparity", "kitti_marigold_disparity", "moge_disparity")
AFFINE = ("nyu_dinov3_lstsq", "nyu_marigold", "kitti_marigold")


def frame(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Prediction, and truth of which four fifths are unknown."""
    (h, w), far = ((480, 640), 10.0) if data == "nyu" else ((375, 1242), 80.0)
    y, x = np.mgrid[0:h, 0:w]
    truth = far / 12 + far * 0.7 * ((h - y) / h) ** 2 + (x % 37) / 37
    prediction = truth * (1.03 + 0.2 * np.sin(y / 30) + 0.1 * np.cos(x / 50) + 1e-3 * np.sin(x * 1.7 + y * 2.3))
    return prediction.astype(np.float32), np.where((x + 3 * y) % 5 == 0, truth, 0).astype(np.float32)


def handed(name: str, prediction: np.ndarray) -> np.ndarray:
    """The prediction as that program was handed it."""
    row = PROTOCOLS[name.partition("+")[0]]
    if name in DISPARITY:
        prediction = 3 / prediction + np.float32(0.2)
    if name in AFFINE:
        prediction = np.float32(0.3) * prediction + np.float32(0.4)
    if name == "kitti_monodepth2":
        return cv2.resize(1 / prediction, (640, 192))
    if row.window == "kb" and not name.endswith("png"):
        y0, y1, x0, x1 = kb_box(prediction.shape)  # type: ignore[arg-type]
        prediction = prediction[y0:y1, x0:x1]
    if any(who in name for who in HALF):
        h, w = prediction.shape
        return cv2.resize(prediction, (w // 2, h // 2))
    return prediction


@pytest.mark.parametrize("name", GOLDEN)
def test_a_protocol_gives_what_its_program_gave(name: str) -> None:
    data = "nyu" if name.startswith("nyu") else "kitti"
    prediction, truth = frame(data)
    base, _, align = name.partition("+")
    protocol = PROTOCOLS[base].aligned(align) if align else PROTOCOLS[base]
    found = protocol.score(handed(name, prediction), truth, truth > 0)
    assert {key: found[key] for key in GOLDEN[name]} == pytest.approx(GOLDEN[name], rel=2e-6)
