"""The examination: every sample of every split once, in all cores, and everything that was found."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from densevit.data.datasets.base import Dataset
from densevit.data.index.paths import MissingItem, collect_missing
from densevit.data.loading.prefetch import prefetch
from densevit.data.validation.cache import StatsCache
from densevit.data.validation.checksums import changed, read_sums, write_sums
from densevit.data.validation.inspect_sample import inspect_sample
from densevit.data.validation.issues import LEVELS, Finding
from densevit.data.validation.leakage import leaks
from densevit.data.validation.rules import apply_rules
from densevit.data.validation.sample_stats import Look, Seen, label_pixels
from densevit.errors import DensevitError
from densevit.structures import IGNORE
from densevit.utils.signals import poll

TRAIN = "train"


@dataclass(frozen=True)
class SplitToValidate:
    """A split to examine: how to open it, and where to remember what was seen of it."""

    split: str
    open: Callable[[], Dataset]
    memory: Path | None = None
    classes: int | None = None  # of `labels`; None does not check them
    optional: bool = False  # a split that need not be there


@dataclass(frozen=True)
class Opened:
    """A split that could be opened, with what it lacks."""

    patient: SplitToValidate
    data: Dataset
    lacks: Sequence[MissingItem]


@dataclass(frozen=True)
class Summary:
    """One split in numbers."""

    split: str
    samples: int
    readable: int
    sizes: Mapping[str, int]  # "480 x 640" -> images
    depth: tuple[float, float, float] | None  # metres: the least, the samples' median, the largest
    share: float | None  # of pixels with depth, in the median
    classes: int | None = None  # that occur in the labels
    labelled: float | None = None  # share of pixels with a class, of all together


@dataclass(frozen=True)
class ValidationReport:
    """All that was found."""

    summaries: Sequence[Summary]
    findings: Sequence[Finding]  # faults first
    seconds: float
    data: Mapping[str, Dataset] = field(default_factory=dict)  # split -> the open data set

    @property
    def samples(self) -> int:
        return sum(summary.samples for summary in self.summaries)

    @property
    def healthy(self) -> bool:
        return not any(finding.level == "fault" for finding in self.findings)


def examine(
    patients: Iterable[SplitToValidate],
    *,
    threads: int | None = None,
    sums: Path | None = None,
    ignore: Collection[str] = (),
    progress: Callable[[Iterable[Seen], int, str], Iterable[Seen]] = lambda seen, total, split: seen,
) -> ValidationReport:
    """Looks at every sample once.

    Args:
        threads: default: one a core.
        sums: recorded sha256 sums to compare with; written where the file is not there.
        ignore: kinds of findings to leave out.
        progress: wraps the looks at a split, to show how far they are.

    Raises:
        DataError: `sums` is no list of sums.
    """
    start = time.monotonic()
    recorded = read_sums(sums) if sums is not None and sums.is_file() else None
    findings: list[Finding] = []
    opened: list[Opened] = []
    for patient in patients:
        _open(patient, opened, findings)
    seen: dict[str, list[Seen]] = {}
    for one in opened:
        memory = StatsCache(one.patient.memory, one.data.table)
        split = one.patient.split
        looks = _looks(one.data, memory, threads or cores())
        try:
            seen[split] = list(progress(looks, len(one.data), split))
        finally:
            memory.save()
        findings += [Finding(lack.kind, split, lack.reason, lack.where) for lack in one.lacks]
        findings += apply_rules(one.data, split, seen[split], one.patient.classes)
        findings += changed(split, one.data.names, seen[split], recorded or {})
    findings += _leaks(opened, seen)
    if sums is not None and recorded is None:
        write_sums(sums, [look for looks_of in seen.values() for look in looks_of])
    kept = [finding for finding in findings if finding.kind not in ignore]
    return ValidationReport(
        [summarise(one.patient.split, seen[one.patient.split]) for one in opened],
        sorted(kept, key=lambda finding: LEVELS.index(finding.level)),
        time.monotonic() - start,
        {one.patient.split: one.data for one in opened},
    )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def summarise(split: str, seen: Sequence[Seen]) -> Summary:
    looks = [one.look for one in seen if one.look.size]
    sizes: dict[str, int] = {}
    for look in looks:
        assert look.size is not None
        name = f"{look.size[0]} x {look.size[1]}"
        sizes[name] = sizes.get(name, 0) + 1
    deep = [look for look in looks if look.share]
    depth = None
    if deep:
        depth = (min(k.low for k in deep), median(k.median for k in deep), max(k.high for k in deep))
    share = median(k.share or 0.0 for k in deep) if deep else None
    sizes = dict(sorted(sizes.items(), key=lambda i: -i[1]))
    return Summary(split, len(seen), len(looks), sizes, depth, share, *_labelled(looks))


def _labelled(looks: Sequence[Look]) -> tuple[int | None, float | None]:
    """How many classes occur, and in which share of the pixels."""
    pixels = label_pixels(looks)
    if not pixels:
        return None, None
    known = sum(count for id_, count in pixels.items() if id_ != IGNORE)
    return len(pixels.keys() - {IGNORE}), known / sum(pixels.values())


def _open(patient: SplitToValidate, opened: list[Opened], findings: list[Finding]) -> None:
    kind = "no_split" if patient.optional else "unopened"
    with collect_missing() as lacks:
        try:
            data = patient.open()
        except DensevitError as error:
            findings.append(Finding(kind, patient.split, str(error)))
            return
    opened.append(Opened(patient, data, lacks))
    if not len(data):
        findings.append(Finding(kind, patient.split, "not one of its samples is there"))


def _looks(data: Dataset, memory: StatsCache, threads: int) -> Iterator[Seen]:
    """The samples in order; decoding and hashing release the interpreter's lock, so threads are enough."""

    seen = prefetch(lambda i: inspect_sample(data, i, memory), range(len(data)), threads=threads, ahead=4 * threads)
    for count, one in enumerate(seen, 1):
        yield one
        poll(f"stopped after {count} of {len(data)} samples; their results are cached.")


def _leaks(opened: Sequence[Opened], seen: Mapping[str, Sequence[Seen]]) -> Iterator[Finding]:
    train = next((one.data for one in opened if one.patient.split == TRAIN), None)
    if train is None:
        return
    for one in opened:
        split = one.patient.split
        if split != TRAIN:
            yield from leaks(train, seen[TRAIN], one.data, split, seen[split])
