"""Every recipe we ship means something: its options exist, and its model computes."""

import re
from pathlib import Path

import pytest
import torch
from toy_room_model import write_toy

from densevit.builder.model import build_card, build_model
from densevit.builder.plan import load_plan
from densevit.config import parser
from densevit.weights import hub

CONFIGS = sorted((Path(__file__).parents[1] / "configs").rglob("*.yaml"))
SMALL = [path for path in CONFIGS if not any(big in path.stem for big in ("vitb", "vitl"))]


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PACKAGED_FOLDER", write_toy(tmp_path / "toy"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_recipe_checks_and_opens_with_what_it_costs_and_earns(path: Path) -> None:
    assert load_plan(path).resolved(1000).steps
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert 2 <= len(header) <= 8
    assert any("score" in line.lower() for line in header)
    # A recipe without a score says what one would cost.
    for line in (line for line in header if "not measured" in line):
        assert re.search(r"not measured; it needs .+ ([\d.]+ H200-hours by calculation|TFLOP)", line)
    assert len(path.read_text().splitlines()) <= 48


@pytest.mark.slow
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_every_small_recipe_builds_a_model_that_predicts_in_its_range(path: Path) -> None:
    checked = load_plan(path, ["model.encoder.pretrained=false"] if "pretrained" in path.read_text() else [])
    plan = checked.model.for_classes(("first", "second"))  # where a recipe leaves them to its data
    model = build_model(plan).eval()
    card = build_card(model, plan)
    with torch.inference_mode():
        answers = model(torch.rand(1, 3, 70, 98))
    for name, output in card.outputs.items():
        if output.kind == "class":
            assert answers[name].shape == (1, len(output.classes), 1, 1)
            continue
        if output.kind == "labels":
            assert answers[name].shape == (1, len(output.classes), 70, 98)
            assert answers[name].isfinite().all()
            continue
        if output.kind in ("panoptic", "instances"):
            assert answers[name].shape[2:] == (70, 98)
            assert answers[f"{name}/classes"].numel() == answers[name].shape[1] * (len(output.classes) + 1)
            continue
        if output.kind == "query_classes":
            continue
        if output.kind == "normals":
            assert answers[name].shape == (1, 3, 70, 98)
            continue
        low, high = output.range or (0, float("inf"))
        assert answers[name].shape == (1, 1, 70, 98)
        assert low <= answers[name].min() and answers[name].max() <= high


def test_no_recipe_repeats_the_output_of_another() -> None:
    outputs = [parser.read(path)[0].output for path in CONFIGS]
    assert len(set(outputs)) == len(outputs)
