"""Measurements of pairs of frames: shared by processes, kept for resuming; frame distances chosen by parallax."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from test_odometry import frame

from densevit.data.datasets.base import Dataset
from densevit.data.loading.clips import Clips
from densevit.errors import DataError
from densevit.objectives.self_supervised.pairs import PairMeasurements
from densevit.objectives.self_supervised.parallax import chosen_frames
from densevit.structures import Sample
from densevit.utils.process_group import ProcessGroup

PAIRS = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2)]


@cache
def rendered(index: int, place: float) -> Sample:
    return frame(0.5 * index, (place, 0.0, 0.0), f"walk/{index}")


class Places(Dataset):
    """Frames of one video from these places on a line to the right, with poses; the last cannot be read if `bad`."""

    video = True

    def __init__(self, *places: float, bad: bool = False) -> None:
        self.names, self.places, self.bad = [f"walk/{i}" for i in range(len(places))], places, bad

    def read(self, index: int) -> Sample:
        if self.bad and index == len(self) - 1:
            raise DataError("unreadable")
        return rendered(index, float(self.places[index]))


def distance(first: Sample, second: Sample) -> list[float]:
    assert first.pose is not None and second.pose is not None
    return [second.pose[0, 3] - first.pose[0, 3], 7.0]


@dataclass(frozen=True)
class Thread(ProcessGroup):
    """A thread in place of a process."""

    values: list[Any] = field(default_factory=lambda: [None, None])
    barrier: Barrier = field(default_factory=lambda: Barrier(2, timeout=60))

    def all_gather(self, value: Any) -> list[Any]:
        self.values[self.rank] = value
        self.barrier.wait()
        gathered = list(self.values)
        self.barrier.wait()
        return gathered


def test_each_process_measures_its_share_and_all_get_all_results(tmp_path: Path) -> None:
    data, measured = Places(0, 1, 3, 6, 10, bad=True), []
    shared = Thread(rank=0, size=2)

    def counted(rank: int) -> np.ndarray:
        def measure(first: Sample, second: Sample) -> list[float]:
            measured.append((rank, first.name))
            return distance(first, second)

        world = Thread(rank=rank, size=2, values=shared.values, barrier=shared.barrier)
        return PairMeasurements(tmp_path / "none", world)(measure, 3, data, PAIRS)

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(counted, range(2)))
    expected = [[1, 7], [2, 7], [3, 7], [np.nan, np.nan], [3, 7]]
    for rows in (*both, PairMeasurements(tmp_path)(distance, 3, data, PAIRS)):
        np.testing.assert_array_equal(rows, np.c_[expected, [np.nan] * 5])
    assert sorted(measured) == [(0, "walk/0"), (0, "walk/0"), (0, "walk/2"), (1, "walk/1")]
    assert not (tmp_path / "none").exists()


def test_a_resumed_run_reads_what_was_measured_unless_the_data_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements, calls = PairMeasurements(tmp_path), []

    def measure(first: Sample, second: Sample) -> list[float]:
        calls.append(first.name)
        return distance(first, second)

    rows = measurements(measure, 2, Places(0, 1, 3, 6, 10), PAIRS)
    assert len(calls) == 5
    np.testing.assert_array_equal(measurements(measure, 2, Places(0, 1, 3, 6, 10), PAIRS), rows)
    assert len(calls) == 5
    measurements(measure, 2, Places(0, 1, 3, 6, 11), PAIRS)  # another pose
    measurements(measure, 2, Places(0, 1, 3, 6, 10), PAIRS[:4])
    assert len(calls) == 14
    for file in (tmp_path / "measured").iterdir():
        file.write_bytes(file.read_bytes()[:-4])
    np.testing.assert_array_equal(measurements(measure, 2, Places(0, 1, 3, 6, 10), PAIRS), rows)
    assert len(calls) == 19


def test_slow_parts_of_a_walk_take_distant_frames_fast_ones_near_ones_and_standing_ones_none(tmp_path: Path) -> None:
    """The wall is 4 m away and the focal length 220 pixels at 192 rows: 0.02 m are 1.1 pixels, 0.1 m are 5.5."""
    data = Places(*np.cumsum([*[0.02] * 9, *[0.1] * 5, *[0.0] * 5]).tolist())
    data.next_frames = chosen_frames(data, [4, 1, 2], PairMeasurements(tmp_path))
    slow, fast, standing = (range(5), range(8, 13), range(13, 18))
    assert [int(data.next_frames[i]) - i for i in slow] == [4] * 5
    assert [int(data.next_frames[i]) - i for i in fast] == [1] * 5
    assert [int(data.next_frames[i]) for i in standing] == [-1] * 5
    clips = Clips(data, 3)
    assert [clips.frames(i) for i in range(len(clips))][:2] == [[0, 4, 8], [1, 5, 9]]
    assert max(max(clips.frames(i)) for i in range(len(clips))) == 13
    with pytest.raises(DataError, match=r"0 of 6 frames have .* the frame 1, 2 later; the median is 0\.\d\d\."):
        chosen_frames(Places(*[0.0] * 6), [1, 2], PairMeasurements(tmp_path))
