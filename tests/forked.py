"""Commands of densevit run in forked processes, for tests; see `fork_server.py`."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

HERE = Path(__file__).parent
PATIENCE = 120.0  # seconds; generous, since the machine may be busy


@dataclass
class Child:
    """A running command."""

    server: "ForkServer"
    pid: int
    out: Path
    err: Path

    def signal(self, number: int, *, group: bool = False) -> None:
        (os.killpg if group else os.kill)(self.pid, number)

    def wait(self) -> int:
        return int(self.server.ask(wait=self.pid))

    def wait_for(self, text: str) -> None:
        """Until the text stands in what it has printed."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.out.read_text() + self.err.read_text():
            assert time.monotonic() < deadline, f"'{text}' never came: {self.err.read_text()}"
            time.sleep(0.005)


class ForkServer:
    """Runs densevit's commands in forked processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fork_server.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def ask(self, **order: Any) -> Any:
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, *argv: object, fault: str = "", env: dict[str, str] | None = None) -> Child:
        self.count += 1
        out, err = (self.folder / f"{self.count}.{name}" for name in ("out", "err"))
        out.touch()
        err.touch()
        words = [str(word) for word in argv]
        pid = self.ask(start={"argv": words, "out": str(out), "err": str(err), "fault": fault, "env": env})
        return Child(self, pid, out, err)

    def run(self, *argv: object, code: int = 0, fault: str = "") -> str:
        """Return all that the command printed; it must end with this exit code, and never by a traceback."""
        child = self.start(*argv, fault=fault)
        ended = child.wait()
        text = child.out.read_text() + child.err.read_text()
        assert ended == code and "Traceback" not in text, text
        return text

    def together(self, count: int, *argv: object, faults: dict[int, str] | None = None) -> list[Child]:
        """Several processes of one run, as torchrun starts them; the store is ours, so that no port is taken twice."""
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        world = {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        ranks = [{**world, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
        return [self.start(*argv, env=env, fault=(faults or {}).get(rank, "")) for rank, env in enumerate(ranks)]

    def finish(self, count: int, *argv: object, code: int = 0, faults: dict[int, str] | None = None) -> list[Child]:
        """Run `together` to the end of all, with this exit code."""
        children = self.together(count, *argv, faults=faults)
        assert [child.wait() for child in children] == [code] * count, children[0].err.read_text()
        return children

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()
