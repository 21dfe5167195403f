"""`huggingface`: a data set of the Hugging Face `datasets` library, by its name on the hub or from a local folder.

    {type: huggingface, path: owner/name, image: image, depth: depth_map, depth_scale: 1000}
    {type: huggingface, path: exported/, image: image, labels: annotation}      as `save_to_disk` writes it
    {type: huggingface, path: parquet/, depth: depth}                           files that `load_dataset` reads

Images and maps are columns of encoded files, or of numbers h w. Needs `pip install 'densevit[huggingface]'`.
"""

import reprlib
from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float32, Int64
from pydantic import Field

from densevit.data.datasets.base import DATASETS, Dataset, DepthRange, Invalid
from densevit.data.index.paths import SampleFiles
from densevit.data.io.images import read_bytes
from densevit.data.io.readers import NOT_MEASURED, read_depth, read_image, stored_to_metres
from densevit.data.io.samples import make_sample, read_label_map
from densevit.data.io.tar import bytes_as_path
from densevit.data.labels.class_lists import read_classes, table_of_names
from densevit.errors import ConfigError, DataError, first_line
from densevit.registry import did_you_mean
from densevit.structures import Sample
from densevit.utils.packages import require_packages


@DATASETS.register("huggingface")
class HuggingFace(Dataset):
    """A data set of the Hugging Face `datasets` library: images with depth, labels or both in columns."""

    def __init__(
        self,
        *,
        path: str,
        name: str | None = None,
        split: str = "train",
        image: str = "image",
        depth: str | None = None,
        labels: str | None = None,
        classes: tuple[str, ...] | Path | None = None,
        depth_scale: Annotated[float, Field(gt=0)] | None = None,
        depth_range: DepthRange = (1e-3, 80.0),
        invalid: Invalid = NOT_MEASURED,
        streaming: bool = False,
        samples: Annotated[int, Field(gt=0)] | None = None,
    ) -> None:
        """Open the data set; nothing is decoded. Raises ConfigError if `datasets` is not installed, or streaming
        without `samples`. Raises DataError: no such data set, split or column.

        Args:
            path: `owner/name` on the hub, a folder of `save_to_disk`, or a folder of files that `load_dataset` reads.
            name: name of a configuration, where there are several.
            split: name of the split in the data set; `train[:90%]` takes a part.
            image: the column of images.
            depth: the column of depth maps: encoded files, or numbers h w; none for images without.
            labels: the column of label maps, likewise.
            classes: names of the ids, or a file of them (densevit.data.labels.class_lists).
            depth_scale: stored units per metre; floats need none.
            depth_range: metres that the ground truth can have.
            streaming: fetch `samples` only, and keep their encoded bytes in memory. Training draws samples in any
                order, so all that it draws from must be within reach.
            samples: use only the first n.
        """
        if streaming and samples is None:
            raise ConfigError("data.samples: streaming needs to know how many samples to fetch.")
        self.what, self.columns = path, {"image": image, "depth": depth, "labels": labels}
        self.scale, self.depth_range, self.invalid = depth_scale, depth_range, invalid
        if isinstance(classes, Path):
            self.table = read_classes(classes)
        elif classes:
            self.table = table_of_names(classes, f"the classes of {path}")
        if self.table is not None:
            self.classes, self.palette = self.table.names, self.table.palette
        used = [column for column in self.columns.values() if column is not None]
        if twice := sorted(column for column in set(used) if used.count(column) > 1):
            raise ConfigError(f"data: the column '{twice[0]}' is named twice; each kind has a column of its own.")
        self.rows = open_rows(path, name, split, used, streaming, samples)
        digits = max(6, len(str(len(self.rows))))
        self.names = [f"{i:0{digits}}" for i in range(len(self.rows))]

    def read(self, index: int) -> Sample:
        row = self.rows[index]
        cells = {
            kind: Path(f"{self.what}[{index}].{column}")
            for kind, column in self.columns.items()
            if column is not None and row[column] is not None
        }
        if "image" not in cells:
            raise DataError(f"{self.what}[{index}].{self.columns['image']}: there is none.")
        decoded = {kind: self._decode(kind, row[str(self.columns[kind])], cell) for kind, cell in cells.items()}
        files = SampleFiles(self.names[index], cells["image"], cells.get("depth"), cells.get("labels"))
        return make_sample(files, decoded["image"], depth=decoded.get("depth"), labels=decoded.get("labels"))

    def _decode(self, kind: str, cell: Any, source: Path) -> Any:
        """Raise DataError naming the cell."""
        if not isinstance(cell, dict):
            try:
                values = np.asarray(cell)
                return self._of_array(kind, values.astype(np.float64) if values.dtype == object else values, source)
            except DataError:
                raise
            except (TypeError, ValueError):  # rows of several lengths, texts
                raise DataError(f"{source}: neither an encoded image nor numbers h w: {reprlib.repr(cell)}.") from None
        content = cell.get("bytes")
        with bytes_as_path(read_bytes(Path(cell["path"])) if content is None else content, source) as path:
            if kind == "image":
                return read_image(path)
            if kind == "depth":
                return read_depth(path, self.scale, invalid=self.invalid)
            return read_label_map(path, self.table)

    def _of_array(
        self, kind: str, values: np.ndarray, source: Path
    ) -> np.ndarray | Float32[np.ndarray, "h w"] | Int64[np.ndarray, "h w"]:
        if kind == "image":
            if values.ndim != 3 or values.shape[-1] != 3 or values.dtype.kind not in "iu":
                raise DataError(
                    f"{source}: {values.dtype} of shape {values.shape}; images are whole numbers h w 3, RGB."
                )
            if not 0 <= values.min(initial=0) <= values.max(initial=0) <= 255:
                raise DataError(f"{source}: {values.min()} to {values.max()}; the numbers of images are 0 to 255.")
            return values.astype(np.uint8)
        if values.ndim == 3 and 1 in (values.shape[0], values.shape[-1]):
            values = values.squeeze(0 if values.shape[0] == 1 else -1)
        if values.ndim != 2:
            raise DataError(f"{source}: an array of shape {values.shape}; maps are h w.")
        if kind == "depth":
            if values.dtype.kind != "f" and self.scale is None:
                raise DataError(f"{source}: {values.dtype} depth without a unit. Set depth_scale, the units per metre.")
            return stored_to_metres(values, self.scale, self.invalid)
        with np.errstate(invalid="ignore"):
            ids = values.astype(np.int64)
        if not np.array_equal(ids, values):
            raise DataError(f"{source}: {values.dtype} with fractions; labels are whole numbers.")
        return ids if self.table is None else self.table.map_ids(source, ids)


def open_rows(
    path: str, name: str | None, split: str, columns: Sequence[str], streaming: bool, samples: int | None
) -> Any:
    """Return a sequence of rows, with encoded files left as they are."""
    require_packages("datasets", extra="huggingface")
    datasets: Any = import_module("datasets")  # pyarrow takes most of a second
    try:
        if (Path(path) / "state.json").is_file() or (Path(path) / "dataset_dict.json").is_file():
            saved = datasets.load_from_disk(path)
            splits = saved if isinstance(saved, datasets.DatasetDict) else {str(saved.split or "train"): saved}
            parts = datasets.ReadInstruction.from_spec(split).to_absolute({key: len(splits[key]) for key in splits})
            rows = datasets.concatenate_datasets([splits[x.splitname].select(range(x.from_, x.to)) for x in parts])
        else:
            rows = datasets.load_dataset(path, name, split=split, streaming=streaming)
    except Exception as error:  # of many libraries: file systems, HTTP, Arrow
        what = f"cannot be opened as a Hugging Face data set, split '{split}' ({first_line(error)})"
        raise DataError(f"{path}: {what}.") from error
    have = list(rows.features or ())
    if missing := [column for column in columns if column not in have]:
        raise DataError(f"{path}: no column '{missing[0]}'.{did_you_mean(missing[0], have)}")
    rows = rows.select_columns(list(columns))
    for column in columns:
        if isinstance(rows.features[column], datasets.Image):
            rows = rows.cast_column(column, datasets.Image(decode=False))
    if isinstance(rows, datasets.IterableDataset):
        return list(islice(rows, samples))
    return rows if samples is None else rows.select(range(min(samples, len(rows))))
