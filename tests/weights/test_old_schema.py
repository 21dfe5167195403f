"""A checkpoint that densevit 0.1.0 wrote in November 2026, before cards knew of runs, windows and spare tensors."""

from pathlib import Path

import numpy as np
import torch

import densevit
from densevit.weights.migrations import migrate_model

OLD = Path(__file__).parent / "old" / "schema_1.safetensors"
# What the code that wrote it said of a ramp of 3 x 32 x 48 numbers from 0 to 1, every 8th row and 12th column.
SAID = [
    2.920255, 2.917391, 2.923312, 2.912885, 3.221570, 3.070905, 3.061585, 3.065427,
    3.216279, 3.076629, 3.060505, 3.070126, 3.215644, 3.085014, 3.063430, 3.077427,
]  # fmt: skip


def test_it_loads_and_says_what_it_said() -> None:
    predictor = densevit.load(OLD, device="cpu", precision="fp32")
    ramp = torch.linspace(0, 1, 3 * 32 * 48).reshape(1, 3, 32, 48)
    with torch.no_grad():
        said = predictor.model(ramp)["depth"][0, 0, ::8, ::12].flatten().numpy()
    np.testing.assert_allclose(said, SAID, atol=2e-6)


def test_its_card_is_whole() -> None:
    card = densevit.load(OLD, device="cpu").card
    assert card.outputs["depth"].range == (0.001, 10.0)
    assert (card.resize.mode, card.resize.size, card.multiple, card.out_indices) == ("fixed", (32, 48), 8, (0, 1))
    assert card.scores == {"abs_rel": 0.1}
    assert card.config == {}


def test_options_of_older_cards_are_read_in_todays_names() -> None:
    model = {
        "decoder": {"type": "dpt", "tap_norm": "batch", "unit_bias": True},
        "decoders": {"far": {"type": "zoedepth", "fine": 8}},
        "heads": {"depth": {"type": "metric", "stretch": "bicubic"}},
    }
    today = {
        "decoder": {"type": "dpt", "reassemble_norm": "batch", "residual_bias": True},
        "decoders": {"far": {"type": "zoedepth", "head_hidden": 8}},
        "heads": {"depth": {"type": "metric", "interpolation": "bicubic"}},
    }
    assert migrate_model(model) == migrate_model(today) == today
