"""ONNX graphs of converted networks on disk, so that only the first start waits for the conversion.

They lie in `$XDG_CACHE_HOME/densevit/onnx` (`~/.cache/densevit/onnx`), one folder for each. `DENSEVIT_CACHE` names
another folder than `~/.cache/densevit`, or is `off`. Beyond 4 GiB in all the least recently used ones are deleted.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from densevit.errors import StorageError
from densevit.utils.atomic_io import atomic_folder, make_folder, remove_stale_temporaries, user_cache

log = logging.getLogger(__name__)

KIND = "onnx"
MAX_BYTES = 4 * 2**30
GRAPH = "network.onnx"


@contextmanager
def cached_graph(key: str, save: Callable[[Path], None]) -> Iterator[Path]:
    """The path of the graph with this key, saved first where it is not there; it may vanish after the block."""
    folder = user_cache(KIND)
    if folder is not None and add(folder / key, save):
        yield folder / key / GRAPH
        return
    with TemporaryDirectory(prefix="densevit-") as temporary:
        path = Path(temporary) / GRAPH
        save(path)
        yield path


def add(entry: Path, save: Callable[[Path], None]) -> bool:
    """Whether the graph is in the cache now."""
    graph = entry / GRAPH
    try:
        if not graph.is_file():
            make_folder(entry.parent)
            remove_stale_temporaries(entry.parent)
            with atomic_folder(entry) as folder:
                save(folder / GRAPH)
            delete_least_recent(entry.parent, keep=entry)
        os.utime(entry)  # used now
    except (StorageError, OSError) as error:
        if not graph.is_file():  # another process may have saved it in the meantime
            log.warning("the converted network is not cached: %s", error)
            return False
    return True


def forget(key: str) -> None:
    """Deletes the graph with this key, if it is there."""
    if (folder := user_cache(KIND)) is not None:
        shutil.rmtree(folder / key, ignore_errors=True)


def delete_least_recent(folder: Path, keep: Path) -> None:
    entries = sorted((path for path in folder.iterdir() if path.is_dir() and path != keep), key=last_used)
    total = sum(size(entry) for entry in (*entries, keep))
    for entry in entries:
        if total <= MAX_BYTES:
            return
        total -= size(entry)
        shutil.rmtree(entry, ignore_errors=True)


def last_used(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0


def size(entry: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in entry.iterdir())
    return 0
