"""Compiled blocks: graphs and breaks, counted; FSDP on a group of eight of which only the first is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("compiled_graphs.py")


@pytest.mark.slow
def test_blocks_that_are_alike_share_a_graph_without_breaks_also_in_bf16_under_fsdp_and_of_dinov3() -> None:
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("error")[0] < 1e-6
    # A rate of stochastic depth is a constant of a graph.
    assert found == {
        "alone": [1, 0], "bf16": [1, 0], "fsdp": [1, 0], "dinov3": [1, 0], "drop_path": [12, 0],
        # Stages of decoders have sizes of their own; those of UPerNet are torch's own Sequential.
        "fsdp, dpt": [9, 0], "fsdp, upernet": [11, 0],
    }  # fmt: skip
