"""Clips of a data set made in memory: which frames they have, in which order they come, and how they are augmented."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from densevit.config.schema import Data, Model, TrainConfig
from densevit.data.datasets.base import DATASETS, Dataset, MixtureSource
from densevit.data.loading.clips import Clips, videos, windows
from densevit.data.loading.dataloader import EvalLoader, TrainLoader
from densevit.data.transforms.affine import Transform
from densevit.data.transforms.geometric import compose
from densevit.data.transforms.sparse_depth import SparseDepth
from densevit.errors import ConfigError, DataError
from densevit.structures import Batch, Sample


class Films(Dataset):
    """Frames of films of these lengths; the image of sample i has the value i."""

    video = True

    def __init__(self, *lengths: int, bad: tuple[int, ...] = ()) -> None:
        self.names = [f"film{film}/{i}" for film, length in enumerate(lengths) for i in range(length)]
        self.bad = bad

    def read(self, index: int) -> Sample:
        if index in self.bad:
            raise DataError("truncated.")
        image = np.full((4, 6, 3), index, np.uint8)
        return Sample(name=self.names[index], image=image, depth=np.ones((4, 6), np.float32), valid=image[..., 0] >= 0)


class Noise(Transform):
    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        return Sample(name=sample.name, image=sample.image + np.uint8(rng.integers(100)))


def take(data: Dataset, count: int, clips: Clips, transform: Transform | None = None, **options: object) -> list[Batch]:
    given = {"seed": 5, "batch_size": 2 * clips.length, **options}
    loader = TrainLoader(data, transform or compose([]), clips=clips, **given)  # type: ignore[arg-type]
    found = list(islice(loader, count))
    loader.close()
    return found


def test_every_frame_that_enough_others_follow_begins_a_clip() -> None:
    clips = Clips(Films(5, 2, 7), 3, 2)
    assert [clips.frames(i) for i in range(len(clips))] == [[0, 2, 4], [7, 9, 11], [8, 10, 12], [9, 11, 13]]


def test_frames_with_times_are_in_their_order(tmp_path: Path) -> None:
    for name in "xyz":
        Image.new("RGB", (6, 4)).save(tmp_path / f"{name}.png")
    (tmp_path / "table.csv").write_text("image,time\nx.png,2.5\ny.png,0.5\nz.png,10\n")
    folder = {"type": "folder", "root": str(tmp_path), "split": "all", "manifest": "table.csv", "require_depth": False}
    for spec in (folder, {"type": "mix", "sources": [{"data": folder}]}):
        data = DATASETS.check(spec, "data.train").build()
        assert list(videos(data).values()) == [[1, 0, 2]]


def test_frames_of_a_film_are_in_natural_order_and_films_of_a_scene_stay_apart() -> None:
    data = Films(1)
    data.names = ["a/10", "a/9", "b/1"]
    data.scene = lambda index: "same room"  # type: ignore[method-assign]
    assert list(videos(data).values()) == [[1, 0], [2]]
    assert windows(Films(5, 2), 2) == [[0, 1], [2, 3], [4], [5, 6]]


def test_a_batch_holds_whole_clips_and_an_epoch_each_clip_once() -> None:
    data = Films(9, 6)
    clips = Clips(data, 3)
    batches = take(data, len(clips) // 2 + 1, clips)
    assert all(batch.clip_length == 3 and len(batch) == 6 for batch in batches)
    drawn = [tuple(batch.indices[i : i + 3]) for batch in batches for i in (0, 3)][: len(clips)]
    assert sorted(drawn) == sorted(tuple(clips.frames(i)) for i in range(len(clips)))


def test_the_frames_of_a_clip_are_augmented_alike_and_clips_are_not() -> None:
    data = Films(40)
    offsets = []
    for batch in take(data, 4, Clips(data, 4), Noise()):
        added = batch.image[:, 0, 0, 0].int() - torch.tensor(batch.indices)
        assert (added.view(2, 4) == added.view(2, 4)[:, :1]).all()
        offsets += added.view(2, 4)[:, 0].tolist()
    assert len(set(offsets)) > 4


def test_clips_do_not_depend_on_workers_and_ranks_and_resume_where_they_were() -> None:
    data = Films(12, 9)
    clips = Clips(data, 3)
    whole = take(data, 4, clips, Noise())
    parallel = take(data, 4, clips, Noise(), workers=2)
    later = take(data, 2, clips, Noise(), start=12)
    ranks = [take(data, 4, clips, Noise(), rank=rank, world_size=2) for rank in (0, 1)]
    for left, right in zip(whole + whole[2:], parallel + later, strict=True):
        assert left.indices == right.indices and torch.equal(left.image, right.image)
    for one, two, both in zip(*ranks, whole, strict=True):
        assert one.indices + two.indices == both.indices


def test_an_unreadable_frame_replaces_its_whole_clip() -> None:
    data = Films(8, bad=(4,))
    clips = Clips(data, 2)
    batches = take(data, 6, clips, on_corrupt="skip", max_corrupt_fraction=1.0)
    assert all(b - a == 1 for batch in batches for a, b in (batch.indices[:2], batch.indices[2:]))
    assert not any(4 in batch.indices for batch in batches)
    with pytest.raises(DataError, match="sample 4"):
        take(data, 6, clips)


def test_a_mixture_draws_clips_by_its_shares() -> None:
    one, two = Films(10), Films(6)
    data = Films(10, 6)
    data.sources = [MixtureSource("one", one, 0.75), MixtureSource("two", two, 0.25)]
    clips = Clips(data, 2)
    assert clips.by_source == [9, 5]
    loader = TrainLoader(data, compose([]), seed=0, batch_size=8, clips=clips)
    indices = [i for batch in islice(loader, 100) for i in batch.indices[::2]]
    assert np.mean(np.array(indices) < 10) == pytest.approx(0.75, abs=0.06)
    assert loader.drawn(800) == {"one": 2 * sum(i < 10 for i in indices), "two": 2 * sum(i >= 10 for i in indices)}


def test_evaluation_reads_clips_as_batches() -> None:
    data = Films(5, 2)
    batches = list(EvalLoader(data, batch_size=1, clips=windows(data, 3)))
    assert [batch.indices for batch in batches] == [(0, 1, 2), (3, 4), (5, 6)]
    assert [batch.clip_length for batch in batches] == [3, 2, 2]


def test_what_has_no_clips_is_refused_before_anything_is_read() -> None:
    stills = Films(4)
    stills.video = False
    with pytest.raises(DataError, match="those of Films do not"):
        Clips(stills, 2)
    with pytest.raises(DataError, match=r"spans 9 frames, and the longest of 2 videos has 6\. At most 3 fit"):
        Clips(Films(6, 4), 5, 2)
    with pytest.raises(ConfigError, match="micro-batches of 4, which is no multiple of the 3 frames"):
        take(Films(6), 1, Clips(Films(6), 3), batch_size=4)


@pytest.mark.parametrize(("cutmix", "problems"), [(0.5, 1), (0.0, 0)])
def test_clips_of_a_source_with_cutmix_are_refused_by_its_key(cutmix: float, problems: int) -> None:
    train = {"type": "mix", "sources": [{"data": {"type": "nyu"}}, {"data": {"type": "nyu"}, "cutmix": cutmix}]}
    found = list(Clips.incompatible(TrainConfig(model=Model(heads={}), data=Data(train=train, clip=2))))
    assert len(found) == problems
    assert all(text.startswith("data.train.sources.1.cutmix: pastes a still image") for text in found)


def test_a_crop_by_the_labels_of_each_frame_is_refused_for_clips() -> None:
    crop = {"type": "random_crop", "size": [4, 4], "max_share": 0.75}
    train = {"type": "mix", "sources": [{"data": {"type": "nyu"}, "transforms": [crop]}]}
    data = Data(train=train, clip=2, transforms=[{"type": "hflip"}, crop, {**crop, "max_share": 1.0}])
    train["sources"] += [0.5, {"transforms": "x"}, {"transforms": [0.5]}]  # for which others have an error each
    assert [text.partition(":")[0] for text in Clips.incompatible(TrainConfig(model=Model(heads={}), data=data))] == [
        "data.transforms.1.max_share", "data.train.sources.0.transforms.0.max_share"
    ]  # fmt: skip


def test_frames_with_and_without_depth_are_transformed_alike_after_their_points_are_drawn() -> None:
    class Sparse(Films):
        def read(self, index: int) -> Sample:
            sample = super().read(index)
            valid = np.random.default_rng(index).random((4, 6)) < 0.5
            return replace(sample, valid=valid) if index % 3 else replace(sample, depth=None, valid=None)

    data = Sparse(40)
    for batch in take(data, 8, Clips(data, 4), compose([SparseDepth(), Noise()])):
        added = batch.image[:, 0, 0, 0].int() - torch.tensor(batch.indices)
        assert (added.view(2, 4) == added.view(2, 4)[:, :1]).all()
