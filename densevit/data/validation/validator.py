"""Validates datasets: every sample of every split once, by all cores; returns the issues and a summary."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from densevit.data.datasets.base import Dataset
from densevit.data.datasets.folder import Folder
from densevit.data.folder_facts import guesses
from densevit.data.index.paths import MissingItem, collect_missing
from densevit.data.loading.prefetch import prefetch
from densevit.data.loading.workers import num_cores
from densevit.data.validation.cache import StatsCache, compare_checksums, read_checksums, write_checksums
from densevit.data.validation.inspect_sample import inspect_sample
from densevit.data.validation.issues import LEVELS, Issue
from densevit.data.validation.rules import apply_rules, find_leaks
from densevit.data.validation.sample_stats import InspectedSample, label_pixels
from densevit.errors import DensevitError
from densevit.structures import IGNORE
from densevit.utils.process import poll

TRAIN = "train"

Progress = Callable[[Iterable[InspectedSample], int, str], Iterable[InspectedSample]]
"""Wraps the samples of a split, given their number and the split's name, to show progress."""


@dataclass(frozen=True)
class SplitToValidate:
    """A split to validate: how to open it, and where to cache its statistics."""

    split: str
    open: Callable[[], Dataset]
    cache: Path | None = None
    classes: int | None = None  # of `labels`; None does not check them
    optional: bool = False  # a split that need not be there


@dataclass(frozen=True)
class OpenSplit:
    """A split that could be opened, with the items that are missing from it."""

    request: SplitToValidate
    data: Dataset
    missing: Sequence[MissingItem]


@dataclass(frozen=True)
class SplitSummary:
    """One split in numbers."""

    split: str
    samples: int
    readable: int
    sizes: Mapping[str, int]  # "480 x 640" -> images
    depth: tuple[float, float, float] | None = None  # metres: minimum, median of the samples' medians, maximum
    valid_fraction: float | None = None  # of the pixels, that have depth; the samples' median
    classes: int | None = None  # that occur in the labels
    labelled_fraction: float | None = None  # of all pixels, that have a class
    objects: int | None = None  # single ones of things; None without segments
    object_side: float | None = None  # median of the square roots of their pixels
    small_objects: float | None = None  # share of them under 32 x 32 pixels, as COCO's scores count
    tiny_objects: float | None = None  # share of them under 8 x 8 pixels


@dataclass(frozen=True)
class ValidationReport:
    """The result of a validation."""

    summaries: Sequence[SplitSummary]
    issues: Sequence[Issue]  # errors first
    seconds: float
    data: Mapping[str, Dataset] = field(default_factory=dict)  # split -> the open dataset

    @property
    def samples(self) -> int:
        return sum(summary.samples for summary in self.summaries)

    @property
    def ok(self) -> bool:
        """No errors; there may be warnings."""
        return not any(issue.level == "error" for issue in self.issues)


def validate(
    splits: Iterable[SplitToValidate],
    *,
    threads: int | None = None,
    checksums: Path | None = None,
    ignore: Collection[str] = (),
    progress: Progress = lambda samples, total, split: samples,
) -> ValidationReport:
    """Read every sample once. Raises DataError if `checksums` is not a list of SHA-256 sums.

    Args:
        threads: default: one a core.
        checksums: recorded SHA-256 sums to compare with; written if the file does not exist.
        ignore: types of issues to leave out.
        progress: wraps the samples of a split, to show progress.
    """
    start = time.monotonic()
    recorded = read_checksums(checksums) if checksums is not None and checksums.is_file() else None
    issues: list[Issue] = []
    opened: list[OpenSplit] = []
    for request in splits:
        _open(request, opened, issues)
    inspected: dict[str, list[InspectedSample]] = {}
    for one in opened:
        cache = StatsCache(one.request.cache, one.data.table, one.data.version)
        split = one.request.split
        samples = _inspect(one.data, cache, threads or num_cores())
        try:
            inspected[split] = list(progress(samples, len(one.data), split))
        finally:
            cache.save()
        issues += [Issue(item.kind, split, item.reason, item.where) for item in one.missing]
        issues += apply_rules(one.data, split, inspected[split], one.request.classes)
        issues += compare_checksums(split, one.data.names, inspected[split], recorded or {})
    issues += [*_find_leaks(opened, inspected), *_guesses(opened)]
    if checksums is not None and recorded is None:
        write_checksums(checksums, [sample for samples_of in inspected.values() for sample in samples_of])
    shown = [issue for issue in issues if issue.type not in ignore]
    return ValidationReport(
        [summarize(one.request.split, inspected[one.request.split]) for one in opened],
        sorted(shown, key=lambda issue: LEVELS.index(issue.level)),
        time.monotonic() - start,
        {one.request.split: one.data for one in opened},
    )


def summarize(split: str, samples: Sequence[InspectedSample]) -> SplitSummary:
    readable = [sample.stats for sample in samples if sample.stats.size]
    sizes = Counter(f"{stats.size[0]} x {stats.size[1]}" for stats in readable if stats.size)
    numbers: dict[str, Any] = {}
    if maps := [stats for stats in readable if stats.valid_fraction]:
        numbers["depth"] = (
            min(stats.depth_min for stats in maps),
            median(stats.depth_median for stats in maps),
            max(stats.depth_max for stats in maps),
        )
        numbers["valid_fraction"] = median(stats.valid_fraction or 0.0 for stats in maps)
    if pixels := label_pixels(readable):
        numbers["classes"] = len(pixels.keys() - {IGNORE})
        total = sum(pixels.values())
        numbers["labelled_fraction"] = (total - pixels.get(IGNORE, 0)) / total
    if any(stats.objects is not None for stats in readable):
        areas = [area for stats in readable for area in stats.objects or ()]
        numbers["objects"] = len(areas)
        if areas:
            numbers["object_side"] = median(areas) ** 0.5
            for kind, side in (("small", 32), ("tiny", 8)):
                numbers[f"{kind}_objects"] = sum(area < side * side for area in areas) / len(areas)
    return SplitSummary(split, len(samples), len(readable), dict(sizes.most_common()), **numbers)


def _open(request: SplitToValidate, opened: list[OpenSplit], issues: list[Issue]) -> None:
    type_ = "no_split" if request.optional else "unopened"
    with collect_missing() as missing:
        try:
            data = request.open()
        except DensevitError as error:
            issues.append(Issue(type_, request.split, str(error)))
            return
    opened.append(OpenSplit(request, data, missing))
    if not len(data):
        issues.append(Issue(type_, request.split, "not one of its samples is there"))


def _inspect(data: Dataset, cache: StatsCache, threads: int) -> Iterator[InspectedSample]:
    """Yield the samples in order; decoding and hashing release the interpreter's lock, so threads are enough."""
    samples = prefetch(lambda i: inspect_sample(data, i, cache), range(len(data)), threads=threads, ahead=4 * threads)
    for count, sample in enumerate(samples, 1):
        yield sample
        poll(f"stopped after {count} of {len(data)} samples; their statistics are cached.")


def _guesses(opened: Sequence[OpenSplit]) -> Iterable[Issue]:
    """Return what `init` would guess of users' folders, once for each folder."""
    issues: dict[tuple[Path, str], Issue] = {}
    for one in opened:
        data = one.data
        if isinstance(data, Folder) and len(data):
            for type_, reason in guesses(data):
                issues.setdefault((data.root, type_), Issue(type_, one.request.split, reason))
    return issues.values()


def _find_leaks(opened: Sequence[OpenSplit], inspected: Mapping[str, Sequence[InspectedSample]]) -> Iterator[Issue]:
    for train in (one for one in opened if is_train(one.request.split)):
        for one in opened:
            split = one.request.split
            if not is_train(split):
                yield from find_leaks(train.data, inspected[train.request.split], one.data, split, inspected[split])


def is_train(split: str) -> bool:
    """Return whether a split, or a source of a mixture (`train/nyu`), is trained on."""
    return split.partition("/")[0] == TRAIN
