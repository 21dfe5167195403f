"""Whether a process that left its number in a file still runs, and whether it ran on this machine."""

import os
import socket
from pathlib import Path


def process_exists(pid: int) -> bool:
    """Whether a process of this machine runs; True where the system does not tell."""
    if os.name == "nt":
        return True  # signal 0 is Ctrl+C there
    if (stat := _stat(pid)) and stat[0] in "ZX":
        return False  # ended, and not yet waited for by its parent
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_start(pid: int) -> str:
    """When a process started, in ticks since boot; it tells a number that is used again. Empty where unknown."""
    stat = _stat(pid)
    return stat[19] if stat else ""


def machine_id() -> str:
    """Where process numbers can be compared: host, boot and container. Empty where the system does not tell."""
    if os.name == "nt":
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    try:
        return f"{socket.gethostname()} {boot.read_text().strip()} {namespace.readlink()}"
    except OSError:  # no Linux
        return socket.gethostname()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none where there is no such file."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
