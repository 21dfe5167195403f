"""Evaluation images in the training set: the same bytes, the same picture encoded anew, or another of its scene."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset
from densevit.data.validation.issues import Finding
from densevit.data.validation.sample_stats import Seen

NEAR = 3.0  # gray values that a thumbnail's pixels may differ by, and still be of one picture
PLAIN = 4.0  # standard deviation of a thumbnail under which it tells nothing
ROWS = 512  # thumbnails compared at once: 512 x 24,000 distances are 50 MB


def leaks(
    train: Dataset, seen: Sequence[Seen], other: Dataset, split: str, others: Sequence[Seen]
) -> Iterator[Finding]:
    """What an evaluation split shares with the training set."""
    owners = {one.sums["image"]: index for index, one in enumerate(seen) if "image" in one.sums}
    same = {i: owners[one.sums["image"]] for i, one in enumerate(others) if one.sums.get("image") in owners}
    alike = {i: j for i, j in _alike(seen, others).items() if i not in same}
    for pairs, how in ((same, "is"), (alike, "shows the same picture as")):
        for i, j in pairs.items():
            path = others[i].paths.get("image", "")
            reason = f"{how} the training image {seen[j].paths.get('image') or train.names[j]}"
            yield Finding("leaked_image", split, reason, str(path), other.names[i], i)
    scenes = {train.scene(index) for index in range(len(train))} - {""}
    shared: dict[str, list[int]] = {}
    for index in range(len(other)):
        if other.scene(index) in scenes:
            shared.setdefault(other.scene(index), []).append(index)
    for scene, members in shared.items():
        reason = f"scene '{scene}' is in the training set, too; {len(members):,} images of it are evaluated on"
        path = others[members[0]].paths.get("image", "")
        yield Finding("leaked_scene", split, reason, str(path), other.names[members[0]], members[0])


def _alike(seen: Sequence[Seen], others: Sequence[Seen]) -> dict[int, int]:
    """Positions in `others` whose thumbnail is that of a sample in `seen`."""
    (left, at), (right, beside) = _thumbs(seen), _thumbs(others)
    found: dict[int, int] = {}
    for start in range(0, len(right), ROWS):
        block = right[start : start + ROWS]
        # |a - b|^2 = |a|^2 - 2ab + |b|^2 finds the candidates in one product of matrices.
        distances = (block**2).sum(1)[:, None] - 2 * block @ left.T + (left**2).sum(1)
        for i, j in np.argwhere(distances < 256 * NEAR**2):
            if np.abs(block[i] - left[j]).max() <= NEAR:
                found.setdefault(beside[start + i], at[j])
    return found


def _thumbs(seen: Sequence[Seen]) -> tuple[Float32[np.ndarray, "n 256"], list[int]]:
    """Thumbnails that tell something, and the positions they are of."""
    thumbs = {i: thumb for i, one in enumerate(seen) if (thumb := one.look.thumb()) is not None and thumb.std() > PLAIN}
    rows = np.array(list(thumbs.values()), np.float32).reshape(-1, 256)
    return rows, list(thumbs)
