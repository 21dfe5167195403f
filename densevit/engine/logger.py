"""What a run says of itself: CSV files to compute with, TensorBoard to look at, a line on the terminal."""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from densevit.utils import atomic_io


class MetricLogger:
    """Writes `train.csv`, `val.csv` and `tensorboard/` in a folder; with `folder=None` (other ranks) nothing.

    On resuming at step n, what an interrupted run logged after n is dropped, so that curves have no double points.
    """

    def __init__(self, folder: Path | None, start: int = 0) -> None:
        self.folder = folder
        self.board: SummaryWriter | None = None
        if folder is not None:
            for name in ("train", "val"):
                _cut(folder / f"{name}.csv", start)
            purge = start + 1 if start else None
            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def scalars(self, name: str, step: int, values: Mapping[str, float]) -> None:
        """Adds a row to `name.csv` and points to the curves `name/...`."""
        if self.folder is None or self.board is None:
            return
        _append(self.folder / f"{name}.csv", {"step": step, **values})
        for key, value in values.items():
            self.board.add_scalar(f"{name}/{key}", value, step)
        self.board.flush()

    def picture(self, name: str, step: int, image: UInt8[np.ndarray, "h w 3"]) -> None:
        if self.board is not None:
            self.board.add_image(name, image, step, dataformats="HWC")

    def say(self, text: str) -> None:
        if self.folder is not None:
            tqdm.write(text)

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def read_csv(path: Path) -> list[dict[str, float]]:
    """The rows of a log, as numbers; also while it is being written."""
    return [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(_lines(path))]


def _lines(path: Path) -> list[str]:
    """What is whole of a log: all of it is read at once, up to its last line end."""
    return path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines() if path.is_file() else []


def _append(path: Path, row: Mapping[str, float]) -> None:
    fresh = not path.exists()
    with open(path, "a", newline="") as file:
        if fresh:
            csv.writer(file).writerow(row)
        csv.writer(file).writerow(f"{value:.8g}" for value in row.values())


def _cut(path: Path, step: int) -> None:
    """Keeps the rows up to `step`."""
    if path.exists():
        head, *rows = list(csv.reader(_lines(path))) or [[]]
        kept = [row for row in rows if row and float(row[0]) <= step]
        atomic_io.write_text(path, "".join(f"{','.join(row)}\n" for row in (head, *kept)) if kept else "")
        if not kept:
            path.unlink()
