"""docs/architecture.md: what it adds to the seams runs as it stands there, as one plug-in."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small import small_config

import densevit
from densevit.data.fields import FIELDS
from densevit.engine.logger import read_csv
from densevit.evaluation.depth.metrics import METRIC_SETS
from densevit.evaluation.scores import METRICS, find_metric
from densevit.model_inputs import INPUT_KINDS
from densevit.models.conditioning.base import CONDITIONINGS
from densevit.models.decoders.base import DECODERS
from densevit.objectives import OBJECTIVES
from densevit.output_kinds import OUTPUT_KINDS

PAGE = (Path(__file__).parents[1] / "docs/architecture.md").read_text()
ADDED: list[tuple[Any, str]] = [
    (DECODERS.components, "pointwise"), (CONDITIONINGS.components, "gravity"), (OBJECTIVES.components, "smooth"),
    (OUTPUT_KINDS, "flow_x"), (METRIC_SETS, "near"), (METRICS["depth"], "near_mae"),
    (FIELDS, "gravity"), (INPUT_KINDS, "gravity"),
]  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    seams = PAGE[PAGE.index("## Seams") : PAGE.index("## The nouns")]
    path = small_config(tmp_path)
    (tmp_path / "seams.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", seams, re.DOTALL)))
    yield path
    for table, name in ADDED:
        table.pop(name, None)


def test_every_addition_of_the_page_is_registered_trained_and_scored(config: Path) -> None:
    run = densevit.train(
        config,
        plugins=[str(config.parent / "seams.py")],
        steps=2,
        log_every=1,
        objective={"type": "smooth", "weight": 0.5},
        **{"model.decoder": {"type": "pointwise", "channels": 8}, "model.conditioning": {"gravity": {}}},
    )
    assert [name for table, name in ADDED if name not in table] == []
    assert all(row["variation"] > 0 for row in read_csv(config.parent / "run/train.csv"))
    data = {"type": "folder", "root": str(config.parent / "data"), "depth_scale": 1000}
    scores = densevit.evaluate(run.predictor, data, metrics=["near"]).scores
    assert 0 < scores["near_mae"] < 10 and find_metric("depth", "near_mae").better == "min"
