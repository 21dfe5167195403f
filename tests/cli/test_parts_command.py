"""`densevit components`: what can be chosen, told from the parts' own signatures and docstrings."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from densevit.cli.main import main
from densevit.config.json_schema import load_shipped_schema
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


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["components", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_all_parts_are_listed_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    lines = dict(line.split(maxsplit=1) for line in said(capsys).splitlines())
    assert lines["decoder"].split(", ") == sorted(load_shipped_schema().decoders.parts)
    depth: Any = load_shipped_schema().tasks.parts["depth"]
    assert lines["depth_loss"].split(", ") == sorted(depth.objectives.parts)


def test_a_part_tells_every_option_with_type_default_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "decoder", "dpt")
    assert [line.split(":")[0] for line in text.splitlines() if "; default " in line] == list(
        schema(load_shipped_schema().decoders.parts["dpt"]).model_fields
    )
    assert "channels: integer > 0; default 256\n    of every fusion and of the output; Depth Anything has" in text
    assert "name: string; required" in said(capsys, "encoder", "timm")


def test_parts_of_a_plugin_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    code = "import sys; from densevit.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "components", "decoder", "mine", "--plugin", str(tmp_path / "mine.py")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.startswith(
        "Sums all maps.\n\nwidth: integer; required\n    of the sum, in cells.\n\nheight: integer; default 3\n"
    )


def test_a_wrong_name_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["components", "decoder", "dtp"]) == 2
    assert "no decoder 'dtp'. Did you mean 'dpt'?" in capsys.readouterr().err
    assert main(["components", "decodr"]) == 2
    assert "Did you mean 'decoder'?" in capsys.readouterr().err
