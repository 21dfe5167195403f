"""Older configs and states in today's names."""

import pytest

from densevit.weights.migrations import migrate_config, migrate_state


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
