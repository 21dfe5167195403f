"""`densevit list components`: what can be chosen, from the components' own signatures and docstrings."""

from pathlib import Path
from typing import Any

import pytest
from shell import Shell

from densevit.config.json_schema import load_shipped_schema
from densevit.models.decoders.base import DECODERS
from densevit.registry import schema

PLUGIN = '''
from densevit.models.decoders.base import DECODERS, Decoder

@DECODERS.register("mine")
class Mine(Decoder):
    """Sums all maps.

    Args:
        width, height: of the sum,
            in cells.
    """
    def __init__(self, features, prefix_tokens, *, width: int, height: int = 3) -> None: ...
'''


def said(shell: Shell, *words: object) -> str:
    return shell("list", "components", *words).out


def test_all_components_are_listed_by_kind(shell: Shell) -> None:
    lines = dict(line.split(maxsplit=1) for line in said(shell).splitlines())
    assert lines["decoder"].split(", ") == sorted(load_shipped_schema().decoders.components)
    depth: Any = load_shipped_schema().tasks.components["depth"]
    assert lines["depth_loss"].split(", ") == sorted(depth.loss_registry.components)


def test_a_component_shows_every_option_with_type_default_and_meaning(shell: Shell) -> None:
    text = said(shell, "decoder", "dpt")
    assert [line.split(":")[0] for line in text.splitlines() if "; default " in line] == list(
        schema(load_shipped_schema().decoders.components["dpt"]).model_fields
    )
    assert "channels: integer > 0; default 256\n    channels of every fusion block and of the output; Depth" in text
    assert "name: string; required" in said(shell, "encoder", "timm")


def test_keys_of_the_config_are_listed_by_section_and_one_by_one(shell: Shell) -> None:
    assert "lr: number > 0; default 0.0001\n    Learning rate" in said(shell, "optim")
    assert said(shell, "schedule.warmup").startswith("warmup: number from 0; default 0.05\n    Steps of the warm-up")
    assert "clip_stride: integer from 1" in said(shell, "data") and "seed: integer" in said(shell, "run")
    assert "optim" in said(shell).splitlines()[-1]


def test_components_of_a_plugin_are_listed_too(tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DECODERS, "components", dict(DECODERS.components))  # so that no other test sees it
    (tmp_path / "mine.py").write_text(PLUGIN)
    assert said(shell, "decoder", "mine", "--plugins", tmp_path / "mine.py").startswith(
        "Sums all maps.\n\nwidth: integer; required\n    of the sum, in cells.\n\nheight: integer; default 3\n"
    )


def test_a_wrong_name_gets_a_suggestion(shell: Shell) -> None:
    for words, told in ((["decoder", "dtp"], "no decoder 'dtp'. Did you mean 'dpt'?"), (["decodr"], "mean 'decoder'?")):
        assert told in shell.refused("list", "components", *words)
