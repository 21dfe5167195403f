"""Evaluation images in the training set: the same bytes, the same image encoded anew, or another of its scene."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset
from densevit.data.validation.issues import Issue
from densevit.data.validation.sample_stats import InspectedSample

TOLERANCE = 3.0  # gray values that two thumbnails of one image may differ by
MIN_STD = 4.0  # gray values; thumbnails with less contrast are not compared
ROWS = 512  # thumbnails compared at once: 512 x 24,000 distances are 50 MB


def find_leaks(
    train: Dataset,
    train_samples: Sequence[InspectedSample],
    other: Dataset,
    split: str,
    samples: Sequence[InspectedSample],
) -> Iterator[Issue]:
    """What an evaluation split shares with the training set."""
    owners = {s.checksums["image"]: index for index, s in enumerate(train_samples) if "image" in s.checksums}
    same = {i: owners[s.checksums["image"]] for i, s in enumerate(samples) if s.checksums.get("image") in owners}
    similar = {i: j for i, j in _near_duplicates(train_samples, samples).items() if i not in same}
    for pairs, how in ((same, "is"), (similar, "shows the same as")):
        for i, j in pairs.items():
            path = samples[i].paths.get("image", "")
            reason = f"{how} the training image {train_samples[j].paths.get('image') or train.names[j]}"
            yield Issue("leaked_image", split, reason, str(path), other.names[i], i)
    scenes = {train.scene(index) for index in range(len(train))} - {""}
    shared: dict[str, list[int]] = {}
    for index in range(len(other)):
        if other.scene(index) in scenes:
            shared.setdefault(other.scene(index), []).append(index)
    for scene, members in shared.items():
        reason = f"scene '{scene}' is in the training set, too; {len(members):,} images of it are evaluated on"
        path = samples[members[0]].paths.get("image", "")
        yield Issue("leaked_scene", split, reason, str(path), other.names[members[0]], members[0])


def _near_duplicates(train: Sequence[InspectedSample], others: Sequence[InspectedSample]) -> dict[int, int]:
    """Position in `others` -> that in `train` of a sample with the same thumbnail."""
    (left, train_index), (right, other_index) = _thumbnails(train), _thumbnails(others)
    train_of: dict[int, int] = {}
    for start in range(0, len(right), ROWS):
        block = right[start : start + ROWS]
        # |a - b|^2 = |a|^2 - 2ab + |b|^2 finds the candidates in one product of matrices.
        distances = (block**2).sum(1)[:, None] - 2 * block @ left.T + (left**2).sum(1)
        for i, j in np.argwhere(distances < 256 * TOLERANCE**2):
            if np.abs(block[i] - left[j]).max() <= TOLERANCE:
                train_of.setdefault(other_index[start + i], train_index[j])
    return train_of


def _thumbnails(samples: Sequence[InspectedSample]) -> tuple[Float32[np.ndarray, "n 256"], list[int]]:
    """The thumbnails with enough contrast, and their positions in `samples`."""
    decoded = {i: sample.stats.decoded_thumbnail() for i, sample in enumerate(samples)}
    usable = {i: thumbnail for i, thumbnail in decoded.items() if thumbnail is not None and thumbnail.std() > MIN_STD}
    return np.array(list(usable.values()), np.float32).reshape(-1, 256), list(usable)
