"""Which pixels each protocol counts, what it does with predictions that do not fit, and that it says so."""

import dataclasses
from itertools import product

import cv2
import numpy as np
import pytest

from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.preprocess import EIGEN_KITTI, GARG
from densevit.evaluation.depth.protocol import COUNTS
from densevit.evaluation.depth.protocol_text import describe, summary
from densevit.evaluation.depth.published_protocols import PROTOCOLS, Protocol, applicable
from densevit.ops.crops import kb_box

# Frame -> Garg's box, Eigen's rows, top and left of the benchmark window, as the published programs compute them.
KITTI = {
    (375, 1242): ((153, 371, 44, 1197), (124, 342), (23, 13)),
    (370, 1226): ((151, 366, 44, 1181), (122, 337), (18, 5)),
    (370, 1224): ((151, 366, 43, 1180), (122, 337), (18, 4)),
    (374, 1238): ((152, 370, 44, 1193), (124, 341), (22, 11)),
    (376, 1241): ((153, 372, 44, 1196), (124, 343), (24, 12)),
    (352, 1216): ((143, 349, 43, 1172), (117, 321), (0, 0)),
}
NYU, GARG_FRAME, GARG_WINDOW, PLAIN = (
    PROTOCOLS[name] for name in ("nyu_eigen", "kitti_eigen_garg", "kitti_eigen_garg_kb", "plain")
)


def flat(size: tuple[int, int], depth: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prediction, truth and mask of a wall."""
    truth = np.full(size, depth, np.float32)
    return truth.copy(), truth, np.ones(size, bool)


def test_kitti_boxes_are_the_published_ones() -> None:
    for size, (garg, eigen, (top, left)) in KITTI.items():
        assert GARG_FRAME.score_box(*size) == GARG.box(size) == garg
        assert EIGEN_KITTI.box(size)[:2] == eigen
        assert kb_box(size) == GARG_FRAME.input_box(*size) == (top, top + 352, left, left + 1216)
        assert GARG_WINDOW.score_box(*size) == (top + 143, top + 349, left + 43, left + 1172)


UNALIGNED = {name: row for name, row in PROTOCOLS.items() if row.align is None and not row.epsilon}


@pytest.mark.parametrize("protocol", UNALIGNED.values(), ids=UNALIGNED)
def test_exactly_the_pixels_of_the_box_count(protocol: Protocol) -> None:
    size = (480, 640) if "nyu" in protocol.data else (375, 1242)
    prediction, truth, valid = flat(size)
    y0, y1, x0, x1 = protocol.score_box(*size)
    assert protocol.score(prediction, truth, valid)["pixels"] == (y1 - y0) * (x1 - x0)
    prediction[y0:y1, x0:x1] = 1.0  # wrong everywhere inside
    assert protocol.score(prediction, truth, valid)["abs_rel"] == 0.5
    prediction[:], prediction[y0:y1, x0:x1] = 1.0, 2.0  # right inside, wrong outside
    assert protocol.score(prediction, truth, valid)["abs_rel"] == 0
    for row, column in ((y0, x0), (y1 - 1, x1 - 1)):
        prediction[row, column] = 1.0
    assert protocol.score(prediction, truth, valid)["abs_rel"] == pytest.approx(1 / ((y1 - y0) * (x1 - x0)))


def test_the_box_of_nyu_is_426_by_560_and_frames_and_maps_of_other_sizes_are_refused() -> None:
    prediction, truth, valid = flat((480, 640))
    assert NYU.score(prediction, truth, valid)["pixels"] == 426 * 560
    for protocol, maps, told in (
        (NYU, flat((240, 320)), r"480x640 frames.*240x320.*plain"),
        (GARG_FRAME, flat((192, 640)), "192x640"),
        (NYU, (prediction.T.copy(), truth, valid), "transposed"),
    ):
        with pytest.raises(DataError, match=told):
            protocol.score(*maps)


def test_the_ends_of_the_range_do_not_count() -> None:
    prediction, truth, valid = flat((480, 640))
    truth[100, 100:106] = [1e-3, 10.0, 0.0, np.nan, np.inf, -1]
    assert NYU.score(prediction, truth, valid)["pixels"] == 426 * 560 - 6
    valid[200, 100:110] = False
    assert NYU.score(prediction, truth, valid)["pixels"] == 426 * 560 - 16


def test_predictions_are_clamped_to_the_range() -> None:
    truth, valid = np.full((480, 640), 5, np.float32), np.ones((480, 640), bool)
    assert NYU.score(np.full((480, 640), 99, np.float32), truth, valid)["abs_rel"] == pytest.approx(1.0)
    assert NYU.score(np.full((480, 640), 1e-9, np.float32), truth, valid)["abs_rel"] == pytest.approx(1 - 2e-4)


def test_unusable_predictions_are_clamped_as_published_and_counted_where_truth_counts() -> None:
    for bad, scored_as in ((np.nan, 1e-3), (np.inf, 80.0), (-np.inf, 1e-3), (0.0, 1e-3), (-3.0, 1e-3)):
        prediction, truth, valid = flat((10, 10))
        prediction[0, :5] = bad
        before = [m.copy() for m in (prediction, truth, valid)]
        row = PLAIN.score(prediction, truth, valid)
        assert row["invalid_predictions"] == 5
        assert row["abs_rel"] == pytest.approx(5 / 100 * abs(scored_as - 2) / 2, rel=1e-9)
        for now, then in zip((prediction, truth, valid), before, strict=True):
            np.testing.assert_array_equal(now, then)
        valid[0] = False
        row = PLAIN.score(prediction, truth, valid)
        assert (row["invalid_predictions"], row["abs_rel"], row["pixels"]) == (0, 0, 90)


def test_a_row_has_the_same_keys_for_every_image_with_truth() -> None:
    assert tuple(PLAIN.score(*flat((1, 1)))) == (*METRICS, *COUNTS)
    prediction, truth, valid = flat((480, 640))
    valid[45:471, 41:601] = False
    assert NYU.score(prediction, truth, valid) == {}


@pytest.mark.parametrize("protocol", [GARG_FRAME, GARG_WINDOW], ids=lambda p: p.name)
def test_a_prediction_of_the_window_is_pasted_into_it(protocol: Protocol) -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 70, (375, 1242)).astype(np.float32)
    valid = rng.random(truth.shape) > 0.5
    whole = (truth * 1.1).astype(np.float32)
    y0, y1, x0, x1 = kb_box(truth.shape)
    assert protocol.score(whole[y0:y1, x0:x1], truth, valid) == protocol.score(whole, truth, valid)


def test_a_prediction_of_another_size_is_resized_with_corners_aligned_and_counted() -> None:
    """A ramp stays the same ramp only where corners meet corners."""
    truth = np.tile(np.linspace(1, 9, 41, dtype=np.float32), (21, 1))
    small = np.tile(np.linspace(1, 9, 11, dtype=np.float32), (6, 1))
    row = PLAIN.score(small, truth, np.ones(truth.shape, bool))
    assert row["resized"] == 1 and row["rmse"] == pytest.approx(0, abs=1e-5)
    for other in ((21, 21), (1, 1), (41, 41)):
        with pytest.raises(DataError, match=f"{other[0]}x{other[1]}, another aspect ratio than the 21x41"):
            PLAIN.score(np.ones(other, np.float32), truth, np.ones(truth.shape, bool))


def test_what_is_not_a_map_of_floats_is_refused() -> None:
    for wrong in (np.ones((4, 4), np.uint16), np.ones((1, 4, 4), np.float32), np.ones((0, 4))):
        with pytest.raises((DataError, TypeError)):
            PLAIN.score(wrong, np.ones((4, 4), np.float32), np.ones((4, 4), bool))


def test_half_precision_predictions_are_scored_in_double() -> None:
    truth, valid = np.full((100, 100), 300.0, np.float32), np.ones((100, 100), bool)
    row = PLAIN.for_range(1e-3, 1000.0).score(np.full((100, 100), 900, np.float16), truth, valid)  # 600^2 is no fp16
    assert row["rmse"] == 600


def test_only_plain_takes_the_range_of_the_data() -> None:
    assert PLAIN.for_range(0.1, 20.0).range == (0.1, 20.0)
    assert NYU.for_range(0.1, 20.0) is NYU
    with pytest.raises(ConfigError, match="near < far"):
        PLAIN.for_range(5.0, 1.0)


@pytest.mark.parametrize("how", ["median", "lstsq", "lstsq_disparity"])
def test_alignment_makes_predictions_without_unit_comparable(how: str) -> None:
    truth = np.random.default_rng(0).uniform(1, 9, (480, 640)).astype(np.float32)
    unitless = {"median": 0.2 * truth, "lstsq": 0.2 * truth + 3, "lstsq_disparity": 5 / truth + 7}[how]
    protocol = NYU.aligned(how)
    row = protocol.score(unitless.astype(np.float32), truth, truth > 0)
    assert row["abs_rel"] == pytest.approx(0, abs=1e-5) and row["invalid_predictions"] == 0
    assert protocol.name == f"nyu_eigen+{how}" and "per image" in describe(protocol)


def test_ends_of_the_range_count_where_the_protocol_says_so_and_too_little_truth_does_not() -> None:
    prediction, truth, valid = flat((10, 10))
    truth[0, :3] = [1e-3, 20.0, 20.001]
    indoor = PROTOCOLS["dav2_indoor"]
    assert indoor.score(prediction, truth, valid)["pixels"] == 99
    valid[:] = False
    valid.flat[-9:] = True
    assert indoor.score(prediction, truth, valid) == {}
    valid.flat[-10] = True
    assert indoor.score(prediction, truth, valid)["pixels"] == 10


def test_clamping_first_and_clamping_last_differ_at_an_edge_that_resizing_blurs() -> None:
    """Of 2 and 90 m side by side, enlarged: blurred and clamped to 10 against clamped and blurred."""
    prediction = np.full((240, 320), 2, np.float32)
    prediction[:, 160:] = 90
    truth, valid = np.full((480, 640), 2, np.float32), np.ones((480, 640), bool)
    first = PROTOCOLS["nyu_mdet"].score(prediction, truth, valid)
    last = PROTOCOLS["nyu_zoedepth"].score(prediction, truth, valid)
    assert first["abs_rel"] < last["abs_rel"]
    prediction[0, 0], prediction[1, 1] = -1, np.inf
    assert PROTOCOLS["nyu_mdet"].score(prediction, truth, valid)["invalid_predictions"] == 2


def test_what_a_16_bit_file_keeps_is_cut_once_and_not_again() -> None:
    truth, valid = np.full((480, 640), 2, np.float32), np.ones((480, 640), bool)
    png = PROTOCOLS["nyu_bts_png"]
    cut = png.score(np.full_like(truth, 2.0019), truth, valid)["rmse"]
    assert cut == pytest.approx(0.001, rel=1e-4)
    stored = np.arange(1, 10000, dtype=np.uint16).astype(np.float32) / np.float32(1000)
    truth = np.resize(stored, (480, 640))
    assert png.score(truth.copy(), truth, valid)["abs_rel"] < 1e-6


def test_metres_and_disparity_are_scored_by_what_reads_them() -> None:
    truth = np.random.default_rng(0).uniform(1, 9, (480, 640)).astype(np.float32)
    for name in ("nyu_marigold", "nyu_midas", "median_scale", "moge_scale"):
        row = PROTOCOLS[name]
        for kind, prediction in (("metric", 3 * truth), ("disparity", 1 / (3 * truth))):
            found = row.for_kind(kind).score(prediction.astype(np.float32), truth, truth > 0)  # type: ignore[arg-type]
            inverted = (kind, row.compared_as) == ("disparity", "depth")
            assert found["abs_rel"] < 1e-5 or (inverted and found["abs_rel"] < 0.3)
    assert PROTOCOLS["kitti_monodepth2"].for_kind("disparity").inverts
    assert not PROTOCOLS["kitti_monodepth2"].for_kind("metric").inverts
    assert NYU.for_kind("metric") is NYU and NYU.for_kind("affine").align == "lstsq"


def test_only_what_fits_data_size_and_kind_applies() -> None:
    def names(*given: object) -> set[str]:
        return {row.name for row in applicable(*given, (1e-3, 10.0))}  # type: ignore[arg-type]

    nyu = names("nyu", (480, 640), "metric")
    assert {"nyu_eigen", "nyu_midas", "plain", "dav2_indoor"} <= nyu and not any("kitti" in name for name in nyu)
    assert "nyu_eigen" not in names("nyu", (240, 320), "metric") and "plain" in names("nyu", (240, 320), "metric")
    assert "plain" not in names("nyu", (480, 640), "disparity") and "nyu_midas" in names("nyu", (480, 640), "disparity")
    assert "nyu_midas" not in names("nyu", (480, 640), "affine")


def test_every_protocol_is_told_in_words() -> None:
    for name, protocol in PROTOCOLS.items():
        told = describe(protocol)
        assert told.startswith(f"{name}: ") and "Pixels are scored" in told and "{" not in told
        assert protocol.source in told and name in summary(PROTOCOLS.values())


def test_mistaken_protocols_are_refused() -> None:
    with pytest.raises(ConfigError, match="lstsq"):
        NYU.aligned("lstq")
    with pytest.raises(ConfigError, match="boundary"):
        dataclasses.replace(NYU, metrics=("boundry",))


def test_the_rendered_map_is_the_one_that_is_scored() -> None:
    truth = np.random.default_rng(0).uniform(1, 9, (480, 640)).astype(np.float32)
    prediction = (0.2 * truth + 3 + np.random.default_rng(1).normal(0, 0.1, truth.shape)).astype(np.float32)
    row = PROTOCOLS["nyu_marigold"]
    frame = row.render(prediction, truth, truth > 0)
    inside = frame[45:471, 41:601], truth[45:471, 41:601]
    assert row.score(prediction, truth, truth > 0)["abs_rel"] == pytest.approx(
        np.mean(np.abs(inside[0] - inside[1]) / inside[1]), rel=1e-5
    )


def test_a_map_without_any_depth_to_align_is_scored_as_the_near_end_and_stops_nothing() -> None:
    """Of truth 2 m and a near end of 0.001 m: |2 - 0.001| / 2."""
    truth = np.full((4, 6), 2, np.float32)
    for how, value in product(("median", "lstsq_log", "lstsq_disparity_positive", "l1_scale"), (np.nan, 0.0)):
        row = PLAIN.aligned(how).score(np.full_like(truth, value), truth, truth > 0)
        assert row["abs_rel"] == pytest.approx(0.9995) and row["invalid_predictions"] == 24


def test_infinity_in_a_map_of_one_value_is_no_warning_and_no_depth() -> None:
    """All finite predictions are equal: their fit has a scale of 0, and 0 times infinity is nothing."""
    truth = np.full((4, 6), 2, np.float32)
    prediction = np.where(np.arange(24).reshape(4, 6) == 7, np.inf, 3).astype(np.float32)
    row = PROTOCOLS["plain"].aligned("lstsq").score(prediction, truth, truth > 0)
    assert row["invalid_predictions"] == 1 and row["d1"] == pytest.approx(23 / 24)


# What the published programs gave for `frames` (benchmarks/protocol_parity.py runs them). Some store float32.
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
