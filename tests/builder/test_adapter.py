"""A run with low-rank updates: what it trains, what its checkpoints hold, and the adapter file."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from shell import Shell
from small import small_config
from toy_models import save_network, toy_network

import densevit
from densevit.builder.adapter import write_encoder
from densevit.builder.checkpoint import open_checkpoint, restore
from densevit.cli.main import main
from densevit.models.timm_adapters.beit import TABLE
from densevit.weights.lora import is_update

LORA = ["model.encoder.lora.rank=4", "model.encoder.lora.dora=true", "optim.lr=1e-2", "optim.layer_decay=0.8"]
IMAGE = (torch.arange(48 * 64 * 3).reshape(48, 64, 3) % 251).to(torch.uint8).numpy()


def train(config: Path, output: Path, *words: str) -> Path:
    assert main(["train", str(config), f"output={output}", "steps=4", "validate_every=2", *words]) == 0
    return output


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    """`plain` was trained in full, `lora` from it with updates, which `adapter.safetensors` holds."""
    config = small_config(folder)
    train(config, folder / "plain")
    train(config, folder / "lora", *LORA, f"model.init_from={folder / 'plain'}")
    assert main(["convert", str(folder / "lora"), str(folder / "adapter.safetensors"), "--to", "adapter"]) == 0
    return folder


def test_the_encoder_stays_and_its_updates_learn(folder: Path) -> None:
    before, after = (open_checkpoint(folder / name / "checkpoints/last").tensors for name in ("plain", "lora"))
    best = open_checkpoint(folder / "plain").tensors
    for name, tensor in after.items():
        if is_update(name):
            assert not name.endswith("lora_b") or tensor.abs().sum() > 0
        elif name.startswith("encoder."):
            assert torch.equal(tensor, best[name])
    assert {name for name in after if not is_update(name)} == before.keys()


def test_a_loaded_model_is_merged_and_predicts_as_the_training_did(folder: Path) -> None:
    model, card = restore(folder / "lora")
    assert card.model["encoder"]["lora"] is None
    assert not [name for name in model.state_dict() if is_update(name)]
    assert main(["inspect", str(folder / "lora")]) == 0


def test_an_adapter_file_is_small_and_predicts_the_same(folder: Path, tmp_path: Path) -> None:
    path = folder / "adapter.safetensors"
    kept = load_file(path)
    assert {name for name in kept if name.startswith("encoder.") and not is_update(name)} == {
        "encoder.mean",
        "encoder.std",
    }
    expected = densevit.load(folder / "lora", device="cpu", precision="fp32")(IMAGE)
    found = densevit.load(path, device="cpu", precision="fp32")(IMAGE)
    assert (expected == found).all()
    merged = tmp_path / "merged.safetensors"
    assert main(["convert", str(path), str(merged), "--to", "densevit"]) == 0
    assert (densevit.load(merged, device="cpu", precision="fp32")(IMAGE) == expected).all()


@pytest.mark.slow
def test_an_adapter_goes_on_learning_by_init_from(folder: Path, tmp_path: Path) -> None:
    start = f"model.init_from={folder / 'adapter.safetensors'}"
    again = train(folder / "small.yaml", tmp_path / "again", start, "model.encoder=null")
    assert [name for name in open_checkpoint(again).tensors if is_update(name)]
    full = train(folder / "small.yaml", tmp_path / "full", start)  # its encoder has no updates
    assert not [name for name in open_checkpoint(full).tensors if is_update(name)]


@pytest.mark.slow
def test_an_adapter_whose_updates_went_on_learning_is_that_of_the_same_encoder(folder: Path, tmp_path: Path) -> None:
    run = train(folder / "small.yaml", tmp_path / "run", *LORA, f"model.init_from={folder / 'lora'}")
    assert main(["convert", str(run), str(tmp_path / "adapter.safetensors"), "--to", "adapter"]) == 0
    expected, found = (
        densevit.load(x, device="cpu", precision="fp32")(IMAGE) for x in (run, tmp_path / "adapter.safetensors")
    )
    assert (expected == found).all()


def test_an_adapter_without_its_encoder_says_what_to_name(folder: Path, tmp_path: Path, shell: Shell) -> None:
    other = train(folder / "small.yaml", tmp_path / "other", "seed=1")
    path, place = folder / "adapter.safetensors", folder / "plain"
    place.rename(folder / "moved")
    try:
        told = shell.refused("convert", path, tmp_path / "a.safetensors", "--to", "densevit")
        assert "--family-options base=FILE" in told
        base = ["--family-options", f"base={folder / 'moved'}"]
        assert main(["convert", str(path), str(tmp_path / "a.safetensors"), "--to", "densevit", *base]) == 0
        base = ["--family-options", f"base={other}"]
        told = shell.refused("convert", path, tmp_path / "b.safetensors", "--to", "densevit", *base)
        assert "trained on other weights" in told
    finally:
        (folder / "moved").rename(place)


SMALL_HYBRID = {"dim": 32, "depth": 2, "heads": 2, "widths": [128] * 3, "depths": [1] * 3, "stem": 32, "image_size": 48}
SMALL_BEIT = {"img_size": 32, "embed_dim": 32, "depth": 1, "num_heads": 2}


@pytest.mark.parametrize(
    ("encoder", "key"),
    [
        ({"type": "hybrid", **SMALL_HYBRID}, "vit.blocks.0.attn.qkv.weight"),
        ({"type": "timm", "name": "beit_base_patch16_224", "arguments": SMALL_BEIT}, f"blocks.0.attn.{TABLE}"),
    ],
)
def test_the_file_of_an_encoder_goes_into_others(tmp_path: Path, encoder: dict[str, Any], key: str) -> None:
    network = toy_network(encoder=encoder)
    path = tmp_path / "encoder.safetensors"
    write_encoder(path, open_checkpoint(save_network(tmp_path / "ours", network)))
    assert key in load_file(path)
    again, _ = toy_network(encoder={**encoder, "weights": str(path)}, std=None)
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in network[0].state_dict().items() if "enc" in name)


def test_updates_and_a_frozen_encoder_exclude_each_other(folder: Path, shell: Shell) -> None:
    words = ["model.encoder.lora.rank=4", "model.freeze_encoder=true"]
    told = shell.refused("train", folder / "small.yaml", *words)
    assert "model.freeze_encoder: model.encoder.lora freezes the encoder itself" in told
    told = shell.refused("convert", folder / "plain", folder / "x.safetensors", "--to", "adapter")
    assert "no low-rank updates" in told
