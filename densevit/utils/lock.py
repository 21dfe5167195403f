"""An exclusive lock on a folder, for machines that share it, too: a file that its owner touches every few seconds.

The file is created with O_EXCL, which is atomic on NFS as well. The process number tells whether its owner is alive on
the same machine, the age of the last touch (heartbeat) on another.
"""

import json
import math
import os
import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from densevit.errors import ConfigError, StorageError
from densevit.utils.process import machine_id, poll, process_exists, process_start, request_stop

NAME = ".lock"
HEARTBEAT = 10.0  # seconds between two touches
STOPPED = "stopped before the first step; there is nothing to save."
STALE = 90.0  # seconds without a touch after which the owner counts as dead


@dataclass(frozen=True)
class Owner:
    """Who holds a lock, and of which folder: a copy of a folder has another path and another inode."""

    host: str
    pid: int
    since: str
    machine: str
    process_start: str
    key: str
    folder: str = ""
    inode: int = 0

    def __str__(self) -> str:
        return f"host {self.host}, process {self.pid}, started {self.since}"


class FolderLock:
    """An exclusive lock on a folder, which is made where it is not there.

    Args:
        what: what messages call the folder, `output: runs/nyu` say.
    """

    def __init__(self, folder: Path, what: str) -> None:
        self.folder, self.what = folder, what
        self.path = folder / NAME
        self.owner = Owner(
            host=socket.gethostname(),
            pid=os.getpid(),
            since=datetime.now().astimezone().isoformat(" ", "seconds"),
            machine=machine_id(),
            process_start=process_start(os.getpid()),
            key=secrets.token_hex(8),
        )
        self._made: list[Path] = []
        self._released = threading.Event()
        self._beating: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lock, also from an owner that is dead. Raises ConfigError: another process that is alive holds it.
        Raises StorageError if the folder cannot be made or written."""
        try:
            self._made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
            self.folder.mkdir(parents=True, exist_ok=True)
            folder = self.folder.resolve()
            self.owner = replace(self.owner, folder=str(folder), inode=folder.stat().st_ino)
            while not self._create(self.path):
                poll(STOPPED)
                self._remove_stale()
        except OSError as error:
            self._remove_empty_folders()
            raise StorageError(f"{self.what} cannot be used ({error.strerror}).") from None
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def release(self) -> None:
        """Give the lock back; folders that `acquire` made and that are still empty are removed."""
        self._released.set()
        if self._beating is not None:
            self._beating.join()
            self._beating = None
            if self._read() == self.owner:
                self.path.unlink(missing_ok=True)
        self._remove_empty_folders()

    def check(self) -> None:
        """Write the lock again if its file was removed. Raises StorageError: another run has it, because this process
        stood still for longer than `STALE` seconds or the file was removed."""
        owner = self._read()
        if owner not in (None, self.owner):
            raise StorageError(f"{self.what} was taken over by another run ({owner}).")
        if not os.path.lexists(self.path):
            with suppress(OSError):
                self._create(self.path)

    def _create(self, path: Path) -> bool:
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with open(handle, "w") as file:
            json.dump(asdict(self.owner), file)
            file.flush()
            os.fsync(file.fileno())
        return True

    def _remove_stale(self) -> None:
        """Remove the lock if its owner is dead. One process at a time, and only the lock that it has examined. Raises
        ConfigError if the owner is alive, or the lock is a link."""
        if self.path.is_symlink():
            raise ConfigError(f"{self.path} is a link, which no run writes. Remove it if no other run uses the folder.")
        touched, owner = self._touched(), self._read()
        if not touched:
            return  # its owner has released it meanwhile
        if not self._is_stale(owner):
            raise ConfigError(
                f"{self.what} is in use by another run ({owner or 'not yet known'}). "
                "Wait for it, stop it, or take another folder."
            )
        guard = self.path.with_name(f"{NAME}.takeover")
        if STALE < self._age(guard) < math.inf:
            guard.unlink(missing_ok=True)  # left by a process that died in the lines below
        if self._create(guard):
            try:
                if (self._touched(), self._read()) == (touched, owner):  # a new one may not be written out yet
                    self.path.unlink(missing_ok=True)
            finally:
                guard.unlink(missing_ok=True)
        else:
            time.sleep(0.1)

    def _is_stale(self, owner: Owner | None) -> bool:
        if owner is not None and owner.folder and owner.folder != self.owner.folder and owner.inode != self.owner.inode:
            return True  # it came with a copy of another folder
        if owner is not None and owner.machine and owner.machine == self.owner.machine:
            return not process_exists(owner.pid) or owner.process_start != process_start(owner.pid)
        seen, printed = self._touched(), False
        while self._age(self.path) < STALE:
            if self._touched() != seen or self._read() != owner:
                return False
            if not printed:
                print(
                    f"{self.what} is locked ({owner or 'not yet known'}); waiting for a sign of life.",
                    file=sys.stderr,
                    flush=True,
                )
                printed = True
            poll(STOPPED)
            time.sleep(HEARTBEAT / 10)
        return True

    def _read(self) -> Owner | None:
        """Return None where there is no lock, or one that is damaged or not written out yet."""
        try:
            owner = Owner(**json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        numbers = type(owner.pid) is int and 0 < owner.pid < 2**31
        return owner if numbers and all(isinstance(x, str) for x in (owner.machine, owner.folder)) else None

    def _touched(self) -> float:
        """Return 0 where there is no lock."""
        with suppress(FileNotFoundError), open(self.path) as file:  # opened, so that NFS asks the server
            return os.fstat(file.fileno()).st_mtime
        return 0.0

    def _age(self, path: Path) -> float:
        """Return the seconds since a file was touched, by the clock of the disk: those of two machines may differ."""
        probe = self.folder / f"{NAME}.{os.getpid()}.{secrets.token_hex(4)}"
        probe.touch()
        try:
            return probe.stat().st_mtime - path.stat().st_mtime
        except FileNotFoundError:
            return math.inf
        finally:
            probe.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT):
            try:
                self.check()
                os.utime(self.path)
            except StorageError:
                request_stop()  # before it writes more into the other's files; its next save names the other
                return
            except OSError:
                pass

    def _remove_empty_folders(self) -> None:
        for path in self._made:
            with suppress(OSError):
                path.rmdir()
