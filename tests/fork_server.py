"""A process that has imported densevit once and forks a child for each command, since an import takes seconds.

It reads a JSON object a line, and answers with one: {"start": {...}} gives the pid, {"wait": pid} the exit code.
A child is the leader of its own process group; its output goes to files. What is to go wrong in it is named by `fault`,
one of `scorecard/faults.py`.
"""

import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback

from scorecard import faults

PATIENCE = 100.0  # seconds; generous, since the machine may be busy


def main() -> None:
    import torch
    import torch._dynamo  # or the first optimiser of each child would

    import densevit.api.evaluation
    import densevit.api.training  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # or a collection in a child would copy all pages
    for line in sys.stdin:
        order = json.loads(line)
        answer = start(**order["start"]) if "start" in order else wait(order["wait"])
        print(json.dumps(answer), flush=True)


def start(argv: list[str], out: str, err: str, fault: str = "", env: dict[str, str] | None = None) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setsid()
        os.environ.update(env or {})
        for stream, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        faulthandler.dump_traceback_later(0.8 * PATIENCE, file=2)  # should it hang, its stacks are in what it printed
        code = run(argv, fault)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(argv: list[str], fault: str) -> int:
    from densevit.cli.main import main as command

    if fault:
        name, _, argument = fault.partition(":")
        getattr(faults, name)(argument)
    try:
        return command(argv)
    except SystemExit as ended:  # argparse
        return int(ended.code or 0)


def wait(pid: int) -> int:
    """The exit code; a child that does not end is ended."""
    deadline = time.monotonic() + PATIENCE
    while not (done := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(done[1])


if __name__ == "__main__":
    main()
