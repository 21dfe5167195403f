"""A small model and the npm package, for the tests of web pages."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from densevit.builder.checkpoint import parse_model
from densevit.builder.model import build_card, build_model
from densevit.inference.web.runtime import PACKAGE
from densevit.weights import hub

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SIZE = (64, 80)
SPEC = {
    "encoder": {"type": "vit", "dim": 24, "depth": 1, "heads": 2, "patch_size": 16, "image_size": 64, "out_indices": 1},
    "decoder": {"type": "linear"},
    "heads": {
        "depth": {"type": "metric", "max_depth": 20},
        "classes": {"type": "segmentation", "classes": ["wall", "floor", "table"]},
        "normals": {"type": "normals"},
    },
}


def save_model(folder: Path) -> None:
    """A checkpoint with random weights: depth, classes and normals."""
    torch.manual_seed(0)
    plan = parse_model(SPEC, "test")
    model = build_model(plan)
    hub.save_pretrained(folder, model.state_dict(), build_card(model, plan))


def runtime_package(folder: Path) -> Path:
    """The npm package, fetched into `folder`; the test is skipped without npm or a network."""
    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm is not installed")
    command = [npm, "pack", PACKAGE, "--prefer-offline", "--ignore-scripts", "--silent"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm fetches no {PACKAGE}: {done.stderr[-200:]}")
    return folder / done.stdout.split()[-1]
