"""What all tests share: one thread each (they run side by side), no network, and CUDA tests that skip cleanly."""

import gc
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("DENSEVIT_CACHE", "off")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from forked import ForkServer
from shell import Shell
from small import small_config

gc.disable()  # until all tests are collected: nothing of them is garbage


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
    os.fsync = lambda file: None  # milliseconds each; no test cuts the power


@pytest.fixture(autouse=True, scope="session")
def _images_of_reports() -> Iterator[Callable[..., Any]]:
    """Make the reports of trainings without images, at which hardly a test looks: they took 7% of the time of all."""
    from densevit.scorers import training_report

    samples = training_report._samples
    with patch.object(training_report, "_samples", lambda *_: {}):
        yield samples


@pytest.fixture(scope="module")
def report_images(_images_of_reports: Callable[..., Any]) -> Iterator[None]:
    """Make the reports of trainings with images, as they are outside of tests."""
    from densevit.scorers import training_report

    with patch.object(training_report, "_samples", _images_of_reports):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.enable()
    gc.freeze()  # modules and tests are no garbage: looking through them took 40% of a small training
    gc.get_freeze_count = lambda: 1  # and counting them, as each training does, took 80 ms


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # or extension modules report at the end that their objects were never freed


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder for one fixture of a module."""
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer(tmp_path_factory.mktemp("fork_server"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `data` and a `run` of one step, validated with a median scale. Nobody writes into it."""
    from densevit.cli.main import main

    folder = tmp_path_factory.mktemp("small_run")
    words = ["steps=1", "log_every=1", "validate_every=1", "tasks.depth.protocol=median_scale"]
    assert main(["train", str(small_config(folder)), *words]) == 0
    return folder


@pytest.fixture
def uncorrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps with measured points as the network gives them."""
    from densevit.inference import image_input
    from densevit.inference.point_fit import PointFit

    monkeypatch.setattr(image_input, "fit_to_points", lambda values, points, _: (values, PointFit(len(points))))


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of huggingface_hub, and a hub that does not answer."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")  # RFC 2606: never resolves
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"
