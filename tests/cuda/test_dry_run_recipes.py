"""Every recipe at its real size on the stand-in, without numbers, within its budget.

`python benchmarks/cuda_dry_run.py --budgets` writes the budgets anew, for a change that is meant to cost more or less.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dry_run import BUDGETS, IMAGES, RECIPES, Found, budget, dry_run, plan_of

pytestmark = [pytest.mark.fake_cuda, pytest.mark.slow]

MORE = 1.02  # of kernels and bytes: a change of timm's or torch's is no fault
PROGRAM = Path(__file__).with_name("compiled_recipes.py")


def check(found: Found, allowed: dict[str, float]) -> None:
    now = budget(found)
    assert now["waits"] <= allowed["waits"], f"a step waits for the device: {found.said}"
    assert now["casts"] <= allowed["casts"], f"{now['casts']} casts, where {allowed['casts']} are allowed"
    assert now["prediction_waits"] <= allowed["prediction_waits"], f"waits of a prediction: {found.prediction_waits}"
    for name in ("kernels", "kept_mb", "constant_mb", "prediction_kernels"):
        assert now[name] <= MORE * allowed[name] + 1, f"{name}: {now[name]}, where {allowed[name]} are allowed"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_recipe_stays_within_its_budget(recipe: str, tmp_path: Path) -> None:
    allowed = json.loads(BUDGETS.read_text())
    found = dry_run(plan_of(recipe), tmp_path, shapes_only=True, images=IMAGES)
    check(found, allowed[recipe])


def test_the_compiled_blocks_of_each_recipe_have_no_more_graphs_and_breaks_than_allowed() -> None:
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, budgets = json.loads(done.stdout.splitlines()[-1]), json.loads(BUDGETS.read_text())
    assert found.keys() == budgets.keys()
    more = {recipe: now for recipe, now in found.items() if any(now[key] > budgets[recipe][key] for key in now)}
    assert not more


def test_a_number_that_is_read_in_a_step_exceeds_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from densevit.losses.depth import SILog

    original = SILog.forward

    def looking(self, pred, target, valid):
        loss = original(self, pred, target, valid)
        loss.item()
        return loss

    monkeypatch.setattr(SILog, "forward", looking)
    found = dry_run(plan_of("depth/rooms"), tmp_path, shapes_only=True, images=IMAGES)
    with pytest.raises(AssertionError, match="1 x item at"):
        check(found, json.loads(BUDGETS.read_text())["depth/rooms"])
