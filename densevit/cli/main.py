"""`densevit COMMAND ...`: finds the command, parses its options, turns errors into one message and an exit code.

Heavy imports wait until a command runs.
"""

import argparse
import difflib
import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NoReturn

from densevit.cli.commands import COMMANDS, Command
from densevit.cli.parser import call, find_function, make_parser
from densevit.errors import ConfigError, DensevitError, PartialError, Preempted, StorageError
from densevit.utils.docstrings import prose
from densevit.utils.process import (
    discard,
    error_prefix,
    interruptible,
    limit_spinning,
    open_standard_streams,
    print_once,
    tune_malloc,
)
from densevit.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; user errors become one message and an exit code, never a traceback."""
    with open_standard_streams():
        try:
            words = list(sys.argv[1:] if argv is None else argv)
            try:
                code = run(words)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
            lost = COMMANDS[words[0]].prints and getattr(sys.stdout, "lost", False)
            return code or (StorageError.exit_code if lost else 0)
        except BrokenPipeError:
            discard(sys.stdout)
            return 141  # as the shell says of a program that SIGPIPE ended


def run(argv: list[str]) -> int:
    if not argv or argv[0] not in COMMANDS:
        no_command(argv)
    name, command = argv[0], COMMANDS[argv[0]]
    function = find_function(command.function)
    parser = make_parser(f"densevit {name}", function)
    args, unknown = parser.parse_known_intermixed_args(argv[1:])  # overrides may stand behind options
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{near_option(unknown, parser)}")
    if not command.distributed and os.environ.get("RANK", "0") != "0":
        return 0  # the first process does it all
    if not command.distributed and (processes := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        print(f"{name} runs in one process: rank 0 of {processes} does all of it.", file=sys.stderr)
    if command.interruptible:
        tune_malloc()
        limit_spinning()
    try:
        with interruptible() if command.interruptible else nullcontext():
            result = call(function, args)
        if command.prints and result is not None:
            print_once(result)
        return getattr(result, "exit_code", 0)
    except (DensevitError, Preempted) as error:
        if isinstance(error, PartialError):
            print_once(error.summary)
        print(f"{error_prefix()}{error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.ENAMETOOLONG):  # what `Path.exists` raises until Python 3.13
            raise
        print(f"{error_prefix()}{error.filename}: {error.strerror}.", file=sys.stderr)
        return ConfigError.exit_code
    except KeyboardInterrupt:
        print("interrupted.", file=sys.stderr)
        return 130


def no_command(argv: list[str]) -> NoReturn:
    """Answer --help and --version, or say what was mistyped."""
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
    close = difflib.get_close_matches(args.command, COMMANDS, n=3)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else " `densevit --help` lists them."
    parser.error(f"no command '{args.command}'.{hint}")


def near_option(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Return what the first mistyped option may have meant."""
    options = [option for action in parser._actions for option in action.option_strings]
    words = (word.partition("=")[0] for word in unknown if word.startswith("-"))
    close = next((near for word in words if (near := difflib.get_close_matches(word, options, n=3))), [])
    return f". Did you mean {' or '.join(close)}?" if close else f". `{parser.prog} --help` lists the options."


def overview() -> str:
    """Return all commands in their groups, a line each."""
    lines = ["usage: densevit COMMAND ...", "", "Dense-prediction Vision Transformers: depth and segmentation."]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:14} {summary(c)}" for name, c in COMMANDS.items() if c.group == group]
    return "\n".join([*lines, "", "`densevit COMMAND --help` lists the options of one."])


def summary(command: Command) -> str:
    """Return the first sentence of a command's description, as far as a line goes."""
    first = prose(find_function(command.function)).split("\n")[0]
    return re.split(r"[.:;] |\.$", first)[0]


def tool(*words: str) -> NoReturn:
    """Run a command with the arguments of this process; what a script in `tools/` calls."""
    sys.exit(main([*words, *sys.argv[1:]]))
