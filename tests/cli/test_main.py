"""The command line: quick help, and user errors that are one message and an exit code."""

import errno
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from unittest.mock import Mock

import pytest
from shell import Shell
from small import small_config

from densevit.api import load
from densevit.cli.main import COMMANDS
from densevit.cli.parser import call, find_function, inherited_parameters, make_parser, parameters
from densevit.errors import ConfigError
from densevit.inference.writers import DEPTH_FORMATS
from densevit.utils.docstrings import arguments

TOOLS = Path(__file__).parents[2] / "tools"
HEAVY = {"torch", "timm", "albumentations", "cv2", "numpy", "pydantic", "skimage", "h5py", "tqdm"}


def python(code: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, **options)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, contextlib; from densevit.cli.main import main\n"
        "for words in [[], *([name] for name in sys.argv[1:])]:\n"
        "    with contextlib.suppress(SystemExit): main([*words, '--help'])\n"
        f"    print('HEAVY', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = python(code, *COMMANDS, check=True)
    assert done.stdout.count("usage:") == done.stdout.count("HEAVY []") == len(COMMANDS) + 1
    assert [name for name in DEPTH_FORMATS.components if not re.search(rf"\b{name}\b", done.stdout)] == []


def test_every_script_in_tools_runs_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They need no installation: train, evaluate and export depth from a source tree."""
    for path in sorted(TOOLS.glob("*.py")):
        monkeypatch.setattr(sys, "argv", [str(path), "--help"])
        with pytest.raises(SystemExit):
            runpy.run_path(str(path), run_name="__main__")
    assert re.findall(r"usage: densevit (\S+)", capsys.readouterr().out) == ["eval", "predict", "train"]


def test_help_lists_every_command_in_its_group_on_a_line(shell: Shell) -> None:
    lines = shell("--help").out.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["train:", "evaluate:", "predict:", "models:"]
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == sorted(COMMANDS)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tarin"], "no command 'tarin'. Did you mean 'train'?"),
        (["qqq"], "`densevit --help` lists them."),
        ([], "name a command"),
        (["eval", "--dat", "nyu"], "unrecognized arguments: --dat. Did you mean --data"),
        (["eval", "run", "--task", "dept"], "invalid choice: 'dept'"),
        (["predict", "run", "a.jpg", "--output", "x", "--batch-size", "0"], "--batch-size: 1 or more; got '0'"),
        (["predict", "run", "a.jpg", "--output", "x", "--range", "1"], "--range: 2 numbers, as 1,2; got '1'"),
        (["train", "c.yaml", "--resum=last"], "Did you mean --resume?"),
        (["train", "c.yaml", "--qqq"], "`densevit train --help` lists the options."),
    ],
)
def test_a_mistyped_command_gets_a_suggestion_and_exit_code_2(words: list[str], message: str, shell: Shell) -> None:
    assert message in shell.refused(*words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_of_a_command_is_declared_with_its_meaning_by_its_function(name: str) -> None:
    function = find_function(COMMANDS[name].function)
    own, inherited = parameters(function), inherited_parameters(function)
    assert own.keys() | inherited.keys() >= {"plugins"} or name in WITHOUT_PLUGINS
    assert own.keys() <= arguments(function).keys()
    assert inherited.keys() <= arguments(load).keys()
    actions = [action for action in make_parser(name, function)._actions if action.dest != "help"]
    assert {action.dest for action in actions} == own.keys() | inherited.keys()
    assert all(action.help for action in actions)


# A config names its own; the others need none.
WITHOUT_PLUGINS = ("train", "init", "completion", "benchmark")


def command(
    images: Sequence[str | Path],
    /,
    *words: str,
    size: tuple[int, int] | Literal["any"] | None = None,
    heads: Sequence[str] = (),
    files: Sequence[str | Path] = (),
    options: Mapping[str, Any] | None = None,
    resume: bool | str = False,
    flip: bool | None = None,
    fast: bool = False,
    scale: float = 0.5,
    count: Annotated[int, 1] = 2,
    module: "Path | None" = None,
) -> dict[str, Any]:
    return {name: value for name, value in locals().items() if name not in ("heads", "files")} | {
        "heads": list(heads), "files": list(files)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b", {"images": [Path("a"), Path("b")], "size": None, "scale": 0.5, "heads": []}),
        ("a --size 480,640", {"size": (480, 640)}),
        ("a --size 480x640 --count 3", {"size": (480, 640), "count": 3}),
        ("a --size any --flip --fast", {"size": "any", "flip": True, "fast": True}),
        ("a --no-flip --resume", {"flip": False, "resume": True, "fast": False}),
        ("a --resume last --scale 1e-3", {"resume": "last", "scale": 0.001}),
        ("a --heads x,y --heads z", {"heads": ["x", "y", "z"]}),
        ("a --files x,y --files z", {"files": [Path("x,y"), Path("z")]}),
        ("a --options k=1,l=0.5 --options m=text", {"options": {"k": 1, "l": 0.5, "m": "text"}}),
        ("a --options k=1,l=[2,3],m-n=a,b", {"options": {"k": 1, "l": [2, 3], "m-n": "a,b"}}),
    ],
)
def test_words_become_the_arguments_of_a_function(line: str, expected: dict[str, Any]) -> None:
    parser = make_parser("command", command)
    assert "module" not in {action.dest for action in parser._actions}
    found = call(command, parser.parse_args(line.split()))
    assert {name: found[name] for name in expected} == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ev", {"eval"}),
        ("list comp", {"components"}),
        ("train --re", {"--resume"}),
        ("train nyu_dinov2_vits_d", {"nyu_dinov2_vits_dpt"}),
        ("predict --prec", {"--precision"}),
    ],
)
def test_the_shell_completes_commands_options_and_recipes(line: str, found: set[str], shell: Shell) -> None:
    words, script = ["densevit", *line.split()], shell("completion", "bash").out
    script += f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _densevit\n"
    done = subprocess.run(["bash", "-c", script + 'echo "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
    assert (set(done.stdout.split()), done.stderr) == (found, "")
    assert "bashcompinit" in shell("completion", "zsh").out


ENTRY = "import sys; from densevit.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize(
    ("words", "codes"), [(["list", "components"], {141}), (["eval", "--task", "depth", "--help"], {0, 141})]
)
def test_a_reader_of_the_output_that_goes_away_is_no_traceback(words: list[str], codes: set[int]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as gone:
        done = subprocess.run([sys.executable, "-c", ENTRY, *words], stdout=gone, stderr=subprocess.PIPE, text=True)
    assert done.returncode in codes  # argparse of Python 3.11.7, not of 3.11.2, swallows that nobody reads its help
    assert done.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="shell redirections of POSIX")
@pytest.mark.parametrize(
    ("words", "closed", "code"),
    [("list components", ">&-", 0), ("list components", "2>&-", 0), ("list components decodr", "2>&-", 2)],
)
def test_closed_standard_streams_are_no_fault(words: str, closed: str, code: int) -> None:
    command = f'"$0" -c "$1" {words} {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable, ENTRY], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    assert bool(done.stdout) == (closed == "2>&-" and code == 0)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_work_goes_on_when_nobody_reads_its_messages_any_more() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "import sys; from densevit.cli.main import open_standard_streams\nwith open_standard_streams():\n"
    code += "    for i in range(3): print('message', file=sys.stderr, flush=True)\n    print('done')"
    with os.fdopen(write) as gone:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=gone, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk as Linux has it")
def test_a_full_disk_for_standard_output_ends_no_work_and_is_told() -> None:
    code = "import sys; from densevit.cli.main import open_standard_streams\nwith open_standard_streams():\n"
    code += "    for i in range(3): print('banner', flush=True)\n    print('done', file=sys.stderr)"
    for argv, ends in ((["-c", code], (0, "done")), (["-c", ENTRY, "list", "components"], (2, ""))):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, *argv], stdout=full, stderr=subprocess.PIPE, text=True)
        told, *more = done.stderr.splitlines()
        assert told == "warning: standard output is lost from here on (No space left on device)."
        assert (done.returncode, "".join(more)) == ends


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENAMETOOLONG])
def test_a_path_that_cannot_be_looked_up_is_one_message(
    code: int, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until Python 3.13 `Path.exists` raises there; later ones say that nothing is there."""
    monkeypatch.setattr(Path, "exists", Mock(side_effect=OSError(code, os.strerror(code), "/theirs/photo.jpg")))
    told = shell.refused("predict", "densevit:rooms", "/theirs/photo.jpg")
    assert told == f"error: /theirs/photo.jpg: {os.strerror(code)}.\n"


def test_a_command_of_one_process_runs_once_under_torchrun(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    assert shell("list", "protocols") == ("", "")
    monkeypatch.setenv("RANK", "0")
    printed = shell("list", "protocols")
    assert "nyu_eigen" in printed.out
    assert "list runs in one process: rank 0 of 4 does all of it" in printed.err


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("data.train.depth_scale=null", "depth_scale"),
        ("model.init_from=/nowhere.safetensors", "no such file"),
        ("device=cuda:99", "cuda:99"),
        ("plugins=[mine.py]", "plugins: no such file"),
    ],
)
def test_what_a_run_lacks_is_reported_before_it_starts(tmp_path: Path, shell: Shell, word: str, message: str) -> None:
    assert message in shell.refused("train", str(small_config(tmp_path)), word)
    assert not list(tmp_path.glob("run/*.csv"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.txt", "hello", "mine.txt is no Python file"),
        ("torn.py", "\ndef (", r"torn.py:2: SyntaxError"),
        ("wrong.py", "import math\nmath.nothing", r"wrong.py:2: AttributeError"),
    ],
)
def test_a_plugin_that_fails_is_reported_with_its_line(
    tmp_path: Path, shell: Shell, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    for _ in range(2):  # the second time is no better
        assert message in shell.refused("train", small_config(tmp_path), f"plugins=[{tmp_path / name}]")
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, plugins=str(tmp_path / name))  # in Python a file by itself, too


def test_a_data_set_that_hides_a_method_by_an_attribute_is_refused_with_its_line(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "mine.py").write_text(
        "from densevit.data.datasets.base import DATASETS, Dataset\n"
        "@DATASETS.register('hides_for_test')\n"
        "class Mine(Dataset):\n"
        "    def __init__(self):\n"
        "        self.names = ['a']\n"
        "        self.files = ['a.jpg']\n"
        "    def read(self, index): ...\n"
    )
    error = shell("check-data", "hides_for_test", "--plugins", tmp_path / "mine.py", code=2).out
    assert (
        "mine.py:6: class Mine sets self.files, which is a method" in error and "depth_map, files, label_map" in error
    )


def test_a_model_that_does_not_fit_into_memory_is_reported(tmp_path: Path, shell: Shell, monkeypatch) -> None:
    def too_large(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes")

    monkeypatch.setattr("densevit.builder.training.build_model", too_large)
    assert "model: does not fit into memory" in shell.refused("train", small_config(tmp_path))


def test_a_run_that_cannot_go_on_keeps_its_config(tmp_path: Path, shell: Shell) -> None:
    path = small_config(tmp_path)
    shell("train", path, "steps=1")
    before = (tmp_path / "run/config.yaml").read_text()
    assert "does not fit the model" in shell.refused("train", path, "model.encoder.dim=64", "--resume")
    assert (tmp_path / "run/config.yaml").read_text() == before
