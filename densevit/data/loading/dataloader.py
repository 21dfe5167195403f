"""The data loaders: endless augmented batches to train on, and every sample exactly once to evaluate on."""

import logging
import math
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from densevit.data.datasets.base import Dataset
from densevit.data.loading.augmented import AugmentedDataset, describe_with_files, with_sample_name
from densevit.data.loading.clips import Clips, Stills
from densevit.data.loading.collate import collate, collate_by_size
from densevit.data.loading.feature_cache import FeatureCache
from densevit.data.loading.sampler import DrawOrder, InfiniteBatchSampler, SampleKey, draw_order
from densevit.data.loading.workers import WorkerProgress, run_jobs
from densevit.data.transforms.affine import Transform
from densevit.errors import ConfigError, DataError
from densevit.structures import Batch, Sample

log = logging.getLogger(__name__)

TIMEOUT = 300.0  # seconds a batch may take: network disks pause for a minute now and then
OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class _TrainingJob:
    """Runs in the workers: sample keys -> batch, and the samples that were substituted: (epoch, error)."""

    samples: AugmentedDataset
    clips: Clips | Stills
    order: DrawOrder
    tries: int
    features: FeatureCache | None

    def __call__(self, progress: WorkerProgress, keys: list[SampleKey]) -> tuple[Batch, list[tuple[int, str]]]:
        skipped: list[tuple[int, str]] = []
        clips = keys[:: self.clips.length]  # the frames of a clip have one key
        samples, indices = zip(*(pair for key in clips for pair in self._read(progress, key, skipped)), strict=True)
        batch = replace(collate(samples, indices), clip_length=self.clips.length)
        if self.features is not None:
            batch = replace(batch, features=self.features.read([s.image for s in samples], batch.names))
        return batch, skipped

    def _read(
        self, progress: WorkerProgress, key: SampleKey, skipped: list[tuple[int, str]]
    ) -> list[tuple[Sample, int]]:
        """Return the frames of the clip of a key, with their indices.

        If one is unreadable and may be skipped, the next clip in the epoch's order.
        """
        for step in range(self.tries):
            tried = self.order.substitute(key, step) if step else key  # its seed, too, may draw another cutmix partner
            frames = []
            try:
                for index in self.clips.frames(tried[1]):
                    with progress.reading(index):
                        frames.append((self.samples.read(index, tried), index))
                return frames
            except DataError as error:
                if self.tries == 1:
                    raise
                skipped.append((key[0], str(error)))
        raise DataError(f"none of the {self.tries} training samples can be read. The last one: {skipped[-1][1]}")


class TrainLoader:
    """Endless micro-batches of one rank, which depend on the seed and `start` only, not on the workers.

    With `clips`, clips are drawn and augmented in place of samples, all frames of one alike, and a batch holds the
    frames of each one behind the other (`Batch.clip_length`). `close` ends the workers. Raises ConfigError if
    `batch_size` cannot be shared evenly, or a micro-batch holds no whole number of clips; while iterating DataError, if
    a sample is unreadable, samples differ in size, or a worker died or hangs.

    Args, beside those that are keys of `data` in a config:
        batch_size: samples of an optimiser step, over all ranks and accumulated micro-batches.
        start: samples seen before, over all ranks.
        views: augmentations of a sample, which epochs take in turn; None: another in every epoch.
        features: of all these views.
        clips: of `dataset`.

    Attributes:
        skipped: unreadable samples that were substituted, per epoch.
    """

    def __init__(
        self,
        dataset: Dataset,
        transform: Transform,
        *,
        seed: int,
        batch_size: int,
        grad_accum_steps: int = 1,
        rank: int = 0,
        world_size: int = 1,
        start: int = 0,
        workers: int = 0,
        timeout: float = TIMEOUT,
        pin: bool = False,
        on_corrupt: OnError = "raise",
        max_corrupt_fraction: float = 0.001,
        views: int | None = None,
        features: FeatureCache | None = None,
        clips: Clips | None = None,
    ) -> None:
        drawn = clips or Stills(dataset)
        self.sources = [source.name for source in dataset.sources]
        self.order = draw_order(dataset, drawn, seed, batch_size)
        sampler = InfiniteBatchSampler(
            len(drawn), seed=seed, batch_size=batch_size, grad_accum_steps=grad_accum_steps, rank=rank,
            world_size=world_size, start=start, order=self.order,
        )  # fmt: skip
        if sampler.micro_batch_size % drawn.length:
            raise ConfigError(
                f"batch_size: {batch_size} images are micro-batches of {sampler.micro_batch_size}, which is no "
                f"multiple of the {drawn.length} frames of a clip."
            )
        self.share = math.ceil(len(drawn) / world_size)
        self.allowed = math.ceil(max_corrupt_fraction * self.share)
        self.skipped: Counter[int] = Counter()
        samples = AugmentedDataset(dataset, transform, seed, views)
        tries = len(drawn) if on_corrupt == "skip" else 1
        self.batches = run_jobs(
            sampler,
            _TrainingJob(samples, drawn, self.order, tries, features),
            workers=workers,
            timeout=timeout,
            describe=partial(describe_with_files, dataset),
            pin=pin,
        )

    def drawn(self, samples: int) -> Mapping[str, int]:
        """Return how many of the first samples of the run, over all ranks, are of each data set of a mixture."""
        return dict(zip(self.sources, self.order.counts(samples), strict=True))

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch, skipped = next(self.batches)
        for epoch, fault in skipped:
            self.skipped[epoch] += 1
            log.warning("skipped: %s", fault)
            if self.skipped[epoch] > self.allowed:
                self.close()
                raise DataError(
                    f"{self.skipped[epoch]} unreadable samples in epoch {epoch}, where {self.allowed} of about "
                    f"{self.share} may be skipped. The last one: {fault}"
                )
        return batch

    def close(self) -> None:
        self.batches.close()


class EvalLoader:
    """Every sample of this rank exactly once, in order and at its own size; neighbours of one size share a batch.

    Each `iter()` is a fresh pass. Its length is its number of samples, not of batches, which nobody knows before
    reading. The ranks' shares are disjoint and cover the data set; they differ by at most one sample.

    Args:
        clips: the indices of frames that are one batch each, in place of `batch_size`.
        on_corrupt: skip leaves unreadable samples out with a warning, up to `max_corrupt_fraction` of this rank's.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        workers: int = 0,
        timeout: float = TIMEOUT,
        pin: bool = False,
        clips: Sequence[Sequence[int]] | None = None,
        on_corrupt: OnError = "raise",
        max_corrupt_fraction: float = 0.001,
    ) -> None:
        self.dataset, self.clips = dataset, clips is not None
        length = len(dataset) if clips is None else len(clips)
        share = range(length * rank // world_size, length * (rank + 1) // world_size)
        self.jobs: list[Sequence[int]] = (
            [share[i : i + batch_size] for i in range(0, len(share), batch_size)]
            if clips is None
            else [clips[i] for i in share]
        )
        self.workers, self.timeout, self.pin = workers, timeout, pin
        self.skip, self.max_corrupt_fraction = on_corrupt == "skip", max_corrupt_fraction

    def __len__(self) -> int:
        return sum(map(len, self.jobs))

    def __iter__(self) -> Generator[Batch, None, None]:
        batches = run_jobs(
            self.jobs,
            partial(_evaluation_batches, self.dataset, self.clips, self.skip),
            workers=min(self.workers, len(self.jobs)),
            timeout=self.timeout,
            describe=partial(describe_with_files, self.dataset),
            pin=self.pin,
        )
        skipped = 0
        with closing(batches):
            for same_size, faults in batches:
                for fault in faults:
                    skipped += 1
                    log.warning("not validated: %s", fault)
                    refuse_more_skipped(skipped, len(self), self.max_corrupt_fraction, fault)
                yield from same_size


def refuse_more_skipped(count: int, total: int, max_fraction: float, last: str) -> None:
    """Raise DataError if more of a validation was skipped than may be. `last`: the error of the last one."""
    if count > (allowed := math.ceil(max_fraction * total)):
        raise DataError(
            f"{count} unreadable samples in a validation, where {allowed} of {total} may be skipped. "
            f"The last one: {last}"
        )


def _evaluation_batches(
    dataset: Dataset, clips: bool, skip: bool, progress: WorkerProgress, indices: Sequence[int]
) -> tuple[list[Batch], list[str]]:
    """Read, in a worker, the samples of these indices as batches of one size each; return the errors of those that were
    skipped, too."""
    samples, faults = {}, []
    for index in indices:
        try:
            with progress.reading(index), with_sample_name(dataset, index):
                samples[index] = dataset.read(index)
        except DataError as error:
            if not skip:
                raise
            faults.append(str(error))
    batches = collate_by_size(list(samples.values()), list(samples))
    return [replace(batch, clip_length=len(batch)) if clips else batch for batch in batches], faults
