"""The points of a PLY file (Turk 1994), ASCII or binary."""

from pathlib import Path

import numpy as np
from jaxtyping import Float64

from densevit.errors import DataError

TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">"}


def read_ply_points(path: Path) -> Float64[np.ndarray, "n 3"]:
    """x, y, z of every vertex. Raises DataError if it is missing, no PLY, damaged, or its first element is not a vertex
    with x, y and z."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error}).") from error
    head, found, body = content.partition(b"end_header\n")
    if not content.startswith(b"ply") or not found:
        raise DataError(f"{path}: no PLY file.")
    lines = [line.split() for line in head.decode("latin-1").splitlines()]
    layout = next((line[1] for line in lines if line[:1] == ["format"]), "")
    elements = [number for number, line in enumerate(lines) if line[:1] == ["element"]]
    if not elements or lines[elements[0]][1] != "vertex":
        raise DataError(f"{path}: its first element is no vertex.")
    count = int(lines[elements[0]][2])
    last = elements[1] if len(elements) > 1 else len(lines)
    properties = [line for line in lines[elements[0] : last] if line[:1] == ["property"]]
    names = [line[-1] for line in properties]
    if any(line[1] not in TYPES for line in properties) or not {"x", "y", "z"} <= set(names):
        raise DataError(f"{path}: a vertex needs numbers x, y and z; it has {', '.join(names) or 'nothing'}.")
    try:
        if layout == "ascii":
            table = np.array([line.split()[: len(names)] for line in body.decode().splitlines()[:count]], float)
            columns = dict(zip(names, table.T, strict=True))
        else:
            order = ORDERS[layout]
            fields = np.dtype([(line[-1], order + TYPES[line[1]]) for line in properties])
            rows = np.frombuffer(body, fields, count)
            columns = {axis: rows[axis] for axis in "xyz"}
    except (KeyError, ValueError) as error:
        raise DataError(f"{path}: is damaged ({error}).") from error
    return np.stack([columns[axis].astype(np.float64) for axis in "xyz"], 1)
