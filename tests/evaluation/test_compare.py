"""Intervals and comparisons: right as often as they say, and the same in any order."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from densevit.errors import DataError
from densevit.evaluation.bootstrap import FEWEST, bootstrap_means, holm, intervals, scenes_of
from densevit.evaluation.compare import compare, read_rows, sentence, table, write_html
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.depth.scores import evaluate
from densevit.evaluation.scores import METRICS, register_metrics
from densevit.evaluation.segmentation.scores import count as seg_count
from densevit.evaluation.segmentation.scores import summarise


def test_the_interval_of_a_mean_is_the_normal_one_for_many_images() -> None:
    """Mean +- 1.96 standard errors, by the central limit theorem."""
    values = np.random.default_rng(0).normal(5, 2, 600)
    low, high = intervals([(str(i), {"x": v}) for i, v in enumerate(values)], ["x"])["x"]
    error = 1.96 * values.std() / np.sqrt(600)
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.15 * error)


@pytest.mark.parametrize("images", [FEWEST, 10, 80])
def test_intervals_hold_the_truth_nineteen_times_in_twenty(images: int) -> None:
    """Plain percentiles hold it 855 times in 1,000 of 6 images, and 896 of 10 (both measured)."""
    metrics, values = [str(trial) for trial in range(1000)], np.random.default_rng(0).normal(0, 1, (images, 1000))
    rows = [(f"{i:04}", dict(zip(metrics, row, strict=True))) for i, row in enumerate(values)]
    assert sum(low < 0 < high for low, high in intervals(rows, metrics).values()) >= 915


def test_intervals_do_not_depend_on_the_order_of_the_rows() -> None:
    rows = [(f"{i:03}", {"x": v}) for i, v in enumerate(np.random.default_rng(0).normal(size=50))]
    assert intervals(rows, ["x"]) == intervals(rows[::-1], ["x"])
    scenes = {name: name[:2] for name, _ in rows}
    assert intervals(rows, ["x"], scenes) == intervals(rows[::-1], ["x"], scenes)


def test_scenes_of_alike_images_make_the_interval_wider() -> None:
    scene = np.repeat(np.random.default_rng(0).normal(size=10), 30)
    rows = [(f"{i // 30}/{i}", {"x": v}) for i, v in enumerate(scene)]
    (low, high), (wide_low, wide_high) = (
        intervals(rows, ["x"], groups)["x"] for groups in (None, scenes_of(name for name, _ in rows))
    )
    assert wide_high - wide_low > 3 * (high - low)


def test_what_too_few_images_have_gets_no_interval() -> None:
    rows = [(str(i), {"x": float(i), "y": float(i)} if i else {"x": 0.0}) for i in range(FEWEST)]
    assert intervals(rows, ["x", "y"]).keys() == {"x"}
    assert intervals(rows[1:], ["x", "y"]) == {}


def scored(
    folder: Path, error: float, count: int = 40, noise: float = 0.02, protocol: str = "plain", rooms: int = 8
) -> Path:
    rng = np.random.default_rng(7)
    items = []
    for i in range(count):
        truth = rng.uniform(1, 9, (12, 16)).astype(np.float32)
        off = np.float32(1 + error + rng.normal(0, noise))
        items.append((f"room{i % rooms}/{i:03}", truth * off, truth, truth > 0))
    evaluate(items, PROTOCOLS[protocol]).write(folder)
    return folder


def test_a_system_that_is_better_is_told_to_be(tmp_path: Path) -> None:
    found = compare(scored(tmp_path / "a", 0.2), scored(tmp_path / "b", 0.1))
    rows = {row.metric: row for row in found.differences}
    assert rows["abs_rel"].better == "B" and rows["abs_rel"].difference == pytest.approx(-0.1, abs=1e-6)
    assert found.images == 40 and rows["abs_rel"].scenes is not None
    assert sentence(found).startswith("B is better") and "B is better" in table(found)


def test_pairing_sees_what_the_spread_of_the_images_hides(tmp_path: Path) -> None:
    """Images differ by 0.3 among themselves, the systems by 0.005 on each: unpaired intervals overlap."""
    a, b = scored(tmp_path / "a", 0.5, noise=0.1), scored(tmp_path / "b", 0.505, noise=0.1)
    assert {row.metric: row.better for row in compare(a, b).differences}["abs_rel"] == "A"


def test_a_difference_that_is_sure_and_tiny_is_called_negligible(tmp_path: Path) -> None:
    """On every image alike, so that no interval holds 0; a ten-thousandth of the error."""
    found = compare(scored(tmp_path / "a", 0.2, noise=0.1), scored(tmp_path / "b", 0.20002, noise=0.1))
    row = {row.metric: row for row in found.differences}["abs_rel"]
    assert row.better == "A" and row.relative < 2e-4 and row.verdict == "A is better, negligibly"
    assert "abs_rel" in sentence(found).partition("A is better by under 0.5% in ")[2].partition(";")[0]


def test_the_last_line_says_what_the_table_says(tmp_path: Path) -> None:
    folders = []
    for name, error in (("a", 1.2), ("b", 1.1)):
        rng = np.random.default_rng(3)
        maps = [rng.uniform(1, 9, (12, 16)).astype(np.float32) for _ in range(12)]
        items = ((f"{i}", truth * np.float32(error + rng.normal(0, 0.02)), truth, truth > 0)
                 for i, truth in enumerate(maps))  # fmt: skip
        evaluate(items, PROTOCOLS["plain"], metrics=("extra", "distance")).write(tmp_path / name)
        folders.append(tmp_path / name)
    found = compare(*folders)
    better = [row.metric for row in found.differences if row.better == "B"]
    *_, last = table(found).splitlines()
    assert {"mae", "abs_rel@3-5m"} < set(better) and table(found).count("B is better") == len(better) + 1
    assert last == f"B is better in {len(better)} of {len(found.differences)} metrics ({', '.join(better)})."


def test_holm_adjusts_as_published() -> None:
    """0.01, 0.04, 0.03, 0.005: times 3, 1, 2, 4 in order of size, then never less than the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_the_p_value_is_the_paired_t_tests() -> None:
    from scipy.stats import ttest_1samp

    half = np.random.default_rng(1).normal(0.3, 1, 20)
    values = np.concatenate([half, 2 * half.mean() - half])  # of no skewness, for which the test corrects
    redrawn = bootstrap_means([(f"{i:02}", {"x": v}) for i, v in enumerate(values)], ["x"])["x"]
    assert redrawn.p_value(values.mean()) == pytest.approx(ttest_1samp(values, 0).pvalue, rel=0.2)


def test_of_many_metrics_chance_alone_shows_a_difference_in_few_comparisons() -> None:
    """60 pairs of equal systems, nine independent metrics: uncorrected, 1 - 0.95^9 = 37% would show one."""
    values = np.random.default_rng(0).normal(size=(12, 60 * 9))
    metrics = [str(column) for column in range(values.shape[1])]
    redrawn = bootstrap_means(
        [(f"{i:02}", dict(zip(metrics, row, strict=True))) for i, row in enumerate(values)], metrics
    )
    p = [redrawn[metric].p_value(mean) for metric, mean in zip(metrics, values.mean(0), strict=True)]
    assert sum(min(holm(p[i : i + 9])) < 0.05 for i in range(0, len(p), 9)) <= 6


def segmented(folder: Path, wrong: float, classes: str = "abcd", boundary: bool = True, count: int = 12) -> Path:
    rng = np.random.default_rng(0)
    found = []
    for i in range(count):
        labels = rng.integers(0, 4, (24, 32)).repeat(2, 0)
        predicted = np.where(rng.random(labels.shape) < wrong * (1 + i / count), (labels + 1) % 4, labels)
        found.append((f"town{i % 6}/{i}", seg_count(predicted, labels, 4, boundary=boundary)))
    summarise(found, list(classes)).write(folder)
    return folder


def test_segmentations_are_compared_by_pooled_scores(tmp_path: Path) -> None:
    a, b = segmented(tmp_path / "a", 0.2), segmented(tmp_path / "b", 0.15, boundary=False)
    found = compare(a, b)
    rows = {row.metric: row for row in found.differences}
    assert list(rows) == ["miou", "pixel_accuracy", "mean_accuracy", "fwiou"] and found.scored_by == "segmentation"
    means = [json.loads((folder / "metrics.json").read_text())["metrics"] for folder in (a, b)]
    for name, row in rows.items():
        assert (row.a, row.b) == pytest.approx((means[0][name], means[1][name]))
        assert row.better == "B" and row.wins == 1 and row.scenes is not None
    low, high = rows["miou"].interval or (0, 0)
    assert 0 < low < rows["miou"].difference < high
    assert sentence(found).startswith("B is better in 4 of 4 metrics")
    assert compare(a, a).differences[0].better is None


def test_segmentations_of_other_classes_and_depth_are_not_compared(tmp_path: Path) -> None:
    a = segmented(tmp_path / "a", 0.2)
    with pytest.raises(DataError, match="different classes"):
        compare(a, segmented(tmp_path / "b", 0.2, classes="abce"))
    with pytest.raises(DataError, match=r"plain .* by 'segmentation'"):
        compare(scored(tmp_path / "depth", 0.2), a)
    with pytest.raises(DataError, match="11 images, where metrics.json says 12"):
        shutil.copy(segmented(tmp_path / "less", 0.2, count=11) / "counts.npz", a)
        compare(a, a)
    (a / "counts.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="counts.npz"):
        compare(a, a)


def test_the_comparison_is_written_as_a_page(tmp_path: Path) -> None:
    a, b = scored(tmp_path / "a", 0.2), scored(tmp_path / "b", 0.1)
    found = compare(a, b)
    page = write_html(tmp_path / "compare.html", found, a, b).read_text()
    assert "A: a, B: b" in page and page.count("B is better</td>") == sum(
        row.better == "B" for row in found.differences
    )
    assert sentence(found) in page


def test_images_that_only_one_has_are_left_out_and_told(tmp_path: Path) -> None:
    found = compare(scored(tmp_path / "a", 0.2, count=40), scored(tmp_path / "b", 0.1, count=30))
    assert found.images == 30 and len(found.only_a) == 10 and "10 images" in table(found)


def test_images_of_one_name_and_other_ground_truth_are_not_compared(tmp_path: Path) -> None:
    """Frames of two recordings are often numbered alike."""
    rows = (scored(tmp_path / "a", 0.2), scored(tmp_path / "b", 0.1))
    cells = (rows[1] / "per_image.csv").read_text()
    (rows[1] / "per_image.csv").write_text(cells.replace(",192,", ",191,", 1))
    with pytest.raises(DataError, match=r"other data: 1 of 40 images .* room0/000 first"):
        compare(*rows)
    a, b = segmented(tmp_path / "c", 0.2), segmented(tmp_path / "d", 0.1)
    with np.load(b / "counts.npz") as file:
        arrays = dict(file)
    arrays["counts"][3, 0, 1, 0] += 1
    np.savez(b / "counts.npz", **arrays)
    with pytest.raises(DataError, match="1 of 12 images .* town3/3 first"):
        compare(a, b)


def test_missing_and_damaged_folders_metrics_and_two_protocols_are_told(tmp_path: Path) -> None:
    a = scored(tmp_path / "a", 0.2)
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes/metrics.json").write_text('{"task": "classification", "counts": {"clips": 1}}')
    for other, metrics, told in (
        (scored(tmp_path / "b", 0.2, protocol="dav2_outdoor"), (), r"plain.*dav2_outdoor"),
        (tmp_path / "gone", (), r"metrics.json: cannot be read"),
        (tmp_path / "classes", (), "scores of classification; depth and segmentation can be compared"),
        (a, ("absrel",), "no metric absrel"),
    ):
        with pytest.raises(DataError, match=told):
            compare(a, other, metrics)
    (a / "metrics.json").write_text("{}")
    with pytest.raises(DataError, match="is not what"):
        compare(a, a)


def test_a_metric_that_the_first_image_lacks_is_compared_over_those_that_have_it(tmp_path: Path) -> None:
    """Rows at a distance exist only where an image has truth there; one that no image has in both is none."""
    near, far = np.full((4, 4), 2.5, np.float32), np.full((4, 4), 4.0, np.float32)
    for name, error in (("a", 1.1), ("b", 1.2)):
        items = [(f"{i}", truth * np.float32(error), truth, truth > 0) for i, truth in enumerate((near, far, far))]
        evaluate(items, PROTOCOLS["plain"], metrics=("distance",)).write(tmp_path / name)
    rows = {row.metric: row for row in compare(tmp_path / "a", tmp_path / "b").differences}
    assert rows["abs_rel@3-5m"].difference == pytest.approx(0.1, abs=1e-6)
    csv = tmp_path / "b/per_image.csv"
    head, first, *rest = csv.read_text().splitlines()
    cells = first.split(",")
    cells[head.split(",").index("abs_rel@2-3m")] = ""
    csv.write_text("\n".join([head, ",".join(cells), *rest]))
    assert "abs_rel@2-3m" not in {row.metric for row in compare(tmp_path / "a", tmp_path / "b").differences}


def test_a_range_that_holds_every_pixel_is_no_further_metric_and_ranges_print_in_order(tmp_path: Path) -> None:
    near, far = np.full((4, 4), 1.5, np.float32), np.full((4, 4), 12.0, np.float32)
    for name, error in (("a", 1.1), ("b", 1.2)):
        for kind, maps in (("one", [near] * 7), ("two", [far, *[near] * 7])):
            items = [(f"{i}", truth * np.float32(error), truth, truth > 0) for i, truth in enumerate(maps)]
            evaluate(items, PROTOCOLS["plain"], metrics=("distance",)).write(tmp_path / kind / name)
    one, two = (compare(tmp_path / kind / "a", tmp_path / kind / "b") for kind in ("one", "two"))
    assert not [row.metric for row in one.differences if "@" in row.metric]
    of_abs_rel = [row.metric for row in two.differences if row.metric.startswith("abs_rel@")]
    assert of_abs_rel == ["abs_rel@1-2m", "abs_rel@10-20m"]
    # Nine metrics of all images, and three at 1 to 2 m of seven; one image alone is at 12 m.
    assert len(two.differences) == 15 and "p corrected for 12 metrics (Holm)" in table(two)
    asked = compare(tmp_path / "one/a", tmp_path / "one/b", ("abs_rel@1-2m",))
    assert [row.metric for row in asked.differences] == ["abs_rel@1-2m"]


def test_names_that_are_formulas_are_compared_as_they_were(tmp_path: Path) -> None:
    truth = np.full((4, 4), 2.0, np.float32)
    for name, error in (("a", 1.1), ("b", 1.2)):
        items = [("=1+1", truth * np.float32(error), truth, truth > 0)]
        evaluate(items, PROTOCOLS["plain"]).write(tmp_path / name)
    assert "'=1+1," in (tmp_path / "a/per_image.csv").read_text() and list(read_rows(tmp_path / "a")) == ["=1+1"]


@pytest.mark.parametrize(("skewed", "level"), [("normal", 0.06), ("exponential", 0.075), ("chisquare", 0.075)])
def test_p_values_of_ten_images_hold_their_level_for_skewed_differences(skewed: str, level: float) -> None:
    """Student's t alone errs in 5, 10 and 13% at 5% (measured); 800 samples of a mean of 0."""
    draw = np.random.default_rng(0)
    values = {
        "normal": draw.normal(size=(10, 800)),
        "exponential": draw.exponential(1, (10, 800)) - 1,
        "chisquare": draw.chisquare(1, (10, 800)) - 1,
    }[skewed]
    metrics = [str(i) for i in range(800)]
    found = bootstrap_means([(str(i), dict(zip(metrics, row, strict=True))) for i, row in enumerate(values)], metrics)
    wrong = np.mean([found[metric].p_value(mean) < 0.05 for metric, mean in zip(metrics, values.mean(0), strict=True)])
    assert 0.02 < wrong < level


def test_coverage_is_not_compared_since_neither_more_nor_less_is_better(tmp_path: Path) -> None:
    for name, error in (("a", 0.1), ("b", 0.2)):
        csv = scored(tmp_path / name, error) / "per_image.csv"
        csv.write_text(csv.read_text().replace("abs_rel", "coverage_predicted@1-2m").replace("sq_rel", "coverage"))
    compared = {row.metric for row in compare(tmp_path / "a", tmp_path / "b").differences}
    assert "rmse" in compared and not any(metric.startswith("coverage") for metric in compared)


def test_a_metric_of_a_plug_in_that_is_not_loaded_has_no_direction(tmp_path: Path) -> None:
    """Less was taken to be better, so that the worse of two systems was called the better one."""
    for name, error in (("a", 0.1), ("b", 0.2)):
        csv = scored(tmp_path / name, error) / "per_image.csv"
        csv.write_text(csv.read_text().replace("abs_rel", "mine"))
    assert "mine" not in {row.metric for row in compare(tmp_path / "a", tmp_path / "b").differences}
    with pytest.raises(DataError, match="no metric mine of known direction"):
        compare(tmp_path / "a", tmp_path / "b", ("mine",))


def test_the_change_of_a_gain_is_a_share_of_the_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AURG has no best value: 0.1 more than 0.2 is half, and 1 - 0.2 is no error."""
    monkeypatch.setattr("densevit.evaluation.scores.METRICS", {"depth": dict(METRICS["depth"])})
    register_metrics("depth", {"percent": "a share in percent"}, "max", 100)
    for name, error in (("a", 0.2), ("b", 0.3)):
        csv = scored(tmp_path / name, error, noise=0) / "per_image.csv"
        csv.write_text(csv.read_text().replace("abs_rel", "aurg_abs_rel").replace("rmse,", "percent,", 1))
    gain, percent = compare(tmp_path / "a", tmp_path / "b", ("aurg_abs_rel", "percent")).differences
    assert gain.better == "B" and gain.relative == pytest.approx(0.5, abs=1e-5)
    assert percent.relative == pytest.approx((percent.b - percent.a) / (100 - percent.a))


def test_a_metric_that_is_no_number_for_one_image_is_compared_over_the_others(tmp_path: Path) -> None:
    """Its means were NaN beside an interval of the others, and Holm's correction took that for a p of 1."""
    a, b = scored(tmp_path / "a", 0.1), scored(tmp_path / "b", 0.2)
    lines = (b / "per_image.csv").read_text().splitlines()
    cells = lines[3].split(",")
    lines[3] = ",".join([*cells[:2], "nan", *cells[3:]])  # of sq_rel
    (b / "per_image.csv").write_text("\n".join(lines) + "\n")
    found = compare(a, b, ("abs_rel", "sq_rel", "rmse"))
    assert {row.metric: row.better for row in found.differences} == {"abs_rel": "A", "sq_rel": "A", "rmse": "A"}
    rows = {name: row["sq_rel"] for name, row in read_rows(a).items() if name != lines[3].split(",")[0]}
    assert found.differences[1].a == pytest.approx(np.mean(list(rows.values()))) and len(rows) == 39
    assert "Left out of sq_rel: 1 of 40 images, where A or B has no finite score" in table(found)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: "".join(text.splitlines(keepends=True)[:20]), "19 images, where metrics.json says 40"),
        (lambda text: text[: text.rindex(",") - 12], "not as long as the first line"),
        (lambda text: text + text.splitlines()[1], "stands in it twice"),
    ],
    ids=["cut between rows", "cut in a row", "a row twice"],
)
def test_a_part_of_the_rows_is_not_compared_as_if_it_were_all(
    tmp_path: Path, damage: Callable[[str], str], told: str
) -> None:
    a, b = scored(tmp_path / "a", 0.2), scored(tmp_path / "b", 0.1)
    rows = b / "per_image.csv"
    rows.write_text(damage(rows.read_text()))
    with pytest.raises(DataError, match=told):
        compare(a, b)


def test_few_images_or_scenes_in_common_say_too_little_of_others(tmp_path: Path) -> None:
    found = compare(scored(tmp_path / "a", 0.2, count=5), scored(tmp_path / "b", 0.1, count=5))
    assert "at least 6 images, and there are 5" in sentence(found) and all(
        row.better is None for row in found.differences
    )
    found = compare(scored(tmp_path / "c", 0.2, rooms=5), scored(tmp_path / "d", 0.1, rooms=5))
    assert "B is better" in table(found) and "about other scenes: it needs at least 6, and there are 5" in table(found)
