"""Models published as two files: a backbone and a head."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from densevit.errors import CheckpointError
from densevit.weights.external import RawCheckpoint
from densevit.weights.readers import PICKLED, SAFETENSORS, read_tensors

MARK = "patch_embed.proj.weight"  # of every backbone of DINOv2 and DINOv3


def read_backbone(found: RawCheckpoint, given: Path | None, usual: str, head: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors of the backbone under its own names: from its own file, or from that of the head. Raises
    CheckpointError: not found, or several files fit.

    Args:
        given: the file that the user names.
        usual: the file's published name, a glob, looked for beside the head.
        head: prefixes of the head's tensors, if the file holds both.
    """
    if given is not None:
        tensors = read_tensors(given)
        if MARK not in tensors:
            first = ", ".join(list(tensors)[:5])
            raise CheckpointError(
                f"{given}: no backbone; it has no {MARK}, its {len(tensors)} tensors begin with {first}."
            )
        return tensors
    within = {
        name.removeprefix("backbone."): tensor for name, tensor in found.tensors.items() if not name.startswith(head)
    }
    if MARK in within:
        return within
    beside = sorted(found.path.parent.glob(usual)) if found.path.is_file() else []
    if len(beside) == 1:
        return read_tensors(beside[0])
    seen = f"; {len(beside)} of these lie beside it" if beside else ", and it does not lie beside it"
    raise CheckpointError(
        f"{found.path}: holds a head without its backbone, published as {usual}{seen}. Give backbone=PATH, or a "
        "folder that holds these two files and no other weights."
    )


def pair_in_folder(folder: Path) -> tuple[Path, ...]:
    """The two weights files of a folder that has exactly two; otherwise none."""
    if not folder.is_dir():
        return ()
    files = sorted(path for path in folder.iterdir() if path.suffix in SAFETENSORS + PICKLED and path.is_file())
    return tuple(files) if len(files) == 2 else ()


def read_pair(files: tuple[Path, ...]) -> dict[str, Tensor]:
    """The tensors of both. Raises CheckpointError if they are no head and backbone, which share names."""
    first, second = (read_tensors(path) for path in files)
    common = sorted(first.keys() & second.keys())
    if common:
        raise CheckpointError(
            f"{files[0].parent}: {files[0].name} and {files[1].name} are no head and backbone, with {len(common)} "
            f"names in common: {', '.join(common[:5])}. Give one of them."
        )
    return {**first, **second}


def check_width(found: RawCheckpoint, head: int, tensors: Mapping[str, Tensor]) -> None:
    """Raises CheckpointError if the backbone does not have the channels that the head reads."""
    width = int(tensors[MARK].shape[0])
    if width != head:
        raise CheckpointError(f"{found.path}: its head reads {head} channels, this backbone has {width}; take its own.")
