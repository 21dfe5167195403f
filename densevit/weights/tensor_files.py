"""Safetensors files: whole ones, and the shards of several processes, as torch.distributed.checkpoint reads them.

A sharded checkpoint holds a tree of plain values in `state.pt`, where every tensor is a shape (a tensor on the device
meta), and `shard-N.safetensors` of each process with the parts of these tensors that it holds, under their paths in the
tree. Nothing in it is a pickled object, and any number of processes can read it, each only the parts that it needs.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.utils import atomic_io

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
}  # fmt: skip
SHARD = "shard-{:05}.safetensors"  # of a rank
FIRST_SHARD = SHARD.format(0)  # always there: rank 0 writes what is not sharded, too
OFFSETS = "DCP_SHARDING_INFO"  # the metadata by which torch.distributed.checkpoint knows shards


def is_sharded(tensor: object) -> "TypeGuard[DTensor]":
    """Return whether this is a DTensor; where none is, their module, which takes a second to import, is not there."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Write one tensor after the other, so that the file is never in memory; return its sha256."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # aligned, as the format asks
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        begin, end, tensor = end, end + tensors[name].nbytes, tensors[name]
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    def content(file: Any) -> None:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in filter(lambda name: tensors[name].numel(), names):
            file.write(tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy())

    return atomic_io.atomic_write(path, content)


@dataclass(frozen=True)
class TensorPart:
    """A part of a tensor, on the CPU, and where it begins in the tensor."""

    values: Tensor
    offsets: tuple[int, ...]


def mapped(tree: Any, function: Callable[[str, Tensor], Any], path: str = "") -> Any:
    """Return the same tree with each tensor replaced by `function(path, tensor)`; keys on the path are joined by
    `/`."""
    if isinstance(tree, Tensor):
        return function(path, tree)
    if isinstance(tree, Mapping):
        return {key: mapped(value, function, f"{path}/{key}" if path else str(key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [mapped(value, function, f"{path}/{index}") for index, value in enumerate(tree)]
    return tree


def stage(tree: Any, *, whole: bool) -> tuple[Any, dict[str, TensorPart]]:
    """Copy what this process holds of the tensors to the CPU: the tree with shapes in their place, and the parts.
    `whole`: take tensors that are not sharded, too; for one of the processes, since all have the same ones."""
    parts: dict[str, TensorPart] = {}

    def take(path: str, tensor: Tensor) -> Tensor:
        local, offsets = tensor.detach(), (0,) * tensor.ndim
        if is_sharded(local):
            chunks = local.__create_chunk_list__()  # type: ignore[no-untyped-call]
            local, offsets = local.to_local(), tuple(chunks[0].offsets)
        if not tensor.ndim:
            return local.to("cpu", copy=True)
        if local.numel() and (whole or is_sharded(tensor)):
            parts[path] = TensorPart(local.to("cpu", copy=True), offsets)
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    return mapped(tree, take), parts


def write_shard(
    folder: Path, rank: int, parts: Mapping[str, TensorPart], metadata: Mapping[str, str]
) -> dict[str, str]:
    """Write the parts of one process, and read them back; return the file's sha256 by its name, empty without parts.
    Raises CheckpointError if what came back from the disk is not what was written. Raises StorageError if the disk is
    full or read-only."""
    if not parts:
        return {}
    path = folder / SHARD.format(rank)
    offsets = {name: {"saved_offsets": part.offsets} for name, part in parts.items()}
    tensors = {name: part.values for name, part in parts.items()}
    written = write(path, tensors, {**metadata, OFFSETS: json.dumps(offsets), "DCP_VERSION": "1.0", "format": "pt"})
    if atomic_io.sha256(path) != written:
        raise CheckpointError(f"{path}: damaged (its sha256 is not that of what was written).")
    return {path.name: written}


def fill(folder: Path, tree: Any, like: Callable[[str], Tensor | None] = lambda path: None) -> Any:
    """Return the tree of a verified folder with tensors in place of their shapes. `like`: path of a tensor -> a tensor
    of this process; where it is sharded, only its part is read. Others are read whole, onto the CPU."""
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    tensors: dict[str, Tensor] = {}

    def allocate(path: str, shape: Tensor) -> Tensor:
        if not shape.is_meta:
            return shape
        local = like(path)
        if is_sharded(local) and local.shape == shape.shape:
            tensors[path] = torch.empty_like(local, dtype=shape.dtype)
        else:
            tensors[path] = torch.empty(shape.shape, dtype=shape.dtype)
        return tensors[path]

    filled = mapped(tree, allocate)
    reader, planner = HuggingFaceStorageReader(str(folder)), DefaultLoadPlanner()
    metadata = reader.read_metadata()
    planner.set_up_planner(tensors, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    reader.read_data(planner.create_local_plan(), planner)
    return filled
