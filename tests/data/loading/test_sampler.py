"""The infinite order: numbers come from the definition (a concatenation of permutations), worked out by hand."""

from collections.abc import Iterable
from itertools import chain, islice

import numpy as np
import pytest

from densevit.data.loading.sampler import InfiniteBatchSampler, MixtureOrder, SampleKey, permutation
from densevit.errors import ConfigError


def flat(batches: Iterable[list[SampleKey]]) -> list[SampleKey]:
    return list(chain.from_iterable(batches))


def positions(stream: InfiniteBatchSampler, steps: int) -> list[list[SampleKey]]:
    """One rank's places of each optimiser step."""
    micro = list(islice(stream, steps * stream.grad_accum_steps))
    return [flat(micro[s * stream.grad_accum_steps : (s + 1) * stream.grad_accum_steps]) for s in range(steps)]


def test_a_batch_may_span_two_epochs_and_the_seed_alone_decides_the_order() -> None:
    assert [epoch for epoch, _ in next(iter(InfiniteBatchSampler(3, seed=0, batch_size=4)))] == [0, 0, 0, 1]
    same, other_seed, other_epoch = (list(permutation(*key, 100)) for key in ((5, 2), (6, 2), (5, 3)))
    assert list(permutation(5, 2, 100)) == same and same not in (other_seed, other_epoch)


@pytest.mark.parametrize(("world_size", "grad_accum_steps"), [(1, 1), (1, 4), (2, 1), (2, 2), (4, 3), (12, 1)])
def test_any_launch_sees_the_same_samples_in_each_step(world_size: int, grad_accum_steps: int) -> None:
    options = {"seed": 2, "batch_size": 12}
    alone, launch = positions(InfiniteBatchSampler(17, **options), 6), {**options, "grad_accum_steps": grad_accum_steps}
    streams = [InfiniteBatchSampler(17, **launch, rank=r, world_size=world_size) for r in range(world_size)]
    ranks = [positions(stream, 6) for stream in streams]
    for step in range(6):
        together = flat(rank[step] for rank in ranks)
        assert sorted(together) == sorted(alone[step]) and len(together) == 12


def test_micro_batches_of_two_ranks_take_turns() -> None:
    # Batch 8 over 2 ranks x 2 micro-batches: positions 0-1 | 2-3 then 4-5 | 6-7.
    order = [(0, int(i)) for i in permutation(0, 0, 8)]
    left = list(islice(InfiniteBatchSampler(8, seed=0, batch_size=8, grad_accum_steps=2, rank=0, world_size=2), 2))
    right = list(islice(InfiniteBatchSampler(8, seed=0, batch_size=8, grad_accum_steps=2, rank=1, world_size=2), 2))
    assert left == [order[0:2], order[4:6]]
    assert right == [order[2:4], order[6:8]]


def test_changing_the_launch_midway_covers_the_epoch_exactly_once() -> None:
    seen = positions(InfiniteBatchSampler(24, seed=9, batch_size=4), 2)  # 8 samples on one rank
    for rank in range(2):  # the other 16 on two
        seen += positions(InfiniteBatchSampler(24, seed=9, batch_size=4, rank=rank, world_size=2, start=8), 4)
    assert sorted(flat(seen)) == [(0, index) for index in range(24)]


def test_the_order_is_not_the_noise_of_sample_zero() -> None:
    # Seed sequences pad with zeros: without a key of its own an epoch's order would be drawn from sample 0's numbers.
    noise = np.random.default_rng((7, 1, 0)).permutation(50)
    assert list(noise) != list(permutation(7, 1, 50))


def test_what_cannot_be_streamed_is_refused_with_what_would_fit() -> None:
    for options, says in (
        ({"length": 0}, "empty"),
        ({"seed": -1}, "seed"),
        ({"start": -4}, "start"),
        ({"grad_accum_steps": 0}, "grad_accum_steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 10, "grad_accum_steps": 2, "world_size": 2}, r"10 samples .* 2 ranks x 2 .* 8 or 12 would fit"),
        ({"batch_size": 3, "world_size": 8}, "8 would fit"),
    ):
        given = {"length": 100, "seed": 0, "batch_size": 2} | options
        with pytest.raises(ConfigError, match=says):
            InfiniteBatchSampler(given.pop("length"), **given)


@pytest.mark.parametrize("group", [1, 8])
def test_a_mixture_draws_by_its_shares_and_repeats_no_image_before_all_have_come(group: int) -> None:
    order = MixtureOrder([3, 50, 7], [0.5, 0.2, 0.3], seed=3, group=group)
    keys = [order.key(position) for position in range(3000)]
    sources = np.searchsorted([3, 53], [index for _, index in keys], side="right")
    counts = np.bincount(sources, minlength=3)
    assert np.abs(counts / 3000 - [0.5, 0.2, 0.3]).max() < 0.03
    assert order.counts(3000) == counts.tolist() and order.counts(0) == [0, 0, 0]
    for source, (start, length) in enumerate(((0, 3), (3, 50), (53, 7))):
        own = [key for key, of in zip(keys, sources, strict=True) if of == source]
        for epoch in range(len(own) // length):
            block = own[epoch * length : (epoch + 1) * length]
            assert sorted(block) == [(epoch, start + i) for i in range(length)]


def test_a_balanced_mixture_has_its_shares_in_every_group() -> None:
    order = MixtureOrder([100, 100, 100], [0.5, 0.3, 0.2], seed=0, group=8)
    sources = np.array([order.key(p)[1] // 100 for p in range(4000)]).reshape(-1, 8)
    counts = np.stack([(sources == s).sum(1) for s in range(3)])
    expected = np.array([[4.0], [2.4], [1.6]])
    assert np.abs(counts - expected).max() < 1 + 1e-9
    assert np.abs(counts.mean(1) - expected[:, 0]).max() < 0.1
    assert (sources[:, 0] != sources[0, 0]).any()  # in random order


def test_a_mixture_is_a_function_of_seed_and_position_however_it_is_asked() -> None:
    lengths, shares = [5, 40], [0.7, 0.3]
    forward = MixtureOrder(lengths, shares, seed=1, group=4)
    keys = [forward.key(position) for position in range(9000)]
    for position in (8999, 17, 5000, 4096, 4095):
        assert MixtureOrder(lengths, shares, seed=1, group=4).key(position) == keys[position]
    assert [MixtureOrder(lengths, shares, seed=2, group=4).key(p) for p in range(50)] != keys[:50]


def test_the_substitute_of_an_unreadable_sample_is_of_the_same_source() -> None:
    order = MixtureOrder([4, 6], [0.5, 0.5], seed=0)
    for key in ((0, 2), (1, 7)):
        others = [order.substitute(key, steps) for steps in range(1, 4)]
        assert {index >= 4 for _, index in others} == {key[1] >= 4} and len({*others, key}) == 4
