"""Addresses on the hub: from the cache without a network, a quick word where there is neither, and saving."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import seeded
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

import densevit
from densevit.errors import CheckpointError
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.weights import hub
from densevit.weights.readers import read_tensors

SMALL = Path(__file__).parent / "old" / "schema_1.safetensors"


def put(cache: Path, repository: str) -> Path:
    """A snapshot as huggingface_hub keeps one."""
    home = cache / f"models--{repository.replace('/', '--')}"
    snapshot = home / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("a" * 40)
    return snapshot


@pytest.mark.parametrize(
    ("fetch", "way_out"),
    [
        (lambda: densevit.load("hf:owner/name"), "hf download owner/name"),
        (lambda: TimmEncoder(name="test_vit", pretrained=True), r"model\.encoder\.pretrained=false"),
    ],
    ids=["a model", "an encoder"],
)
def test_out_of_reach_is_said_at_once_with_the_way_out_also_to_a_user_who_ruled_the_network_out(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch, fetch: Callable[[], object], way_out: str
) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)  # as huggingface_hub does before it tries again
    with pytest.raises(CheckpointError, match=rf"hub\.invalid is unreachable.*{way_out}"):
        fetch()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set"):
        fetch()


def test_a_model_in_the_cache_needs_no_network_and_its_name_tells_the_family(hub_cache: Path) -> None:
    snapshot = put(hub_cache, "depth-anything/Depth-Anything-V2-Metric-VKITTI-Small")
    torch.save(seeded.read("depth_anything_v2").state(), snapshot / "depth_anything_v2_metric_vkitti_vits.pth")
    card = densevit.load("hf:depth-anything/Depth-Anything-V2-Metric-VKITTI-Small", device="cpu").card
    assert card.outputs["depth"].range == (0.0, 80.0)


def test_ours_is_loaded_from_the_cache_and_its_file_by_name(hub_cache: Path) -> None:
    snapshot = put(hub_cache, "me/rooms")
    (snapshot / "model.safetensors").write_bytes(SMALL.read_bytes())
    one, two = (densevit.load(name, device="cpu") for name in ("hf:me/rooms", "hf:me/rooms@main/model.safetensors"))
    assert one.card == two.card
    assert one.card.trained_on == "{'type': 'nyu'}"


def test_the_file_that_is_named_is_read_also_beside_the_one_that_would_be_taken(hub_cache: Path) -> None:
    snapshot = put(hub_cache, "depth-anything/Depth-Anything-V2-Metric-VKITTI-Small")
    state = seeded.read("depth_anything_v2").state()
    torch.save(state, snapshot / "pytorch_model.bin")
    save_file({name: torch.zeros_like(tensor) for name, tensor in state.items()}, snapshot / "model.safetensors")
    address = "hf:depth-anything/Depth-Anything-V2-Metric-VKITTI-Small"
    loaded = (densevit.load(f"{address}{file}", device="cpu") for file in ("", "/pytorch_model.bin"))
    assert [bool(one.model.encoder.vit.cls_token.any()) for one in loaded] == [False, True]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf:me/rooms", hub.Address("me/rooms", None, "")),
        ("hf:me/rooms@v1", hub.Address("me/rooms", "v1", "")),
        ("hf:me/rooms@v1/a/b.pth", hub.Address("me/rooms", "v1", "a/b.pth")),
    ],
)
def test_addresses_say_repository_revision_and_file(text: str, address: hub.Address) -> None:
    assert hub.parse(text) == address
    assert str(address) == text


def test_the_packaged_model_has_no_options_of_a_family() -> None:
    with pytest.raises(CheckpointError, match="densevit:rooms: holds no published weights"):
        densevit.load("densevit:rooms", family_options={"max_depth": 10})


def test_an_address_without_owner_is_refused() -> None:
    with pytest.raises(CheckpointError, match="hf:owner/name"):
        hub.parse("hf:rooms")


def test_the_model_among_a_repositorys_files_is_chosen_or_asked_for() -> None:
    address = hub.Address("me/rooms", None, "")

    def chosen(*names: str) -> Sequence[str]:
        return hub.select_files(address, names)

    assert chosen("README.md", "a.pth") == ["a.pth"]
    assert chosen("config.json", "pytorch_model.bin", "model.safetensors") == ["model.safetensors", "config.json"]
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert chosen("model.safetensors.index.json", *shards) == ["model.safetensors.index.json", *shards]
    with pytest.raises(CheckpointError, match="2 files of weights; say which, as hf:me/rooms/a.pth"):
        chosen("a.pth", "b.pth")
    with pytest.raises(CheckpointError, match="no weights"):
        chosen("README.md")


def test_save_pretrained_makes_a_folder_that_loads(tmp_path: Path) -> None:
    predictor = densevit.load(SMALL, device="cpu", precision="fp32")
    predictor.save_pretrained(tmp_path / "model")
    again = densevit.load(tmp_path / "model", device="cpu", precision="fp32")
    assert again.card == predictor.card
    image = seeded.picture((32, 48))
    assert np.array_equal(predictor(image), again(image))
    assert "license_name: unknown" in (tmp_path / "model/README.md").read_text()
    with pytest.raises(CheckpointError, match="exists already"):
        predictor.save_pretrained(tmp_path / "model")


@pytest.fixture
def sent(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is pushed to a hub that takes everything."""
    sent: dict[str, Any] = {}

    class Api:
        def create_repo(self, name: str, **options: Any) -> None:
            sent["repository"] = (name, options["private"])

        def upload_folder(self, *, folder_path: Path, **_: Any) -> None:
            sent["files"] = sorted(path.name for path in folder_path.iterdir())
            sent["tensors"] = len(read_tensors(folder_path / "model.safetensors"))
            sent["page"] = (folder_path / "README.md").read_text()

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(hub, "is_reachable", lambda server: True)
    return sent


def test_push_to_hub_uploads_what_save_pretrained_saves(sent: dict[str, Any]) -> None:
    predictor = densevit.load(SMALL, device="cpu")
    assert predictor.push_to_hub("me/rooms", private=True) == "hf:me/rooms"
    assert sent["repository"] == ("me/rooms", True)
    assert sent["files"] == ["README.md", "model.safetensors"]
    assert sent["tensors"] == len(predictor.model.state_dict())


@pytest.mark.parametrize(
    ("licence", "field", "note"),
    [
        ("dinov3-license", "license_name: dinov3-license", "only under the DINOv3 License, with a copy of it"),
        ("DINOv3 License", "license_name: DINOv3 License", "only under the DINOv3 License, with a copy of it"),
        ("unknown", "license_name: unknown", "is not recorded"),
        ("apache-2.0", "license: apache-2.0", ""),
    ],
)
def test_push_and_page_say_what_the_licence_asks_for(
    sent: dict[str, Any], caplog: pytest.LogCaptureFixture, licence: str, field: str, note: str
) -> None:
    predictor = densevit.load(SMALL, device="cpu")
    predictor.with_options(card=replace(predictor.card, licence=licence)).push_to_hub("me/rooms")
    assert field in sent["page"] and note in sent["page"] and note in caplog.text
    assert bool(note) == bool(caplog.records)


def test_saving_without_a_network_says_so_at_once(hub_cache: Path) -> None:
    with pytest.raises(CheckpointError, match="unreachable.*save_pretrained"):
        densevit.load(SMALL, device="cpu").push_to_hub("me/rooms")


def test_every_known_repository_names_a_family_that_takes_its_options() -> None:
    from densevit.weights.external import FAMILIES

    for row in hub.KNOWN.values():
        FAMILIES.check({"type": row.family, **row.options}, "family").build()
        assert json.dumps(dict(row.options))
