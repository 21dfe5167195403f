from typing import Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from densevit.errors import ConfigError
from densevit.registry import Registry, did_you_mean, explain

PARTS = Registry[object]("decoder")


@PARTS.register("dpt")
class Dpt:
    def __init__(self, features: int, *, channels: int = 256, norm: Literal["batch", "layer"] = "batch") -> None:
        self.features, self.channels, self.norm = features, channels, norm


def problems_of(spec: dict[str, object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        PARTS.check(spec, "model.decoder")
    return caught.value.problems


def test_a_choice_builds_its_part_from_what_is_known_and_what_was_chosen() -> None:
    part = PARTS.check({"type": "dpt", "channels": 64}, "model.decoder").build(384)
    assert isinstance(part, Dpt)
    assert (part.features, part.channels, part.norm) == (384, 64, "batch")


def test_the_spec_of_a_choice_spells_out_defaults_and_checks_again() -> None:
    spec = PARTS.check({"type": "dpt"}, "x").spec()
    assert spec == {"type": "dpt", "channels": 256, "norm": "batch"}
    assert PARTS.check(spec, "x").spec() == spec


def test_all_faults_of_a_part_are_named_at_once_with_suggestions() -> None:
    assert problems_of({"type": "dpt", "chanels": 64, "norm": "none", "channels": "many"}) == (
        "model.decoder.channels: input should be a valid integer, unable to parse string as an integer, got 'many'.",
        "model.decoder.norm: input should be 'batch' or 'layer', got 'none'.",
        "model.decoder.chanels: no such option. Did you mean 'channels'?",
    )


def test_numbers_in_a_row_where_a_list_belongs_get_their_brackets() -> None:
    spec = TypeAdapter(tuple[float, float])
    with pytest.raises(ValidationError) as error:
        spec.validate_python("0.3,10")
    assert explain(error.value.errors(), {}, "data.depth_range", lambda _: ()) == [
        "data.depth_range: input should be a valid tuple, got '0.3,10'. Did you mean [0.3,10]?"
    ]


def test_what_the_program_knows_is_no_option() -> None:
    assert problems_of({"type": "dpt", "features": 3}) == (
        "model.decoder.features: no such option. Known: channels, norm, type.",
    )


def test_an_unknown_missing_or_mistyped_type_lists_what_there_is() -> None:
    assert problems_of({"type": "dtp"}) == ("model.decoder.type: no decoder 'dtp'. Did you mean 'dpt'?",)
    assert problems_of({}) == ("model.decoder.type: missing. Known: dpt.",)
    for spec in ({"typ": "dpt"}, {"type": "dpt", "typ": "dpt"}):
        assert problems_of(spec) == ("model.decoder.typ: no such option. Did you mean 'type'?",)


def test_unknown_keys_are_told_what_their_own_section_has() -> None:
    keys = ["steps", "optim.lr", "optim.eps", "tasks.depth.type", "tasks.depth.losses"]
    assert did_you_mean("zzz", keys, "optim") == " Known: optim.eps, optim.lr."
    assert did_you_mean("loses", keys, "tasks.depth") == " Did you mean 'tasks.depth.losses'?"


def test_registering_a_name_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'dpt' is registered twice"):
        PARTS.register("dpt")(Dpt)


def test_an_annotation_that_cannot_be_evaluated_is_a_fault_of_its_part() -> None:
    """Python 3.14 evaluates no annotation before it is looked at; earlier ones leave quoted ones."""

    class Later:
        def __init__(self, *, channels: "Undefined" = 64) -> None: ...

    parts = Registry[object]("decoder")
    parts.register("later")(Later)
    with pytest.raises(ConfigError, match=r"Later'>: its annotations cannot be evaluated: name 'Undefined' is not"):
        parts.check({"type": "later"}, "model.decoder")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("lr", "optim.lr"),
        ("wd", "optim.weight_decay"),
        ("batchsize", "batch_size"),
        ("weigth_decay", "optim.weight_decay"),
    ],
)
def test_habits_and_typos_find_the_full_path(word: str, hint: str) -> None:
    known = ["optim.lr", "optim.weight_decay", "batch_size", "steps"]
    assert did_you_mean(word, known) == f" Did you mean '{hint}'?"


def test_of_many_names_the_three_nearest_are_told() -> None:
    names = [f"option_{letter}" for letter in "abcdefghijklmnop"] + ["learning_rate", "weight_decay", "warmup"]
    hint = did_you_mean("zrate", names)
    assert hint.startswith(" Nearest of 19: ") and len(hint.split(", ")) == 3 and "learning_rate" in hint
