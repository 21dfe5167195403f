"""Published weights: from the cache without a network; whether there is one."""

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from densevit.errors import CheckpointError, ConfigError
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.timm_adapters.factory import pretrained_cfg_overlay
from densevit.utils.network import is_reachable


def snapshot_of(cache: Path) -> Path:
    snapshot = cache / "models--timm--test_vit.r160_in1k" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    return snapshot


class Code:
    """A pickle of it makes a folder where it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


def test_pickled_weights_in_the_cache_run_no_code(hub_cache: Path, tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "more": Code(tmp_path / "made")}, snapshot_of(hub_cache) / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"encoder\.pretrained: the weights of 'test_vit': .*"):
        TimmEncoder(name="test_vit", pretrained=True)
    with pytest.raises(ConfigError, match=r"encoder\.arguments: checkpoint_path loads weights; use encoder\.weights"):
        TimmEncoder(name="test_vit", arguments={"checkpoint_path": "a.pth"})
    assert not (tmp_path / "made").exists()


def test_weights_in_the_cache_need_no_network(hub_cache: Path) -> None:
    source = timm.create_model("test_vit")
    snapshot = snapshot_of(hub_cache)
    save_file(source.state_dict(), snapshot / "model.safetensors")
    encoder = TimmEncoder(name="test_vit", pretrained=True)
    assert encoder.licence == "apache-2.0"
    assert torch.equal(encoder.vit.blocks[3].mlp.fc2.weight, source.blocks[3].mlp.fc2.weight)


def test_a_model_nobody_has_published_weights_for_says_so() -> None:
    with pytest.raises(ConfigError, match="no weights are published for 'vit_small_patch32_224x'"):
        pretrained_cfg_overlay("vit_small_patch32_224x", None)


def test_a_listening_server_is_reachable_and_a_silent_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_reachable(f"http://127.0.0.1:{port}")
    assert not is_reachable(f"http://127.0.0.1:{port}")
    assert not is_reachable("")


def test_a_proxy_is_asked_instead_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert is_reachable("https://hub.invalid")


def test_a_name_server_that_hangs_does_not_hold_us(monkeypatch: pytest.MonkeyPatch) -> None:
    release, ended = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> None:
        release.wait(60)
        ended.set()
        raise OSError

    monkeypatch.setattr(socket, "create_connection", hang)
    assert not is_reachable("http://127.0.0.1")
    assert not ended.is_set()
    release.set()
