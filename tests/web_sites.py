"""A small model and the npm package, for the tests of web pages."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from toy_models import save_network, toy_network

from densevit.inference.web.export import PACKAGE

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SIZE = (64, 80)
ENCODER = {"depth": 1, "patch_size": 16, "image_size": 64, "out_indices": 1}
HEADS = {
    "depth": {"type": "metric", "max_depth": 20},
    "classes": {"type": "segmentation", "classes": ["wall", "floor", "table"]},
    "normals": {"type": "normals"},
}


def save_model(folder: Path) -> None:
    """A checkpoint with random weights: depth, classes and normals."""
    save_network(folder, toy_network(HEADS, std=None, encoder=ENCODER))


def runtime_package(folder: Path) -> Path:
    """The npm package, fetched into `folder`; the test is skipped without npm or a network."""
    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm is not installed")
    command = [npm, "pack", PACKAGE, "--prefer-offline", "--ignore-scripts", "--silent"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm fetches no {PACKAGE}: {done.stderr[-200:]}")
    return folder / done.stdout.split()[-1]
