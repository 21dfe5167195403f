"""Loaders over a data set made in memory: each pixel of sample i holds i, so that a batch shows what it is made of."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from densevit.data.datasets.base import Dataset, MixtureSource
from densevit.data.loading.collate import collate
from densevit.data.loading.dataloader import EvalLoader, TrainLoader
from densevit.data.loading.sampler import InfiniteBatchSampler
from densevit.data.loading.workers import auto_workers, run_jobs
from densevit.data.transforms.affine import Transform
from densevit.data.transforms.geometric import compose
from densevit.errors import DataError
from densevit.structures import Batch, Sample


class Numbered(Dataset):
    """Sample i: an image of value i, depth i + 1; some misbehave."""

    def __init__(self, length: int, sizes: tuple[tuple[int, int], ...] = ((4, 6),), bad: tuple[int, ...] = ()) -> None:
        self.names = [f"scene/{i:03d}" for i in range(length)]
        self.sizes = sizes
        self.bad = bad

    def read(self, index: int) -> Sample:
        if index in self.bad:
            raise DataError(f"/data/{index}.png: truncated.")
        h, w = self.sizes[index % len(self.sizes)]
        depth = np.full((h, w), index + 1, np.float32)
        image = np.full((h, w, 3), index, np.uint8)
        return Sample(name=self.names[index], image=image, depth=depth, valid=depth > 0)


class Deadly(Numbered):
    """Reading sample 3 ends, or holds up, the worker that does it."""

    def __init__(self, length: int, fate: str) -> None:
        super().__init__(length)
        self.fate = fate

    def read(self, index: int) -> Sample:
        if index == 3 and self.fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 3 and self.fate == "stuck":
            time.sleep(600)
        return super().read(index)


class Deaf(Numbered):
    """The first row of a sample's image tells how the process that read it treats SIGINT and SIGTERM."""

    def read(self, index: int) -> Sample:
        sample = super().read(index)
        ours = (signal.SIGINT, signal.SIGTERM)
        sample.image[0, :2] = [[255 * (signal.getsignal(s) == signal.SIG_IGN)] * 3 for s in ours]
        sample.image[0, 2:4] = [[255 * (s in signal.pthread_sigmask(signal.SIG_BLOCK, []))] * 3 for s in ours]
        return sample


STILL = compose([])


class Noise(Transform):
    """Draws from the generator, so that a batch shows its randomness."""

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        return replace(sample, image=rng.integers(0, 256, sample.image.shape, np.uint8))


def stream(dataset: Dataset | None = None, transform: Transform | None = None, **options: Any) -> TrainLoader:
    return TrainLoader(dataset or Numbered(10), transform or STILL, **({"seed": 0, "batch_size": 2} | options))


def take(count: int, dataset: Dataset | None = None, transform: Transform | None = None, **options: Any) -> list[Batch]:
    loader = stream(dataset, transform or Noise(), **({"batch_size": 4} | options))
    batches = list(islice(loader, count))
    loader.close()
    return batches


def assert_same(left: list[Batch], right: list[Batch]) -> None:
    assert [b.indices for b in left] == [b.indices for b in right]
    assert all(torch.equal(a.image, b.image) for a, b in zip(left, right, strict=True))


def assert_no_children(pids: set[int]) -> None:
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")  # on a machine with fewer cores
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_stream_is_the_same_bit_for_bit_for_any_number_of_workers(workers: int) -> None:
    assert_same(take(8), take(8, workers=workers))


def test_randomness_repeats_neither_in_a_batch_nor_between_epochs_nor_seeds() -> None:
    batches = take(10, workers=2)  # 40 places: four epochs of ten
    pictures = [p for batch in batches for p in batch.image]
    assert len({p.numpy().tobytes() for p in pictures}) == 40
    assert not torch.equal(take(1)[0].image, take(1, seed=1)[0].image)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_start_resumes_the_stream_bit_for_bit(workers: int) -> None:
    assert_same(take(8)[3:], take(5, start=12, workers=workers))


def test_accumulation_splits_a_batch_without_changing_it() -> None:
    whole, parts = take(3), take(6, grad_accum_steps=2)
    joined = [torch.cat([parts[2 * s].image, parts[2 * s + 1].image]) for s in range(3)]
    assert all(torch.equal(b.image, j) for b, j in zip(whole, joined, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_sample_is_named_in_the_first_line(workers: int) -> None:
    with pytest.raises(DataError) as caught:
        take(5, Numbered(10, bad=(6,)), workers=workers)
    assert str(caught.value).splitlines()[0] == "sample 6 ('scene/006'): /data/6.png: truncated."


@pytest.mark.parametrize("workers", [0, 2])
def test_a_skipped_sample_is_replaced_by_the_next_in_order_and_counted(workers: int) -> None:
    clean = take(5, transform=STILL)
    bad = Numbered(10, bad=(6,))
    loader = stream(bad, batch_size=4, workers=workers, on_corrupt="skip", max_corrupt_fraction=0.1)
    batches = list(islice(loader, 5))
    loader.close()
    wanted, got = (sum((b.indices for b in batch), ()) for batch in (clean, batches))
    expected = list(wanted)
    for begin in (0, 10):  # the two epochs; each is a ring of ten
        place = wanted.index(6, begin)
        expected[place] = wanted[begin + (place - begin + 1) % 10]
    assert list(got) == expected and loader.skipped == {0: 1, 1: 1}
    values = [int(p[0, 0, 0]) for b in batches for p in b.image]
    assert values == expected  # the picture is the substitute's, and `indices` owns up to it


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_skipped_samples_end_the_run_and_its_workers(workers: int) -> None:
    before = set(multiprocessing.active_children())
    bad = Numbered(10, bad=(6, 7))
    loader = stream(bad, batch_size=5, workers=workers, on_corrupt="skip", max_corrupt_fraction=0.1)
    with pytest.raises(DataError, match=r"2 unreadable samples in epoch 0, where 1 of about 10 may be skipped"):
        list(islice(loader, 2))
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("workers", [0, 2])
def test_a_validation_leaves_unreadable_samples_out_and_tells_each(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    skip: dict[str, Any] = {"batch_size": 4, "workers": workers, "on_corrupt": "skip", "max_corrupt_fraction": 0.1}
    batches = list(EvalLoader(Numbered(10, bad=(6,)), **skip))
    assert [batch.indices for batch in batches] == [(0, 1, 2, 3), (4, 5, 7), (8, 9)]
    assert "not validated: sample 6 ('scene/006'): /data/6.png: truncated." in caplog.text
    with pytest.raises(DataError, match="2 unreadable samples in a validation, where 1 of 10 may be skipped"):
        list(EvalLoader(Numbered(10, bad=(6, 7)), **skip))


def test_an_unreadable_partner_of_cutmix_is_replaced_by_another() -> None:
    data = Numbered(10, bad=(6,))
    data.sources = [MixtureSource("", Numbered(10), 1.0, cutmix=1.0)]
    batches = take(10, data, STILL, on_corrupt="skip", max_corrupt_fraction=1.0)
    assert sum(map(len, batches)) == 40 and all(6 not in batch.image for batch in batches)


def test_a_set_with_no_readable_sample_ends_instead_of_spinning() -> None:
    loader = stream(Numbered(3, bad=(0, 1, 2)), batch_size=1, on_corrupt="skip", max_corrupt_fraction=1.0)
    with pytest.raises(DataError, match="none of the 3"):
        next(loader)


def test_a_killed_worker_is_an_error_that_names_what_it_read() -> None:
    loader = stream(Deadly(10, "killed"), workers=2)
    with pytest.raises(DataError, match=r"died .*SIGKILL.* was reading sample 3 \('scene/003'\)"):
        list(islice(loader, 5))


@pytest.mark.slow
def test_a_worker_that_died_before_it_was_asked_for_is_still_named(monkeypatch: pytest.MonkeyPatch) -> None:
    start = DataLoader.__iter__

    def start_and_join(loader: DataLoader[object]) -> object:
        results = start(loader)
        time.sleep(1)  # a worker dies meanwhile
        multiprocessing.active_children()  # joins the dead
        return results

    monkeypatch.setattr(DataLoader, "__iter__", start_and_join)
    with pytest.raises(DataError, match=r"died .*SIGKILL.* was reading sample 3"):
        list(islice(stream(Deadly(10, "killed"), workers=2), 5))


@pytest.mark.slow
def test_a_stuck_worker_is_an_error_within_the_timeout_and_leaves_no_orphan() -> None:
    loader = stream(Deadly(10, "stuck"), workers=2, timeout=1.0)
    with pytest.raises(DataError, match=r"within 1 s\. worker (\d+) was reading sample 3") as caught:
        list(islice(loader, 5))
    assert_no_children({int(str(caught.value).split("worker ")[1].split()[0])})


def test_workers_ignore_signals_and_are_born_with_them_blocked() -> None:
    (batch,) = take(1, Deaf(10), STILL, workers=1)
    assert (batch.image[:, :, 0, :4] == 255).all()


def test_closing_does_not_wait_for_a_stuck_worker() -> None:
    loader = stream(Deadly(4, "stuck"), batch_size=1, workers=1)
    stuck_at = [index for _, index in next(iter(InfiniteBatchSampler(4, seed=0, batch_size=4)))].index(3)
    list(islice(loader, stuck_at))
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 60  # reading it takes 600


def test_a_closed_loader_leaves_no_workers() -> None:
    before = set(multiprocessing.active_children())
    loader = stream(workers=2)
    next(loader)
    started = {p.pid for p in set(multiprocessing.active_children()) - before}
    assert len(started) == 2
    loader.close()
    assert_no_children({pid for pid in started if pid})


@pytest.mark.slow
def test_a_program_that_forgets_to_close_its_loader_still_ends() -> None:
    # Deaf to SIGTERM, the workers would make multiprocessing's farewell wait for ever.
    code = "from test_dataloader import stream\nloader = stream(workers=2)\nnext(loader)\nraise SystemExit(7)\n"
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    assert subprocess.run([sys.executable, "-c", code], env=where, timeout=30, check=False).returncode == 7


def test_the_parent_keeps_its_signal_handling() -> None:
    def ask() -> list[object]:
        return [signal.getsignal(s) for s in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)] + [
            signal.pthread_sigmask(signal.SIG_BLOCK, [])
        ]

    before = ask()
    loader = stream(workers=1)
    next(loader)
    assert ask() == before and before[0] == signal.SIG_DFL
    loader.close()


@pytest.mark.parametrize(("world_size", "workers"), [(1, 0), (2, 0), (3, 0), (7, 0), (2, 2)])
def test_evaluation_sees_every_sample_once_over_all_ranks(world_size: int, workers: int) -> None:
    loaders = [
        EvalLoader(Numbered(10), batch_size=4, rank=r, world_size=world_size, workers=workers)
        for r in range(world_size)
    ]
    indices = [[i for batch in loader for i in batch.indices] for loader in loaders]
    assert [i for share in indices for i in share] == list(range(10))
    assert [len(loader) for loader in loaders] == [len(share) for share in indices]


def test_evaluation_keeps_native_sizes_and_stacks_neighbours_of_one_size() -> None:
    class Pairs(Numbered):
        def read(self, index: int) -> Sample:  # sizes a a b b b a
            self.sizes = (((4, 6), (4, 6), (2, 3), (2, 3), (2, 3), (4, 6))[index],)
            return super().read(index)

    batches = list(EvalLoader(Pairs(6), batch_size=4))
    assert [b.indices for b in batches] == [(0, 1), (2, 3), (4,), (5,)]
    assert [tuple(b.image.shape[2:]) for b in batches] == [(4, 6), (2, 3), (2, 3), (4, 6)]


def test_evaluation_can_be_walked_again_and_left_early() -> None:
    loader = EvalLoader(Numbered(10), batch_size=2, workers=1)
    for batch in loader:
        assert batch.indices == (0, 1)
        break
    assert sum(len(b) for b in loader) == 10
    assert list(EvalLoader(Numbered(1), batch_size=2, rank=0, world_size=2, workers=1)) == []


def test_evaluation_names_an_unreadable_sample() -> None:
    with pytest.raises(DataError, match=r"^sample 2 \('scene/002'\): /data/2.png"):
        list(EvalLoader(Numbered(4, bad=(2,)), batch_size=2))


def test_collate_scales_images_to_one_and_keeps_metres() -> None:
    image = np.zeros((2, 3, 3), np.uint8)
    image[0, 1] = (255, 51, 0)
    depth = np.array([[0, 1, 2], [3, 4, 5]], np.float32)
    batch = collate([Sample(name="a", image=image, depth=depth, valid=depth > 0)], [7])
    assert batch.image.dtype == torch.uint8  # so cross to a GPU a quarter of the bytes
    batch = batch.to(torch.device("cpu"))
    assert batch.image.is_contiguous(memory_format=torch.channels_last)
    assert batch.image.shape == (1, 3, 2, 3) and batch.image.dtype == torch.float32
    assert batch.image[0, :, 0, 1].tolist() == pytest.approx([1.0, 0.2, 0.0])  # 51 / 255
    assert batch.depth[0, 0].tolist() == depth.tolist() and batch.valid.sum() == 5
    assert batch.labels is None and batch.intrinsics is None and batch.indices == (7,)


def test_collate_fills_what_some_samples_lack() -> None:
    image, ones = np.zeros((2, 2, 3), np.uint8), np.ones((2, 2), np.float32)
    labels = np.ones((2, 2), np.int64)
    full = Sample(name="a", image=image, depth=ones, valid=ones > 0, labels=labels, intrinsics=np.eye(3))
    batch = collate([Sample(name="b", image=image), full], [0, 1])
    assert batch.depth[0].sum() == 0 and not batch.valid[0].any() and batch.valid[1].all()
    assert (batch.labels[0] == 255).all() and (batch.labels[1] == 1).all()
    assert batch.intrinsics[0].isnan().all() and torch.equal(batch.intrinsics[1], torch.eye(3))


def test_collate_names_samples_of_different_sizes_and_the_cure() -> None:
    small, large = Numbered(2, sizes=((4, 6), (8, 6))).read(0), Numbered(2, sizes=((4, 6), (8, 6))).read(1)
    with pytest.raises(DataError, match=r"'scene/000' is 4x6 and 'scene/001' is 8x6. Add random_crop"):
        collate([small, large], [0, 1])


@pytest.mark.parametrize(("highest", "kind"), [(255, torch.uint8), (256, torch.int16), (40_000, torch.int64)])
def test_labels_take_the_bytes_that_they_need_and_are_int64_on_the_device(highest: int, kind: torch.dtype) -> None:
    labels = np.array([[0, highest]], np.int64)
    batch = collate([Sample(name="a", image=np.zeros((1, 2, 3), np.uint8), labels=labels)], [0])
    assert batch.labels is not None and batch.labels.dtype == kind
    there = batch.to(torch.device("cpu")).labels
    assert there is not None and there.dtype == torch.int64 and there[0].tolist() == labels.tolist()


def test_auto_workers_leaves_a_core_for_the_model() -> None:
    cores = len(os.sched_getaffinity(0))
    assert auto_workers(1) == min(cores - 1, 12)
    assert auto_workers(10_000) == 0


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_batches_for_a_gpu_lie_in_pinned_memory_also_without_workers(kind: str, monkeypatch) -> None:
    pinned: list[Batch] = []
    monkeypatch.setattr(Batch, "pin_memory", lambda batch, device=None: pinned.append(batch) or batch)
    if kind == "train":
        take(2, pin=True)
    else:
        list(EvalLoader(Numbered(8), batch_size=4, pin=True))
    assert len(pinned) == 2


def test_a_worker_that_dies_while_the_others_are_started_is_an_error_of_the_user_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def torch_raises(loader: DataLoader[str]) -> None:
        worker = loader.multiprocessing_context.Process(target=os._exit, args=(3,))
        worker.start()
        worker.join()
        raise RuntimeError("DataLoader worker (pid 5) is killed by signal: Killed. ")

    monkeypatch.setattr(DataLoader, "__iter__", torch_raises)
    jobs = run_jobs([1], lambda _, job: str(job), workers=1, timeout=3, describe=str)
    with pytest.raises(DataError, match=r"a loader worker died \(pid \d+, exit code 3\)"):
        next(jobs)
