"""`densevit COMMAND ...`, and the doors in `tools/`. Heavy imports wait until a command runs."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NoReturn

from densevit.errors import DensevitError, Preempted
from densevit.utils.signals import interruptible
from densevit.version import __version__

COMMANDS = {
    "train": "train a model from a config",
    "components": "list what a config can choose from, with all options",
    "schema": "print the JSON Schema of a config, for editors",
    "replay": "do a step again that training skipped, and see where it went wrong",
    "check-data": "examine data sets before anyone loses a night on them",
    "class-weights": "count the classes of label maps, and weigh them for a loss",
    "eval-depth": "score a checkpoint, or saved depth maps, by a protocol",
    "compare": "say whether one of two evaluations is better",
    "protocols": "list and explain the evaluation protocols",
    "eval-ordinal": "score which of two points is closer, as people labelled them (DA-2K)",
    "eval-class": "score a checkpoint that classifies images",
    "eval-seg": "score a checkpoint that classifies pixels, or saved label maps",
    "visualize-attention": "show where a model looks in one picture",
    "inspect": "say what a checkpoint is, ours or a stranger's",
    "convert": "write a checkpoint in another layout",
    "export-depth": "write depth maps for images",
    "export-seg": "write classes of pixels for images",
    "export-onnx": "write a checkpoint as one ONNX file for other programs",
    "benchmark": "measure how fast it is here, beside other implementations",
}

# Those that work for long: they look for a signal as they go, end where nothing is half done, and keep memory.
STOPPABLE = {
    "train",
    "check-data",
    "eval-depth",
    "eval-ordinal",
    "eval-class",
    "eval-seg",
    "export-depth",
    "export-seg",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; user errors become one message and an exit code, never a traceback."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] not in COMMANDS:
        parser = argparse.ArgumentParser(
            "densevit", description="Dense-prediction Vision Transformers.", epilog=_epilog()
        )
        parser.add_argument("--version", action="version", version=__version__)
        parser.add_argument("command", choices=COMMANDS, help="what to do; COMMAND --help says more", metavar="COMMAND")
        parser.format_usage = lambda: "usage: densevit COMMAND ...\n"  # type: ignore[method-assign]
        parser.parse_args(argv[:1])
    name, rest = argv[0], argv[1:]
    module = importlib.import_module(f"densevit.cli.commands.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(f"densevit {name}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    args = parser.parse_intermixed_args(rest)  # overrides may stand behind options
    if name in STOPPABLE:
        from densevit.utils.malloc import tune_malloc

        tune_malloc()
    try:
        with interruptible() if name in STOPPABLE else nullcontext():
            return int(module.run(args))
    except (DensevitError, Preempted) as error:
        print(f"{_rank()}{error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted.", file=sys.stderr)
        return 130


def tool(name: str) -> NoReturn:
    """What a script in `tools/` calls."""
    sys.exit(main([name, *sys.argv[1:]]))


def _epilog() -> str:
    return "commands: " + "; ".join(f"{name}: {what}" for name, what in COMMANDS.items())


def _rank() -> str:
    rank = os.environ.get("RANK", "0")
    return "error: " if rank == "0" else f"error (rank {rank}): "
