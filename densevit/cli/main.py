"""`densevit COMMAND ...`: finds the command, parses its options, turns errors into one message and an exit code.

Heavy imports wait until a command runs.
"""

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple, NoReturn

from densevit.errors import DensevitError, PartialError, Preempted
from densevit.utils.output import discard, error_prefix, open_standard_streams, print_once
from densevit.utils.signals import interruptible
from densevit.version import __version__


class Command(NamedTuple):
    """A module of `densevit.cli.commands`.

    Attributes:
        interruptible: works for long, and ends at a signal where nothing is half done.
        distributed: shares its work among the processes of torchrun.
    """

    module: str
    group: str
    summary: str
    interruptible: bool = False
    distributed: bool = False


COMMANDS = {
    "train": Command("train", "train", "train a model from a config", True, True),
    "init": Command("init", "train", "write a first config for a folder of your own"),
    "recipes": Command("recipes", "train", "list the configs that come with densevit, or print one"),
    "components": Command("components", "train", "list what a config can choose from, with all options"),
    "schema": Command("schema", "train", "print the JSON Schema of configs, for editors"),
    "completion": Command("completion", "train", "print a script that completes commands in bash or zsh"),
    "replay": Command("replay", "train", "repeat a training step that was skipped, and show where it went wrong"),
    "check-data": Command("check_data", "data", "validate a data set before training", True),
    "class-weights": Command("class_weights", "data", "count the classes of label maps; weights for a loss"),
    "eval-depth": Command("eval_depth", "evaluate", "score a checkpoint or saved depth maps by a protocol", True),
    "eval-seg": Command("eval_seg", "evaluate", "score a segmentation checkpoint or saved label maps", True),
    "eval-video": Command(
        "eval_video", "evaluate", "score depth over time: accuracy, flicker, alignment by poses", True
    ),
    "eval-normals": Command("eval_normals", "evaluate", "score surface normals, or the normals of depth", True),
    "eval-class": Command("eval_class", "evaluate", "score a checkpoint that classifies images", True),
    "eval-ordinal": Command("eval_ordinal", "evaluate", "score which of two points is closer (DA-2K)", True),
    "calibrate": Command("calibrate", "evaluate", "correct a checkpoint's metres by measured images", True),
    "compare": Command("compare", "evaluate", "tell whether one of two evaluations is better"),
    "protocols": Command("protocols", "evaluate", "list and explain the evaluation protocols"),
    "export-depth": Command("export_depth", "predict", "write depth maps for images", True, True),
    "export-seg": Command("export_seg", "predict", "write segmentation maps for images", True, True),
    "app": Command("app", "predict", "serve a local page to see what checkpoints predict"),
    "pseudo-label": Command("pseudo_label", "predict", "label images by a teacher, to train a student", True, True),
    "visualize-attention": Command("visualize_attention", "predict", "show a model's attention in one image"),
    "calibrate-uncertainty": Command(
        "calibrate_uncertainty", "models", "calibrate depth intervals on held-out images", True
    ),
    "inspect": Command("inspect", "models", "describe a checkpoint, ours or third-party"),
    "convert": Command("convert", "models", "write a checkpoint in another layout"),
    "export-onnx": Command("export_onnx", "models", "write a checkpoint as one ONNX file"),
    "export-pt2": Command("export_pt2", "models", "compile a checkpoint for C++ programs (AOTInductor)"),
    "export-web": Command("export_web", "models", "write a web page that predicts in the browser"),
    "benchmark": Command("benchmark", "models", "measure the speed here, beside other implementations"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; user errors become one message and an exit code, never a traceback."""
    with open_standard_streams():
        try:
            try:
                return run(list(sys.argv[1:] if argv is None else argv))
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except BrokenPipeError:
            discard(sys.stdout)
            return 141  # as the shell says of a program that SIGPIPE ended


def run(argv: list[str]) -> int:
    if not argv or argv[0] not in COMMANDS:
        no_command(argv)
    name, command = argv[0], COMMANDS[argv[0]]
    module = importlib.import_module(f"densevit.cli.commands.{command.module}")
    parser = argparse.ArgumentParser(f"densevit {name}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    args, unknown = parser.parse_known_intermixed_args(argv[1:])  # overrides may stand behind options
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{near_option(unknown, parser)}")
    if not command.distributed and os.environ.get("RANK", "0") != "0":
        return 0  # the first process does it all
    if not command.distributed and (processes := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        print(f"{name} runs in one process: rank 0 of {processes} does all of it.", file=sys.stderr)
    if command.interruptible:
        from densevit.utils.tuning import limit_spinning, tune_malloc

        tune_malloc()
        limit_spinning()
    try:
        with interruptible() if command.interruptible else nullcontext():
            if getattr(args, "plugin", None):
                from densevit.config import plugins

                plugins.load(args.plugin)
            return int(module.run(args))
    except (DensevitError, Preempted) as error:
        if isinstance(error, PartialError):
            print_once(error.summary)
        print(f"{error_prefix()}{error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted.", file=sys.stderr)
        return 130


def no_command(argv: list[str]) -> NoReturn:
    """Answers --help and --version, or says what was mistyped."""
    parser = argparse.ArgumentParser("densevit", usage="densevit COMMAND ...", add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("command", nargs="?")
    args = parser.parse_args(argv[:1])
    if args.help:
        print(overview())
        sys.exit(0)
    if args.command is None:
        parser.error("name a command; `densevit --help` lists them.")
    close = difflib.get_close_matches(args.command, COMMANDS, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else " `densevit --help` lists them."
    parser.error(f"no command '{args.command}'.{hint}")


def near_option(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """What the first mistyped option may have meant."""
    options = [option for action in parser._actions for option in action.option_strings]
    words = (word.partition("=")[0] for word in unknown if word.startswith("-"))
    close = next((near for word in words if (near := difflib.get_close_matches(word, options, n=1))), [])
    return f". Did you mean {close[0]}?" if close else f". `{parser.prog} --help` lists the options."


def overview() -> str:
    """All commands in their groups, a line each."""
    lines = ["usage: densevit COMMAND ...", "", "Dense-prediction Vision Transformers: depth and segmentation."]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:20} {command.summary}" for name, command in COMMANDS.items() if command.group == group]
    return "\n".join([*lines, "", "`densevit COMMAND --help` lists the options of one."])


def tool(name: str) -> NoReturn:
    """What a script in `tools/` calls."""
    sys.exit(main([name, *sys.argv[1:]]))
