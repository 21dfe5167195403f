"""The shipped signatures say what the parts say, and a config that they refuse is refused without torch."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import ForkServer
from pydantic import TypeAdapter
from scorecard.test_input_faults import VALUES
from small import small_config

from densevit.builder import plan
from densevit.cli.main import main
from densevit.config import json_schema, validation
from densevit.config.parser import Draft
from densevit.errors import ConfigError
from densevit.losses.depth import DEPTH_LOSSES
from densevit.registries import REGISTRIES
from densevit.registry import Registry, schema

STAND_INS = json_schema.load_shipped_schema()
TASKS = [(REGISTRIES.tasks.components[name], STAND_INS.tasks.components[name]) for name in REGISTRIES.tasks.components]
PAIRS: list[tuple[Registry, Registry]] = [
    *((getattr(REGISTRIES, name), getattr(STAND_INS, name))
      for name in ("encoders", "decoders", "heads", "tasks", "transforms", "datasets")),
    *((real.loss_registry, stand_in.loss_registry) for real, stand_in in TASKS),  # type: ignore[attr-defined]
]  # fmt: skip

# Values that fit some option and not others.
ODD = [
    *(None, True, 0, 1, -1, 2, 70_000, 0.5, -0.5, 200.0, float("inf"), float("nan"), "", "x", "batch", "auto", "8"),
    *([], [1], [1, 2], [0.0, 0.5], [2, 1], [1, 2, 3], [1, 2, 3, 4], [[0.1, 0.2]], ["a", "b"], {}, {"a": 1}, {"a": {}}),
]


def test_the_shipped_schema_is_that_of_the_parts(fork_server: ForkServer) -> None:
    """In a process of its own: other tests register parts of theirs."""
    assert json_schema.SHIPPED.read_text() == fork_server.run("list", "schema"), (
        "run: densevit list schema > densevit/config/config.schema.json"
    )


def test_every_key_of_a_config_has_a_description() -> None:
    tree = json.loads(json_schema.SHIPPED.read_text())
    mix = tree["$defs"]["data_set.mix"]["properties"]["sources"]["items"]
    sections = {"Run": tree, "Source": mix, **{k: v for k, v in tree["$defs"].items() if "." not in k}}
    keys = [
        (name, key, option) for name, node in sections.items() for key, option in node.get("properties", {}).items()
    ]
    assert len(keys) > 100
    assert [f"{name}.{key}" for name, key, option in keys if not option.get("description", "").endswith(".")] == []


def own(registry: Registry) -> dict[str, Any]:
    return {name: part for name, part in registry.components.items() if part.__module__.startswith("densevit.")}


def refusals(registry: Registry, spec: dict) -> list[str]:
    try:
        registry.check(spec, "here")
    except ConfigError as error:
        return error.problems
    return []


@pytest.mark.parametrize(("real", "stand_in"), PAIRS, ids=lambda registry: registry.kind)
def test_a_stand_in_refuses_what_the_part_refuses_in_the_same_words(real: Registry, stand_in: Registry) -> None:
    assert real.kind == stand_in.kind and list(own(real)) == list(stand_in.components)
    later = 0  # what only the part's own validators refuse
    for name, part in own(real).items():
        needed = {key: "x" for key, field in schema(part).model_fields.items() if field.is_required()}
        for option in [*schema(part).model_fields, "nonsense"]:
            for value in ODD:
                spec = {"type": name, **needed, option: value}
                said, known = refusals(stand_in, spec), refusals(real, spec)
                assert said == known or not said, (spec, said, known)
                later += said != known
    assert later <= 2 * len(ODD), later


@pytest.mark.parametrize(("real", "stand_in"), PAIRS, ids=lambda registry: registry.kind)
def test_a_stand_in_has_the_options_and_defaults_of_the_part(real: Registry, stand_in: Registry) -> None:
    for name, part in own(real).items():
        ours, theirs = (
            {p.name: p.default for p in inspect.signature(f).parameters.values() if p.kind is p.KEYWORD_ONLY}
            for f in (stand_in.components[name], part)
        )
        plain = TypeAdapter(dict).dump_python({k: v for k, v in theirs.items() if v is not inspect.Parameter.empty})
        assert ours.keys() == theirs.keys(), name
        for key, value in plain.items():
            assert json.loads(json.dumps(value, default=str)) == ours[key], (name, key)


CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*/*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_recipe_passes_the_first_check(path: Path) -> None:
    validation.check(Draft.read(path))


def test_a_wrong_config_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from densevit.cli.main import main; code = main(sys.argv[1:]); print(code, 'torch' in sys.modules)"
    )
    words = ["optim.lrr=1", "model.encoder.depht=3", "model.decoder.type=linaer", "tasks.depth.protocol=nyu_eigne",
             "tasks.depth.losses.0.type=silogg", "data.train.split=trian"]  # fmt: skip
    config = small_config(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code, "train", config, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2", "False"]
    assert len(done.stderr.splitlines()) == len(words)
    with pytest.raises(ConfigError) as caught:
        plan.load_plan(config, words)
    for problem in caught.value.problems:
        assert problem in done.stderr


# What only code that needs torch can tell: a part's own rules, timm's names, devices, folders.
LATE = {
    "model.heads.depth.min_depth=20",
    "data.train.depth_range=[5, 1]",
    "model.encoder={type: timm, name: vit_tiny_patch16_22}",
    "model.encoder.heads=3",
    "device=gpu",
    "device=meta",
    "model.encoder.std=[0, 1, 1]",
    "model.encoder.out_indices=[9]",
    "data.val.root=/nowhere",
}
EARLY = """
import json, sys
sys.modules["torch"] = None  # whoever imports it gets an ImportError
from densevit.config import validation
from densevit.config.parser import Draft
from densevit.errors import ConfigError
for word in json.loads(sys.argv[2]):
    try:
        validation.check(Draft.read(sys.argv[1], [word]))
        print(word)
    except ConfigError:
        pass
"""


def test_wrong_values_are_refused_before_torch_is_imported_unless_only_the_part_knows(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EARLY, str(small_config(tmp_path)), json.dumps(list(VALUES))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) == LATE


def test_options_that_a_checkpoint_may_fill_in_are_not_missed(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    words = ["model.init_from=hf:someone/something", "model.encoder={type: timm}", "model.decoder=null"]
    validation.check(Draft.read(config, words))
    with pytest.raises(ConfigError, match="no such option"):
        validation.check(Draft.read(config, [words[0], "model.encoder={type: timm, nmae: x}"]))


def test_parts_of_a_plugin_are_left_to_it(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    validation.check(Draft.read(config, ["plugins=[mine.py]", "model.encoder.type=mine"]))


def test_components_that_a_program_has_registered_are_known_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(DEPTH_LOSSES, "components", {**DEPTH_LOSSES.components, "mine": DEPTH_LOSSES.components["l1"]})
    words = ["tasks.depth.losses=[{type: mine}]", "data.train.root=/nowhere"]
    assert main(["train", str(small_config(tmp_path)), *words]) == 2
    assert "no data at /nowhere" in capsys.readouterr().err  # and no word of the loss: the data is opened last
