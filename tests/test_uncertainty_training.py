"""A model learns its depth as it would without the uncertainty."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from densevit.cli.main import main as command
from tests.small import small_config


@pytest.mark.slow
def test_all_other_weights_are_the_same_to_the_bit(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    weights = []
    for uncertainty in ("null", "laplace"):
        output = tmp_path / uncertainty
        words = [f"model.heads.depth.uncertainty={uncertainty}", "optim.clip_grad=0.1", f"output={output}"]
        assert command(["train", str(config), "steps=3", "device=cpu", *words]) == 0
        weights.append(load_file(output / "checkpoints/last/model.safetensors"))
    plain, with_it = weights
    added = with_it.keys() - plain.keys()
    assert added and all(".uncertainty." in name for name in added)
    for name, value in plain.items():
        assert torch.equal(value, with_it[name]), name
