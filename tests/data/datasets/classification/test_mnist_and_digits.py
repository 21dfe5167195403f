"""MNIST's official idx files, whole or not, where people keep them, and scikit-learn's digits."""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from densevit.data.datasets.classification.digits import Digits
from densevit.data.datasets.classification.mnist import Mnist
from densevit.data.loading.dataloader import EvalLoader
from densevit.errors import DataError

COUNT = 24  # of which the last 2 are `val`


def idx(values: np.ndarray) -> bytes:
    """As on the MNIST page: two zeros, type 8 (bytes), the number of dimensions, big-endian sizes, the bytes."""
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def pixels(count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def write(folder: Path, prefix: str = "train", zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"images-idx3": idx(pixels()), "labels-idx1": idx(np.arange(COUNT, dtype=np.uint8) % 10)}
    for name, content in contents.items():
        path = folder / f"{prefix}-{name}-ubyte{'.gz' * zipped}"
        path.write_bytes(gzip.compress(content) if zipped else content)
    return folder


@pytest.mark.parametrize("below", [".", "MNIST/raw", "raw"])
@pytest.mark.parametrize("zipped", [False, True])
def test_pictures_and_digits_are_those_of_the_files(tmp_path: Path, below: str, zipped: bool) -> None:
    write(tmp_path / below, zipped=zipped)
    data = Mnist(root=tmp_path, split="train+val")
    sample = data.read(13)
    assert (len(data), sample.name, sample.label) == (COUNT, "train_00013", 3)
    assert sample.image.shape == (28, 28, 3)
    for channel in range(3):
        np.testing.assert_array_equal(sample.image[..., channel], pixels()[13])


def test_train_and_val_share_nothing_and_make_the_training_files_together(tmp_path: Path) -> None:
    write(tmp_path)
    train, val = (Mnist(root=tmp_path, split=split) for split in ("train", "val"))  # type: ignore[arg-type]
    assert (len(train), len(val)) == (22, 2)
    assert [*train.names, *val.names] == list(Mnist(root=tmp_path, split="train+val").names)
    np.testing.assert_array_equal(val.read(1).image[..., 0], pixels()[23])


def test_the_test_files_are_others_and_a_batch_carries_the_digits(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte: not found, nor"):
        Mnist(root=tmp_path, split="test")
    write(tmp_path, "t10k")
    assert Mnist(root=tmp_path, split="test").names[0] == "t10k_00000"
    batch = next(iter(EvalLoader(Mnist(root=tmp_path), batch_size=3)))
    assert batch.label.tolist() == [0, 1, 2] and batch.image.shape == (3, 3, 28, 28)


def test_missing_and_damaged_files_are_told_apart(tmp_path: Path) -> None:
    for root, told in (("gone", "no data at"), (".", "no MNIST files")):
        with pytest.raises(DataError, match=told):
            Mnist(root=tmp_path / root)
    write(tmp_path)
    whole = (tmp_path / "train-images-idx3-ubyte").read_bytes()
    no_idx = "train-images-idx3-ubyte: not a whole idx file"
    for kind, content, told in (
        *(("images", bad, no_idx) for bad in (whole[:-100], whole[:10], b"", b"not an idx file at all", whole + b"1")),
        ("images", idx(np.zeros((COUNT, 28, 27), np.uint8)), "not 28x28 uint8"),
        ("images", idx(pixels(COUNT - 1)), "23 images and 24 labels"),
        ("labels", idx(np.full(COUNT, 10, np.uint8)), "label 10"),
        ("images", gzip.compress(whole)[:-200], "not a whole idx file"),
    ):
        write(tmp_path)
        damaged = tmp_path / f"train-{kind}-idx{3 if kind == 'images' else 1}-ubyte"
        if content.startswith(b"\x1f\x8b"):
            damaged = damaged.rename(f"{damaged}.gz")
        damaged.write_bytes(content)
        with pytest.raises(DataError, match=told):
            Mnist(root=tmp_path)


def test_nothing_is_fetched_unless_asked_and_a_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import MNIST

    def offline(self: MNIST) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(MNIST, "download", offline)
    with pytest.raises(DataError, match="no data at"):
        Mnist(root=tmp_path / "new")
    with pytest.raises(DataError, match="cannot be fetched .no network"):
        Mnist(root=tmp_path / "new", download=True)


def test_every_picture_is_in_one_part_and_is_scikit_learns() -> None:
    found = pytest.importorskip("sklearn.datasets").load_digits()
    parts = [Digits(split=split) for split in ("train", "val", "test")]  # type: ignore[arg-type]
    assert sorted(name for part in parts for name in part.names) == [f"{i:04d}" for i in range(1797)]
    assert [len(part) for part in parts] == [1199, 299, 299]
    for part in parts:
        sample = part.read(7)
        i = int(sample.name)
        assert sample.label == found.target[i]
        np.testing.assert_array_equal(sample.image[..., 1], np.rint(found.images[i] * 255 / 16))


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install 'densevit\[digits\]'"):
        Digits()
