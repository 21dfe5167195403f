"""The published lists of image and depth files, and users' own of the same form: `IMAGE DEPTH [FOCAL]` a line.

They are in the package (data/index/splits), so that an installed wheel has them. `None` as DEPTH means that the image
has no ground truth. The leading slash of the NYU training list is dropped.
"""

import gzip
from pathlib import Path

from densevit.errors import DataError
from densevit.utils.json_files import read_text

FOLDER = Path(__file__).parent / "splits"


def read_published(name: str) -> str:
    """Return the text of a published list."""
    path = FOLDER / name
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def read_list(root: Path, path: Path | None, default: str) -> list[tuple[str, str | None]]:
    """Return (image, depth) pairs of a user's list under `root`, or of the published one. Raises DataError naming the
    line that is none."""
    if path is None:
        return parse_list(read_published(default), default)
    path = root / path.expanduser()
    return parse_list(read_text(path, "the list"), str(path))


def parse_list(text: str, source: str) -> list[tuple[str, str | None]]:
    pairs: list[tuple[str, str | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) not in (2, 3):
            raise DataError(f"{source}:{number}: expected IMAGE DEPTH [FOCAL], got {line[:80]!r}.")
        image, depth = (word.lstrip("/") for word in words[:2])
        if ".." in f"{image}/{depth}".split("/"):
            raise DataError(f"{source}:{number}: '..' leads out of the data set.")
        pairs.append((image, None if depth == "None" else depth))
    if not pairs:
        raise DataError(f"{source}: the list is empty.")
    return pairs
