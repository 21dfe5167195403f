"""An infinite batch sampler whose order is a function of the seed; a position in it is one integer."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import Dataset
from densevit.data.loading.clips import Clips, Stills
from densevit.errors import ConfigError

SampleKey = tuple[int, int]
"""(epoch, index) of a sample; it also seeds the sample's augmentation."""


class EpochOrder:
    """One permutation of `range(length)` per epoch: position p holds `permutation(seed, p // length)[p % length]`."""

    def __init__(self, length: int, seed: int, stream: tuple[int, ...] = ()) -> None:
        """
        Args:
            stream: tells the permutations of several data sets of one run apart.
        """
        self.length, self.seed, self.stream = length, seed, stream

    def key(self, position: int) -> SampleKey:
        epoch, offset = divmod(position, self.length)
        return epoch, int(permutation(self.seed, epoch, self.length, self.stream)[offset])

    def substitute(self, key: SampleKey, steps: int) -> SampleKey:
        """Return the key that replaces one whose sample is unreadable: `steps` further on in the same epoch's
        permutation, which wraps around."""
        epoch, index = key
        order = permutation(self.seed, epoch, self.length, self.stream)
        offset = int(np.flatnonzero(order == index)[0])
        return epoch, int(order[(offset + steps) % self.length])

    def counts(self, position: int) -> Sequence[int]:
        """Return how many of the samples before a position come from each data set of a mixture; none without one."""
        return ()


CHUNK = 1024  # groups whose draws are computed together

Places = Int64[np.ndarray, " places"]


class MixtureOrder:
    """Draws from several data sets by their shares; within each, one permutation per epoch.

    Positions come in groups of `group`. A data set of share w gets w * group places of each, rounded up or down at
    random (systematic sampling: right on average, never off by one or more), in random order. The group of 1 is a plain
    weighted draw. The k-th draw of a data set is position k of its own `EpochOrder`, so that none of its images comes
    again before all have come.

    Args:
        lengths: images of each data set; the indices of keys count through all of them.
        shares: of the draws; they sum to 1.
    """

    def __init__(self, lengths: Sequence[int], shares: Sequence[float], seed: int, group: int = 1) -> None:
        self.orders = [EpochOrder(length, seed, (i,)) for i, length in enumerate(lengths)]
        self.starts = np.cumsum([0, *lengths])
        self.edges = np.cumsum([0.0, *shares])
        self.edges[-1] = 1.0
        self.seed, self.group = seed, group
        self._chunk: tuple[int, Places, Places] | None = None
        self._counts: list[Int64[np.ndarray, " sources"]] = [np.zeros(len(lengths), np.int64)]

    def key(self, position: int) -> SampleKey:
        chunk, offset = divmod(position, CHUNK * self.group)
        earlier = self._counts_until(chunk)
        draws, before = self._draws(chunk)
        source = int(draws[offset])
        epoch, index = self.orders[source].key(int(earlier[source] + before[offset]))
        return epoch, int(self.starts[source]) + index

    def substitute(self, key: SampleKey, steps: int) -> SampleKey:
        """Return the key `steps` further on in the permutation of the same data set."""
        epoch, index = key
        source = int(np.searchsorted(self.starts, index, side="right")) - 1
        start = int(self.starts[source])
        epoch, index = self.orders[source].substitute((epoch, index - start), steps)
        return epoch, start + index

    def counts(self, position: int) -> Sequence[int]:
        chunk, offset = divmod(position, CHUNK * self.group)
        earlier = self._counts_until(chunk)
        inside = np.bincount(self._draws(chunk)[0][:offset], minlength=len(self.orders))
        return [int(n) for n in earlier + inside]

    def _counts_until(self, chunk: int) -> Int64[np.ndarray, " sources"]:
        while len(self._counts) <= chunk:
            draws, _ = self._draws(len(self._counts) - 1)
            self._counts.append(self._counts[-1] + np.bincount(draws, minlength=len(self.orders)))
        return self._counts[chunk]

    def _draws(self, chunk: int) -> tuple[Places, Places]:
        """Return the data set at each place of a chunk, and how many places of the chunk before it have the same
        one."""
        if self._chunk is None or self._chunk[0] != chunk:
            rng = np.random.default_rng(np.random.SeedSequence((self.seed, chunk), spawn_key=(2,)))
            points = (np.arange(self.group) + rng.random((CHUNK, 1))) / self.group
            draws = rng.permuted(np.searchsorted(self.edges, points, side="right") - 1, axis=1).ravel()
            before = np.empty_like(draws)
            for source in range(len(self.orders)):
                rows = np.flatnonzero(draws == source)
                before[rows] = np.arange(rows.size)
            self._chunk = chunk, draws, before
        return self._chunk[1], self._chunk[2]


class ClipOrder:
    """An order of clips as one of frames: the frames of a clip are consecutive positions, and have its key."""

    def __init__(self, clips: EpochOrder | MixtureOrder, length: int) -> None:
        """
        Args:
            length: frames of a clip.
        """
        self.clips, self.length = clips, length

    def key(self, position: int) -> SampleKey:
        return self.clips.key(position // self.length)

    def substitute(self, key: SampleKey, steps: int) -> SampleKey:
        return self.clips.substitute(key, steps)

    def counts(self, position: int) -> Sequence[int]:
        return [self.length * count for count in self.clips.counts(position // self.length)]


DrawOrder = EpochOrder | MixtureOrder | ClipOrder
"""Which sample stands at each position of an endless stream: a function of the position alone."""


def draw_order(dataset: Dataset, clips: Clips | Stills, seed: int, batch_size: int) -> DrawOrder:
    """Return the epochs of a data set's clips, or draws by the shares of a mixture."""
    if not dataset.sources:
        return ClipOrder(EpochOrder(len(clips), seed), clips.length)
    shares, group = [s.share for s in dataset.sources], batch_size // clips.length if dataset.balanced else 1
    return ClipOrder(MixtureOrder(clips.by_source, shares, seed, group), clips.length)


@dataclass(frozen=True, eq=False)
class InfiniteBatchSampler:
    """Endless micro-batches of sample keys for one rank.

    Which sample stands at position p is a function of the seed (`EpochOrder`, or `MixtureOrder`), whatever the workers
    and ranks. An optimiser step takes the next `batch_size` positions; its micro-batches, and the ranks within each,
    take theirs in turn. So a run resumes from the number of samples seen, also on another number of ranks.

    Raises:
        ConfigError: `batch_size` does not divide evenly, or there is nothing to draw from.
    """

    length: int  # samples in the data set
    _: KW_ONLY
    seed: int
    batch_size: int  # samples an optimiser step sees, over all ranks and accumulated micro-batches
    grad_accum_steps: int = 1  # micro-batches per optimiser step on each rank
    rank: int = 0
    world_size: int = 1
    start: int = 0  # samples seen before, over all ranks
    order: DrawOrder | None = None  # another one than that of epochs

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ConfigError("the training set is empty: there is nothing to draw from.")
        if self.seed < 0 or self.start < 0:
            raise ConfigError(f"seed and start are 0 or more, got seed {self.seed} and start {self.start}.")
        if self.grad_accum_steps < 1:
            raise ConfigError(f"grad_accum_steps: at least 1, got {self.grad_accum_steps}.")
        splits = self.grad_accum_steps * self.world_size
        if self.batch_size < 1 or self.batch_size % splits:
            below, above = self.batch_size // splits * splits, (max(self.batch_size, 0) // splits + 1) * splits
            fit = f"{below} or {above}" if below > 0 else f"{above}"
            raise ConfigError(
                f"batch_size: {self.batch_size} samples cannot be shared evenly by {self.world_size} ranks x "
                f"{self.grad_accum_steps} accumulated micro-batches. {fit} would fit."
            )
        assert 0 <= self.rank < self.world_size

    @property
    def micro_batch_size(self) -> int:
        """Samples in one micro-batch of one rank."""
        return self.batch_size // (self.grad_accum_steps * self.world_size)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        order, size = self.order or EpochOrder(self.length, self.seed), self.micro_batch_size
        first = self.start + self.rank * size
        while True:
            yield [order.key(position) for position in range(first, first + size)]
            first += self.world_size * size


@lru_cache(maxsize=32)
def permutation(seed: int, epoch: int, length: int, stream: tuple[int, ...] = ()) -> Int64[np.ndarray, " length"]:
    """Return the order of one epoch."""
    # The spawn key keeps it apart from the augmentation of sample 0: seeds pad with zeros, (s, e) equals (s, e, 0).
    sequence = np.random.SeedSequence((seed, epoch), spawn_key=(1, *stream))
    order = np.random.default_rng(sequence).permutation(length)
    order.flags.writeable = False
    return order
