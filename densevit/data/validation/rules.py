"""Turns sample statistics into issues: of each sample by itself, and of the dataset as a whole."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from statistics import median

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset, FileDataset, folder_of
from densevit.data.validation.issues import Issue
from densevit.data.validation.sample_stats import InspectedSample, Problem, SampleStats, label_pixels
from densevit.structures import IGNORE

SCALES = (1000.0, 256.0, 5000.0)  # units per metre that maps are stored in: NYU's, KITTI's, TUM's
FAR_FRACTION = 0.2  # of the maps, that may reach beyond the range without a warning
OUTLIER = 30.0  # times the dataset's usual depth
SPARSE = 1e-3  # share of pixels
BORDER_FRACTION = 0.5  # of the images, with a white border of MIN_BORDER pixels
MIN_BORDER = 4
MARKER_SHARE, MARKER_GAP = 2e-3, 1.5  # of the valid pixels; times the next lower value
MIXED_UNITS = 3.5  # times; 1/256, 1/1000 and 1/5000 m differ by 3.9 and more
TINY_OBJECT, TINY_FRACTION = 64, 0.3  # pixels; share of the objects, over which it is reported
# Photographs mostly show the ground in front: depth falls towards the bottom, inverse depth and disparity rise. The
# median rank correlation of depth and row is -0.25 and -0.35 in `rooms` of the mounts robot and hand, where 79% and 84%
# of the maps are below 0, and -0.66 in the Middlebury motorcycle.
INVERSE_CORRELATION = 0.15  # median over the maps
INVERSE_FRACTION = 0.7  # of the maps, whose correlation is positive
INVERSE_MAPS = 5  # that are needed to judge
# Metres: the median depth of photographs, from a desk to a street. Outside, the unit is often wrong.
USUAL_DEPTH = (0.1, 150.0)


def apply_rules(data: Dataset, split: str, samples: Sequence[InspectedSample], classes: int | None) -> Iterator[Issue]:
    """Yield all issues of one dataset. `classes`: how many there are; larger labels except 255 are an error. None does
    not check."""
    medians = [sample.stats.depth_median for sample in samples if sample.stats.depth_median]
    usual = median(medians) if medians else None
    for index, sample in enumerate(samples):
        problems = _sample_problems(data, index, sample.stats, usual, classes)
        for type_, role, reason in (*sample.stats.problems, *problems):
            path = sample.paths.get(role)
            yield Issue(type_, split, reason, str(path or ""), data.names[index], index)
    yield from _other_sizes(data, split, samples)
    yield from _duplicates(data, split, samples)
    yield from _dataset_issues(data, split, samples, usual)
    if isinstance(data, FileDataset) and data.typical_depth is None:
        yield from _mixed_units(data, split, samples)


def _sample_problems(
    data: Dataset, index: int, stats: SampleStats, usual: float | None, classes: int | None
) -> Iterator[Problem]:
    """Yield the problems of one sample."""
    if stats.size is None:
        return
    if data.sizes and stats.size not in data.sizes:
        fit = ", ".join(f"{h} x {w}" for h, w in sorted(data.sizes))
        yield "unusual_size", "image", f"is {stats.size[0]} x {stats.size[1]} (h x w); published are {fit}"
    thumbnail = stats.decoded_thumbnail()
    if thumbnail is not None and int(thumbnail.max()) - int(thumbnail.min()) < 2:
        yield "blank_image", "image", f"has one colour (gray value {int(thumbnail[0])}) all over"
    if stats.labels is not None:
        yield from _label_problems(stats, classes)
    if stats.valid_fraction is not None:
        yield from _depth_problems(data, index, stats, usual)


def _label_problems(stats: SampleStats, classes: int | None) -> Iterator[Problem]:
    largest = stats.largest_label
    if largest is None:
        yield "empty_labels", "labels", "no pixel has a class; all are ignored"
    elif classes is not None and largest >= classes:
        pixels = sum(count for id_, count in stats.labels or () if id_ >= classes and id_ != IGNORE)
        yield (
            "label_beyond_classes",
            "labels",
            f"holds class {largest}; the {classes} classes end at {classes - 1}, and {pixels:,} pixels lie beyond",
        )


def _depth_problems(data: Dataset, index: int, stats: SampleStats, usual: float | None) -> Iterator[Problem]:
    low, high = data.depth_range
    if stats.negative and data.depth_kind(index) != "affine":  # whose zero means nothing
        yield "negative_depth", "depth", f"{stats.negative:,} values are below zero"
    if not stats.valid_fraction:
        yield "empty_depth", "depth", f"no pixel has depth; {_what_fills(stats)}"
        return
    if stats.non_finite:
        yield "unknown_depth", "depth", f"{stats.non_finite:,} values are NaN or infinite"
    if stats.valid_fraction < SPARSE:
        yield "sparse_depth", "depth", f"{stats.valid_fraction:.3%} of the pixels have depth"
    middle = stats.depth_median
    if not low <= middle <= high:
        outside = f"its median is {middle:,.4g} m, outside {low:g} to {high:g} m"
        yield "units", "depth", outside + _guess_unit(middle, low, high)
    elif usual and not usual / OUTLIER <= middle <= usual * OUTLIER:
        yield "units", "depth", f"its median is {middle:,.4g} m, where the others' is {usual:,.4g} m"


def _what_fills(stats: SampleStats) -> str:
    """Return what all values of an empty map are."""
    assert stats.size is not None
    pixels = stats.size[0] * stats.size[1]
    counts = {"NaN or infinite": stats.non_finite, "below zero": stats.negative}
    return next((f"all are {what}" for what, count in counts.items() if count == pixels), "all are zero or unknown")


def _guess_unit(metres: float, low: float, high: float) -> str:
    """Return the unit that would bring the median inside the range."""
    fits = [scale for scale in (1000.0, 100.0) if low <= metres / scale <= high]
    return f"; in {'milli' if fits[0] == 1000 else 'centi'}metres it would be {metres / fits[0]:.3g} m" if fits else ""


def _duplicates(data: Dataset, split: str, samples: Sequence[InspectedSample]) -> Iterator[Issue]:
    """Yield the files with the same bytes under several names; maps only where they have content and the images
    differ."""
    has_content: Mapping[str, Callable[[SampleStats], bool]] = {
        "image": lambda stats: True,
        "depth": lambda stats: bool(stats.valid_fraction),
        "labels": lambda stats: len(stats.labels or ()) > 1,
    }
    for role, counts in has_content.items():
        if role != "image" and data.maps_shared:
            continue
        type_ = f"duplicate_{role}"
        owners: dict[str, list[int]] = defaultdict(list)
        for index, sample in enumerate(samples):
            if role in sample.checksums and counts(sample.stats):
                owners[sample.checksums[role]].append(index)
        for first, *others in owners.values():
            for index in others:
                if role != "image" and samples[first].checksums.get("image") == samples[index].checksums.get("image"):
                    continue
                reason = f"has the bytes of {samples[first].paths[role]} ('{data.names[first]}')"
                yield Issue(type_, split, reason, str(samples[index].paths[role]), data.names[index], index)


def _dataset_issues(
    data: Dataset, split: str, samples: Sequence[InspectedSample], usual: float | None
) -> Iterator[Issue]:
    """Yield the issues that only the dataset as a whole shows."""
    readable = [sample.stats for sample in samples if sample.stats.size]
    borders = [stats.white_border for stats in readable if stats.white_border >= MIN_BORDER]
    if readable and len(borders) >= BORDER_FRACTION * len(readable):
        reason = f"{len(borders):,} of {len(readable):,} images have a white border, {min(borders)} pixels and more"
        yield Issue("white_border", split, reason)
    yield from _class_issues(data, split, readable)
    yield from _segment_issues(split, readable)
    maps = [stats for stats in readable if stats.valid_fraction]
    if maps:
        yield from _depth_issues(data, split, maps, usual)
        yield from _compare_with_typical(data, split, usual, median(stats.valid_fraction or 0.0 for stats in maps))


def _depth_issues(data: Dataset, split: str, maps: Sequence[SampleStats], usual: float | None) -> Iterator[Issue]:
    """Yield the depth that does not look like metres, over all maps."""
    far = [stats for stats in maps if stats.depth_max > data.depth_range[1] * 1.5]
    if far and len(far) > FAR_FRACTION * len(maps):
        reason = (
            f"{len(far):,} of {len(maps):,} maps reach beyond {data.depth_range[1]:g} m by half and more,"
            f" {max(stats.depth_max for stats in far):,.4g} m at most"
        )
        yield Issue("far_depth", split, reason)
    yield from _marker(data, split, maps)
    correlations = [stats.depth_row_correlation for stats in maps if stats.depth_row_correlation is not None]
    rising = sum(correlation > 0 for correlation in correlations)
    if (
        len(correlations) >= INVERSE_MAPS
        and rising >= INVERSE_FRACTION * len(correlations)
        and median(correlations) >= INVERSE_CORRELATION
    ):
        reason = (
            f"values rise towards the bottom of the image in {rising:,} of {len(correlations):,} maps (median rank"
            f" correlation with the row {median(correlations):+.2f}), where the depth of most photographs falls"
        )
        yield Issue("inverse_depth", split, reason)
    low, high = USUAL_DEPTH
    if usual and data.typical_depth is None and not low <= usual <= high:
        fits = [
            scale
            for scale in (1000.0, 256.0, 100.0)
            if low <= (usual * scale if usual < low else usual / scale) <= high
        ]
        factor = f"; `depth_scale` may be {fits[0]:g} times too {'large' if usual < low else 'small'}" if fits else ""
        yield Issue("unusual_depth", split, f"the median depth is {usual:.3g} m{factor}")


def _other_sizes(data: Dataset, split: str, samples: Sequence[InspectedSample]) -> Iterator[Issue]:
    """Yield the depth maps whose size is another share of their image's than that of most; a note where all are
    alike."""
    shares = Counter(_size_share(sample.stats) for sample in samples if sample.stats.depth_size)
    if not shares:
        return
    usual = shares.most_common(1)[0][0]
    for index, sample in enumerate(samples):
        stats = sample.stats
        if stats.size and stats.depth_size and _size_share(stats) != usual:
            reason = "is {} x {}, its image {} x {} (h x w), unlike most".format(*stats.depth_size, *stats.size)
            yield Issue("size_mismatch", split, reason, str(sample.paths["depth"]), data.names[index], index)
    if usual != 1:
        reason = f"depth maps have {usual:g} times the height of their images; each pixel takes the nearest value"
        yield Issue("scaled_depth", split, reason)


def _size_share(stats: SampleStats) -> float:
    return 1.0 if stats.size is None or stats.depth_size is None else round(stats.depth_size[0] / stats.size[0], 3)


def _marker(data: Dataset, split: str, maps: Sequence[SampleStats]) -> Iterator[Issue]:
    """Yield one large value that stands for missing depth: many pixels hold it, and none comes near it."""
    tops = Counter(stats.depth_max for stats in maps if stats.depth_top >= MARKER_SHARE)
    value, count = max(tops.items(), key=lambda item: item[1], default=(0.0, 0))
    holding = [stats for stats in maps if stats.depth_max == value]
    below = max((stats.depth_below_top for stats in holding), default=0.0)
    if count < min(2, len(maps)) or not 0 < below * MARKER_GAP < value:
        return
    stored = value * (getattr(data, "depth_scale", None) or 1.0)
    reason = (
        f"{value:.6g} m ({stored:.6g} as stored) fills {median(s.depth_top for s in holding):.1%} of the valid pixels "
        f"of {len(holding):,} maps, and the next lower value is {below:.3g} m: it marks pixels without measurement"
    )
    yield Issue("invalid_marker", split, reason)


def _mixed_units(data: Dataset, split: str, samples: Sequence[InspectedSample]) -> Iterator[Issue]:
    """Yield the folders whose usual and whose largest depths differ by the same large factor."""
    depths: dict[str, list[SampleStats]] = defaultdict(list)
    for index, sample in enumerate(samples):
        if sample.stats.valid_fraction:
            depths[folder_of(data.names[index])].append(sample.stats)
    usual = {name: median(s.depth_median for s in stats) for name, stats in depths.items()}
    if len(usual) < 2:
        return
    near, far = min(usual, key=lambda name: usual[name]), max(usual, key=lambda name: usual[name])
    largest = {name: max(s.depth_max for s in depths[name]) for name in (near, far)}
    if min(usual[far] / usual[near], largest[far] / largest[near]) >= MIXED_UNITS:
        reason = (
            f"the median depth in '{near}' is {usual[near]:.3g} m (at most {largest[near]:.3g}), in '{far}' "
            f"{usual[far]:.3g} m (at most {largest[far]:.3g}): {usual[far] / usual[near]:.1f} times as much"
        )
        yield Issue("mixed_units", split, reason)


def _class_issues(data: Dataset, split: str, readable: Sequence[SampleStats]) -> Iterator[Issue]:
    """Yield the issues of all label maps together."""
    maps = [stats for stats in readable if stats.labels is not None]
    if maps and all(stats.largest_label is None for stats in maps):
        yield Issue("no_labels", split, f"all {len(maps):,} label maps are ignored altogether")
        return
    pixels = label_pixels(maps)
    if pixels.keys() == {0, IGNORE}:
        ignored = pixels[IGNORE] / sum(pixels.values())
        yield Issue("binary_labels", split, f"{ignored:.0%} of all pixels are 255, which is ignored")
    absent = [name for id_, name in enumerate(data.classes) if id_ not in pixels and id_ != IGNORE]
    if maps and absent:
        names = ", ".join(absent[:8]) + (f" and {len(absent) - 8} more" if len(absent) > 8 else "")
        yield Issue("absent_class", split, f"{len(absent)} of {len(data.classes)} classes: {names}")


def _segment_issues(split: str, readable: Sequence[SampleStats]) -> Iterator[Issue]:
    """Yield the objects that a network cannot see, and segments that the maps do not show."""
    areas = [area for stats in readable for area in stats.objects or ()]
    tiny = sum(area < TINY_OBJECT for area in areas)
    if tiny > TINY_FRACTION * len(areas):
        yield Issue("tiny_objects", split, f"{tiny:,} of {len(areas):,} objects have under {TINY_OBJECT} pixels")
    if hidden := sum(stats.hidden for stats in readable):
        yield Issue("hidden_segments", split, f"{hidden:,} in {sum(s.hidden > 0 for s in readable):,} images")


def _compare_with_typical(data: Dataset, split: str, usual: float | None, valid_fraction: float) -> Iterator[Issue]:
    """Compare a published dataset with what is known of it."""
    if data.typical_depth and usual and not data.typical_depth[0] <= usual <= data.typical_depth[1]:
        low, high = data.typical_depth
        reason = f"the median depth is {usual:.3g} m, where such images have {low:g} to {high:g} m"
        yield Issue("units", split, reason + _guess_scales(usual, low, high))
    if data.typical_density and not data.typical_density[0] <= valid_fraction <= data.typical_density[1]:
        low, high = data.typical_density
        reason = f"{valid_fraction:.0%} of the pixels have depth, where such maps have {low:.0%} to {high:.0%}"
        filled = "; holes seem to be filled" if valid_fraction > high else ""
        yield Issue("density", split, reason + filled)


def _guess_scales(usual: float, low: float, high: float) -> str:
    """Return the pairs of known scales whose mix-up explains the median: stored in one, read in the other."""
    fits = [
        f"1/{stored:g} m read as 1/{read:g} m"
        for stored, read in permutations(SCALES, 2)
        if low <= usual * read / stored <= high
    ]
    return f": perhaps {' or '.join(fits)}" if fits else ""


TOLERANCE = 3.0  # gray values that two thumbnails of one image may differ by
MIN_STD = 4.0  # gray values; thumbnails with less contrast are not compared
ROWS = 512  # thumbnails compared at once: 512 x 24,000 distances are 50 MB


def find_leaks(
    train: Dataset,
    train_samples: Sequence[InspectedSample],
    other: Dataset,
    split: str,
    samples: Sequence[InspectedSample],
) -> Iterator[Issue]:
    """Yield what an evaluation split shares with the training set."""
    owners = {s.checksums["image"]: index for index, s in enumerate(train_samples) if "image" in s.checksums}
    same = {i: owners[s.checksums["image"]] for i, s in enumerate(samples) if s.checksums.get("image") in owners}
    similar = {i: j for i, j in _near_duplicates(train_samples, samples).items() if i not in same}
    for pairs, how in ((same, "is"), (similar, "shows the same as")):
        for i, j in pairs.items():
            path = samples[i].paths.get("image", "")
            reason = f"{how} the training image {train_samples[j].paths.get('image') or train.names[j]}"
            yield Issue("leaked_image", split, reason, str(path), other.names[i], i)
    scenes = {train.scene(index) for index in range(len(train))} - {""}
    shared: dict[str, list[int]] = {}
    for index in range(len(other)):
        if other.scene(index) in scenes:
            shared.setdefault(other.scene(index), []).append(index)
    for scene, members in shared.items():
        reason = f"scene '{scene}' is in the training set, too; {len(members):,} images of it are evaluated on"
        path = samples[members[0]].paths.get("image", "")
        yield Issue("leaked_scene", split, reason, str(path), other.names[members[0]], members[0])


def _near_duplicates(train: Sequence[InspectedSample], others: Sequence[InspectedSample]) -> dict[int, int]:
    """Map each position in `others` to that in `train` of a sample with the same thumbnail."""
    (left, train_index), (right, other_index) = _thumbnails(train), _thumbnails(others)
    train_of: dict[int, int] = {}
    for start in range(0, len(right), ROWS):
        block = right[start : start + ROWS]
        # |a - b|^2 = |a|^2 - 2ab + |b|^2 finds the candidates in one product of matrices.
        distances = (block**2).sum(1)[:, None] - 2 * block @ left.T + (left**2).sum(1)
        for i, j in np.argwhere(distances < 256 * TOLERANCE**2):
            if np.abs(block[i] - left[j]).max() <= TOLERANCE:
                train_of.setdefault(other_index[start + i], train_index[j])
    return train_of


def _thumbnails(samples: Sequence[InspectedSample]) -> tuple[Float32[np.ndarray, "n 256"], list[int]]:
    """Return the thumbnails with enough contrast, and their positions in `samples`."""
    decoded = {i: sample.stats.decoded_thumbnail() for i, sample in enumerate(samples)}
    usable = {i: thumbnail for i, thumbnail in decoded.items() if thumbnail is not None and thumbnail.std() > MIN_STD}
    return np.array(list(usable.values()), np.float32).reshape(-1, 256), list(usable)
