"""An infinite batch sampler whose order is a function of the seed; a position in it is one integer."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from densevit.errors import ConfigError

SampleKey = tuple[int, int]
"""(epoch, index) of a sample; it also seeds the sample's augmentation."""


class InfiniteBatchSampler:
    """Endless micro-batches of sample keys for one rank.

    The order is the concatenation of one permutation of `range(length)` per epoch, so position p holds sample
    `permutation(seed, p // length)[p % length]`, whatever the workers, ranks or batch size. An optimiser step takes
    the next `batch_size` positions; its micro-batches, and the ranks within each, take theirs in turn. So a run
    resumes from the number of samples seen, also on another number of ranks.

    Args:
        length: samples in the data set.
        batch_size: samples an optimiser step sees, over all ranks and accumulated micro-batches.
        grad_accum_steps: micro-batches per optimiser step on each rank.
        start: samples seen before, over all ranks.

    Raises:
        ConfigError: `batch_size` does not divide evenly, or there is nothing to draw from.
    """

    def __init__(
        self,
        length: int,
        *,
        seed: int,
        batch_size: int,
        grad_accum_steps: int = 1,
        rank: int = 0,
        world_size: int = 1,
        start: int = 0,
    ) -> None:
        _check(length, seed, batch_size, grad_accum_steps, world_size, start)
        assert 0 <= rank < world_size
        self.length = length
        self.seed = seed
        self.batch_size = batch_size
        self.grad_accum_steps = grad_accum_steps
        self.rank = rank
        self.world_size = world_size
        self.start = start

    @property
    def micro_batch_size(self) -> int:
        """Samples in one micro-batch of one rank."""
        return self.batch_size // (self.grad_accum_steps * self.world_size)

    def key(self, position: int) -> SampleKey:
        epoch, offset = divmod(position, self.length)
        return epoch, int(permutation(self.seed, epoch, self.length)[offset])

    def substitute(self, key: SampleKey, steps: int) -> SampleKey:
        """The key `steps` further on in the same epoch's permutation, which wraps around."""
        epoch, index = key
        order = permutation(self.seed, epoch, self.length)
        offset = int(np.flatnonzero(order == index)[0])
        return epoch, int(order[(offset + steps) % self.length])

    def __iter__(self) -> Iterator[list[SampleKey]]:
        size = self.micro_batch_size
        first = self.start + self.rank * size
        while True:
            yield [self.key(position) for position in range(first, first + size)]
            first += self.world_size * size


@lru_cache(maxsize=4)
def permutation(seed: int, epoch: int, length: int) -> Int64[np.ndarray, " length"]:
    """The order of one epoch."""
    # The spawn key keeps it apart from the augmentation of sample 0: seeds pad with zeros, (s, e) equals (s, e, 0).
    sequence = np.random.SeedSequence((seed, epoch), spawn_key=(1,))
    order = np.random.default_rng(sequence).permutation(length)
    order.flags.writeable = False
    return order


def _check(length: int, seed: int, batch_size: int, grad_accum_steps: int, world_size: int, start: int) -> None:
    if length < 1:
        raise ConfigError("the training set is empty: there is nothing to draw from.")
    if seed < 0 or start < 0:
        raise ConfigError(f"seed and start are 0 or more, got seed {seed} and start {start}.")
    if grad_accum_steps < 1:
        raise ConfigError(f"grad_accum_steps: at least 1, got {grad_accum_steps}.")
    parts = grad_accum_steps * world_size
    if batch_size < 1 or batch_size % parts:
        below, above = batch_size // parts * parts, (max(batch_size, 0) // parts + 1) * parts
        fit = f"{below} or {above}" if below > 0 else f"{above}"
        raise ConfigError(
            f"batch_size: {batch_size} samples cannot be shared evenly by {world_size} ranks x {grad_accum_steps} "
            f"accumulated micro-batches. {fit} would fit."
        )
