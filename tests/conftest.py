"""What all tests share: one thread each (they run side by side), no network, and CUDA tests that skip cleanly."""

import gc
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("DENSEVIT_CACHE", "off")

from collections.abc import Iterator

import pytest
import torch
from forked import ForkServer
from shell import Shell


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # modules and tests are no garbage: looking through them took 40% of a small training


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # or extension modules report at the end that their objects were never freed


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer(tmp_path_factory.mktemp("fork_server"))
    yield server
    server.close()


@pytest.fixture
def uncorrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps with measured points as the network gives them."""
    from densevit.inference import measured_points
    from densevit.inference.point_fit import PointFit

    monkeypatch.setattr(measured_points, "fit_to_points", lambda values, points, _: (values, PointFit(len(points))))
