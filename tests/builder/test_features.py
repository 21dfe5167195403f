"""`data.cache_features`: the frozen encoder runs once a view, and the training is the same without it."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from small import small_config

from densevit.cli.main import main
from densevit.data.loading import feature_cache
from densevit.data.loading.feature_cache import FeatureCache, count, flatten, hash_image, shapes_of, unflatten
from densevit.errors import DataError
from densevit.models.encoders.vit import ViTEncoder
from densevit.structures import EncoderOutput

FP32 = ["data.cache_features.views=2", "data.cache_features.dtype=fp32"]
FROZEN = ["model.freeze_encoder=true", "steps=6", "validate_every=6"]


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "checkpoints/last/model.safetensors")


def train(folder: Path, name: str, *words: str) -> int:
    return main(["train", str(folder / "small.yaml"), f"output={folder / name}", *FROZEN, *words])


def cached(folder: Path, *more: str) -> list[str]:
    return [f"data.cache_features.folder={folder / 'features'}", *more]


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    small_config(folder)
    assert train(folder, "cached", *cached(folder, *FP32)) == 0
    shutil.copytree(folder / "features", folder / "whole")
    return folder


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the images that the encoder gets while it trains."""
    found: list[tuple[int, ...]] = []
    forward = ViTEncoder.forward

    def counted(self: ViTEncoder, image: torch.Tensor) -> EncoderOutput:
        found.append(tuple(image.shape))
        return forward(self, image)

    monkeypatch.setattr(ViTEncoder, "forward", counted)
    return found


@pytest.mark.slow
def test_the_encoder_runs_once_a_view_whatever_the_steps(folder: Path, calls: list[Any]) -> None:
    """6 images in 2 views; 6 steps of 4 are 4 epochs. Validation has 6 images in batches of 4 or 2."""
    assert train(folder, "more", *cached(folder, "data.cache_features.views=2")) == 0  # fp16: other files
    assert sum(shape[0] for shape in calls if shape[-2:] == (48, 64)) >= 12
    calls.clear()
    assert train(folder, "again", *cached(folder, "data.cache_features.views=2"), "optim.lr=1e-4") == 0
    assert [shape for shape in calls if shape[-2:] == (48, 64)] == []


def test_the_weights_are_those_of_a_training_without_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same views, but through the encoder in every step."""
    monkeypatch.setattr("densevit.api.training.feature_cache", lambda *given: None)
    words = cached(folder, *FP32)
    assert train(folder, "uncached", *words) == 0
    one, other = weights(folder / "cached"), weights(folder / "uncached")
    for name, tensor in one.items():
        assert torch.allclose(tensor, other[name], atol=2e-6), name


@pytest.mark.slow
def test_another_encoder_or_other_transforms_are_cached_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = cached(folder, *FP32)
    capsys.readouterr()
    assert train(folder, "same", *words) == 0
    assert "data.cache_features:" not in capsys.readouterr().err
    assert train(folder, "seed", *words, "seed=1") == 0
    said = capsys.readouterr().err
    assert "data.cache_features: 12 views, 0.00 GB in float32, under" in said
    assert train(folder, "transforms", *words, "data.transforms=[{type: resize, size: [48, 64]}]") == 0
    assert "12 views" in capsys.readouterr().err


@pytest.mark.slow
def test_a_changed_image_is_found_and_no_other_image_s_features_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_config(tmp_path)
    assert train(tmp_path, "one", *cached(tmp_path)) == 0
    image = tmp_path / "data/images/003.jpg"
    Image.fromarray(np.zeros((60, 80, 3), np.uint8)).save(image)
    assert train(tmp_path, "two", *cached(tmp_path)) == 2
    assert "'003'" in (said := capsys.readouterr().err)
    assert "has changed since" in said
    for file in tmp_path.glob("features/*/views-*.json"):
        file.unlink()
    assert train(tmp_path, "three", *cached(tmp_path)) == 0
    (folder,) = (path for path in tmp_path.glob("features/*") if path.is_dir())
    assert len(FeatureCache(folder, np.dtype(np.float16))) == 7  # six, and the new one


def test_a_full_disk_is_one_error_before_and_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_config(tmp_path)
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("densevit.utils.atomic_io.shutil.disk_usage", lambda path: usage)
    assert train(tmp_path, "full", *cached(tmp_path)) == 2
    assert "no room for" in capsys.readouterr().err
    assert not list(tmp_path.glob("features/*/*"))
    monkeypatch.undo()

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(feature_cache.atomic_io, "_fsync", full)
    assert train(tmp_path, "full", *cached(tmp_path)) == 2
    assert "no room" in capsys.readouterr().err
    assert not [path for path in tmp_path.glob("features/*/*") if path.suffix in (".bin", ".json")]


def test_what_cannot_be_cached_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = cached(folder)
    assert main(["train", str(folder / "small.yaml"), f"output={folder / 'x'}", *words]) == 2
    assert "set model.freeze_encoder" in capsys.readouterr().err


def test_rows_come_back_and_what_is_too_large_for_fp16_is_an_error(tmp_path: Path) -> None:
    maps, prefix = (torch.randn(2, 4, 3, 5), torch.randn(2, 6, 2, 2)), (torch.randn(2, 1, 4), torch.zeros(2, 0, 6))
    output = EncoderOutput(maps, prefix, (48, 80))
    cache = FeatureCache(tmp_path, np.dtype(np.float32))
    images = [np.full((8, 8, 3), i, np.uint8) for i in range(2)]
    names = [hash_image(image) for image in images]
    assert names[0] != names[1]
    cache.write(names, shapes_of(output), flatten(output, cache.dtype), "")
    again = FeatureCache(tmp_path, cache.dtype).read(images[::-1], ["b", "a"])
    assert again.image_size == (48, 80)
    for one, other in zip((*output.maps, *output.prefix), (*again.maps, *again.prefix), strict=True):
        assert torch.equal(one.flip(0), other)
    assert all(x.stride(1) == 1 for x in again.maps)  # channels last, else a trainer's convolutions reorder them
    assert count(shapes_of(output)) == 60 + 24 + 4
    assert unflatten(torch.from_numpy(flatten(output, cache.dtype)), shapes_of(output)).prefix[1].shape == (2, 0, 6)
    output.maps[0][0, 0, 0, 0] = 70_000
    with pytest.raises(DataError, match="65504: set data.cache_features.dtype to fp32"):
        flatten(output, np.dtype(np.float16))
    with pytest.raises(DataError, match="'c': .* no features of this image"):
        cache.read([np.full((8, 8, 3), 9, np.uint8)], ["c"])


@pytest.mark.parametrize(
    "damage",
    [
        "values",
        "no checksum",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("shard cut", "shard nested", "views cut")),
    ],
)
def test_damaged_features_are_made_anew(
    folder: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "whole", tmp_path / "features")
    name = "views-*.json" if damage == "views cut" else "shard-*.bin" if damage == "values" else "shard-*.json"
    file = next(tmp_path.glob(f"features/*/{name}"))
    before = file.read_bytes()
    if damage == "values":
        file.write_bytes(before[:100] + bytes([before[100] ^ 1]) + before[101:])
    elif damage == "no checksum":
        file.write_text(json.dumps({k: v for k, v in json.loads(before).items() if k != "sha256"}))
    else:
        file.write_bytes(b"[" * 100_000 if damage == "shard nested" else before[:50])
    capsys.readouterr()
    assert train(folder, damage, *cached(tmp_path, *FP32)) == 0
    assert ("is damaged; its features are made anew" in capsys.readouterr().err) == (damage != "views cut")
    assert file.read_bytes() == before
    one, other = weights(folder / "cached"), weights(folder / damage)
    assert all(torch.equal(one[name], other[name]) for name in one)
