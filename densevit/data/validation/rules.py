"""What the looks at a data set mean: findings on each sample, and on the set as a whole."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from statistics import median

from densevit.data.datasets.base import Dataset
from densevit.data.validation.issues import Finding
from densevit.data.validation.sample_stats import Look, Seen, label_pixels
from densevit.structures import IGNORE

SCALES = (1000.0, 256.0, 5000.0)  # units per metre that maps are stored in: NYU's, KITTI's, TUM's
FAR = 0.2  # of the samples' largest depths over the range before it is said
ODD = 30.0  # times the set's usual depth
SPARSE = 1e-3  # share of pixels
FRAMED = 0.5  # share of images with a white frame, of 4 pixels at least
FRAME = 4


def apply_rules(data: Dataset, split: str, seen: Sequence[Seen], classes: int | None) -> Iterator[Finding]:
    """All findings of one data set.

    Args:
        classes: how many there are; labels from it on, 255 apart, are beyond them. None does not check.
    """
    usual = _usual(seen)
    for index, one in enumerate(seen):
        for kind, role, reason in (*one.look.problems, *_sample(data, one.look, usual, classes)):
            path = one.paths.get(role)
            yield Finding(kind, split, reason, str(path or ""), data.names[index], index)
    yield from _twins(data, split, seen)
    yield from _whole(data, split, seen, usual)


def _usual(seen: Sequence[Seen]) -> float | None:
    """The middle of the samples' median depths."""
    medians = [one.look.median for one in seen if one.look.median]
    return median(medians) if medians else None


def _sample(data: Dataset, look: Look, usual: float | None, classes: int | None) -> Iterator[tuple[str, str, str]]:
    """Kind, role and reason of what one look tells."""
    if look.size is None:
        return
    if data.sizes and look.size not in data.sizes:
        fit = ", ".join(f"{h} x {w}" for h, w in sorted(data.sizes))
        yield "unusual_size", "image", f"is {look.size[0]} x {look.size[1]} (h x w); published are {fit}"
    thumb = look.thumb()
    if thumb is not None and int(thumb.max()) - int(thumb.min()) < 2:
        yield "blank_image", "image", f"has one colour (gray value {int(thumb[0])}) all over"
    if look.labels is not None:
        yield from _labels(look, classes)
    if look.share is not None:
        yield from _depth(data, look, usual)


def _labels(look: Look, classes: int | None) -> Iterator[tuple[str, str, str]]:
    largest = look.largest_label
    if largest is None:
        yield "empty_labels", "labels", "no pixel has a class; all are ignored"
    elif classes is not None and largest >= classes:
        pixels = sum(count for id_, count in look.labels or () if id_ >= classes and id_ != IGNORE)
        yield (
            "label_beyond_classes",
            "labels",
            f"holds class {largest}; the {classes} classes end at {classes - 1}, and {pixels:,} pixels lie beyond",
        )


def _depth(data: Dataset, look: Look, usual: float | None) -> Iterator[tuple[str, str, str]]:
    low, high = data.depth_range
    if look.negative:
        yield "negative_depth", "depth", f"{look.negative:,} values are below zero"
    if not look.share:
        yield "empty_depth", "depth", f"no pixel has depth; {_all_of(look)}"
        return
    if look.unknown:
        yield "unknown_depth", "depth", f"{look.unknown:,} values are NaN or infinite"
    if look.share < SPARSE:
        yield "sparse_depth", "depth", f"{look.share:.3%} of the pixels have depth"
    if not low <= look.median <= high:
        outside = f"its median is {look.median:,.4g} m, outside {low:g} to {high:g} m"
        yield "units", "depth", outside + _factor(look.median, low, high)
    elif usual and not usual / ODD <= look.median <= usual * ODD:
        yield "units", "depth", f"its median is {look.median:,.4g} m, where the others' is {usual:,.4g} m"


def _all_of(look: Look) -> str:
    """What an empty map is full of."""
    assert look.size is not None
    pixels = look.size[0] * look.size[1]
    counts = {"NaN or infinite": look.unknown, "below zero": look.negative}
    return next((f"all are {what}" for what, count in counts.items() if count == pixels), "all are zero or unknown")


def _factor(metres: float, low: float, high: float) -> str:
    """What the unit may be instead, in words: round numbers that bring the median inside the range."""
    fits = [scale for scale in (1000.0, 100.0) if low <= metres / scale <= high]
    return f"; in {'milli' if fits[0] == 1000 else 'centi'}metres it would be {metres / fits[0]:.3g} m" if fits else ""


def _twins(data: Dataset, split: str, seen: Sequence[Seen]) -> Iterator[Finding]:
    """Files of one content under several names; a map only where it tells something, and the images differ."""
    telling: Mapping[str, Callable[[Look], bool]] = {
        "image": lambda look: True,
        "depth": lambda look: bool(look.share),
        "labels": lambda look: len(look.labels or ()) > 1,
    }
    for role, tells in telling.items():
        if role != "image" and data.maps_shared:
            continue
        kind = f"duplicate_{role}"
        owners: dict[str, list[int]] = defaultdict(list)
        for index, one in enumerate(seen):
            if role in one.sums and tells(one.look):
                owners[one.sums[role]].append(index)
        for first, *others in owners.values():
            for index in others:
                if role != "image" and seen[first].sums.get("image") == seen[index].sums.get("image"):
                    continue
                reason = f"has the bytes of {seen[first].paths[role]} ('{data.names[first]}')"
                yield Finding(kind, split, reason, str(seen[index].paths[role]), data.names[index], index)


def _whole(data: Dataset, split: str, seen: Sequence[Seen], usual: float | None) -> Iterator[Finding]:
    """What only the set as a whole tells."""
    looks = [one.look for one in seen if one.look.size]
    framed = [look.border for look in looks if look.border >= FRAME]
    if looks and len(framed) >= FRAMED * len(looks):
        reason = f"{len(framed):,} of {len(looks):,} images have a white frame, {min(framed)} pixels and more"
        yield Finding("white_border", split, reason)
    yield from _classes(data, split, looks)
    with_depth = [look for look in looks if look.share]
    far = [look for look in with_depth if look.high > data.depth_range[1] * 1.5]
    if far and len(far) > FAR * len(with_depth):
        reason = (
            f"{len(far):,} of {len(with_depth):,} maps reach beyond {data.depth_range[1]:g} m by half and more,"
            f" {max(look.high for look in far):,.4g} m at most"
        )
        yield Finding("far_depth", split, reason)
    if with_depth:
        yield from _against_typical(data, split, usual, median(look.share or 0.0 for look in with_depth))


def _classes(data: Dataset, split: str, looks: Sequence[Look]) -> Iterator[Finding]:
    """What all label maps together tell."""
    maps = [look for look in looks if look.labels is not None]
    if maps and all(look.largest_label is None for look in maps):
        yield Finding("no_labels", split, f"all {len(maps):,} label maps are ignored altogether")
        return
    pixels = label_pixels(maps)
    if pixels.keys() == {0, IGNORE}:
        ignored = pixels[IGNORE] / sum(pixels.values())
        yield Finding("binary_labels", split, f"{ignored:.0%} of all pixels are 255, which is ignored")
    absent = [name for id_, name in enumerate(data.classes) if id_ not in pixels and id_ != IGNORE]
    if maps and absent:
        told = ", ".join(absent[:8]) + (f" and {len(absent) - 8} more" if len(absent) > 8 else "")
        yield Finding("absent_class", split, f"{len(absent)} of {len(data.classes)} classes: {told}")


def _against_typical(data: Dataset, split: str, usual: float | None, share: float) -> Iterator[Finding]:
    """How the set compares to what is known of its kind."""
    if data.typical_depth and usual and not data.typical_depth[0] <= usual <= data.typical_depth[1]:
        low, high = data.typical_depth
        reason = f"the median depth is {usual:.3g} m, where such images have {low:g} to {high:g} m"
        yield Finding("units", split, reason + _scales(usual, low, high))
    if data.typical_density and not data.typical_density[0] <= share <= data.typical_density[1]:
        low, high = data.typical_density
        reason = f"{share:.0%} of the pixels have depth, where such maps have {low:.0%} to {high:.0%}"
        filled = "; holes seem to be filled" if share > high else ""
        yield Finding("density", split, reason + filled)


def _scales(usual: float, low: float, high: float) -> str:
    """Pairs of known scales whose mix-up explains the median: stored in one, read in the other."""
    fits = [
        f"1/{stored:g} m read as 1/{read:g} m"
        for stored, read in permutations(SCALES, 2)
        if low <= usual * read / stored <= high
    ]
    return f": perhaps {' or '.join(fits)}" if fits else ""
