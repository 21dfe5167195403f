"""A checkpoint that densevit 0.1.0 wrote in November 2026, and older configs and states in today's names."""

from pathlib import Path

import numpy as np
import pytest
import torch

import densevit
from densevit.weights.migrations import migrate_config, migrate_model, migrate_state

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


def test_inputs_beside_images_of_an_older_checkpoint_are_today_s_conditionings() -> None:
    predictor = densevit.load(OLD.with_name("inputs.safetensors"), device="cpu", precision="fp32")
    assert predictor.card.conditioning == {
        "rays": {"hidden": 64},
        "motion": {"heads": 2, "frames": 2},
        "points": {"hidden": 4},
    }
    ramp = torch.linspace(0, 1, 2 * 3 * 32 * 48).reshape(2, 3, 32, 48)
    points = torch.zeros(2, 1, 32, 48)
    points[:, :, 3::10, 5::10] = 2.0
    inputs = {"camera": torch.tensor([[40.0, 40.0, 23.5, 15.5]] * 2), "clips": torch.tensor([[0, 1]]), "points": points}
    with torch.no_grad():
        said, alone = (predictor.model(ramp, given)["depth"][:, 0, ::16, ::16].flatten() for given in (inputs, {}))
    # What the code that wrote it said, in November 2026.
    np.testing.assert_allclose(said[:6], [2.231289, 1.604724, 1.524259, 2.182332, 1.701367, 1.185097], atol=2e-6)
    np.testing.assert_allclose(said[6:], [2.210904, 1.64128, 1.735481, 2.282623, 2.109787, 1.762942], atol=2e-6)
    np.testing.assert_allclose(alone[:4], [2.328796, 1.875176, 1.820495, 2.435374], atol=2e-6)


def test_what_alone_was_trained_is_named_in_an_older_config() -> None:
    model = {"camera": "rays", "temporal": {"type": "attention", "heads": 8, "freeze_rest": True}, "prompt": "none"}
    assert migrate_model(model) == {
        "conditioning": {"rays": {"hidden": 64}, "motion": {"heads": 8}, "points": None},
        "trainable": ["conditioning.motion"],
    }


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


@pytest.mark.parametrize(
    ("pretrain", "objective"), [(None, {"type": "supervised"}), ({"type": "mae", "dim": 8}, {"type": "mae", "dim": 8})]
)
def test_a_pretraining_of_before_is_an_objective(pretrain: object, objective: object) -> None:
    assert migrate_config({"steps": 1, "pretrain": pretrain}) == {"steps": 1, "objective": objective}


def test_options_of_the_supervised_objective_stood_beside_it() -> None:
    aligned = {"encoder": {"type": "vit"}}
    old = {"loss_weighting": "uncertainty", "align_features": aligned, "objective": {"type": "supervised"}}
    options = {"loss_weighting": "uncertainty", "align_features": aligned}
    assert migrate_config(old) == {"objective": {"type": "supervised", **options}}
    assert migrate_config({"balance": "fixed", "pretrain": {"type": "mae"}}) == {"objective": {"type": "mae"}}


@pytest.mark.parametrize("name", ["balance", "loss_weighting"])
def test_the_learned_weights_of_losses_belong_to_the_objective(name: str) -> None:
    state = migrate_state({"step": 1, name: {"log_variances": 2.0}})
    assert state == {"step": 1, "objective": {"loss_weighting.log_variances": 2.0}}


def test_data_sets_have_todays_types_in_mixtures_and_probes_too() -> None:
    source = {"name": "web", "data": {"type": "tar", "root": "x"}, "weight": 1}
    old = {"train": {"type": "mix", "sources": [source]}, "val": {"type": "tar"}, "probe": {"type": "motorcycle"}}
    new = {**source, "data": {"type": "webdataset", "root": "x"}}
    assert migrate_config({"data": old})["data"] == {
        "train": {"type": "mix", "sources": [new]},
        "val": {"type": "webdataset"},
        "probe": {"type": "middlebury_motorcycle"},
    }
