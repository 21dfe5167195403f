"""Models with a name in place of a path: on the Hugging Face hub (`hf:owner/name[@revision][/file]`), or packaged.

The hub is reached through huggingface_hub and its cache. Without a network the cache is used; if it lacks the model,
loading fails within a second.
"""

import fnmatch
import logging
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from torch import Tensor

from densevit.errors import CheckpointError, first_line
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.utils.network import PACKAGED, SCHEME, hub, is_reachable
from densevit.weights import checkpoint
from densevit.weights.detect import IN_FOLDER
from densevit.weights.readers import PICKLED, SAFETENSORS

log = logging.getLogger(__name__)

HUB_LICENCES = ("apache-2.0", "mit", "cc-by-nc-4.0", "bsd-3-clause")  # identifiers of the hub
DINOV3_NOTE = (
    "Derived from DINOv3: may be distributed only under the DINOv3 License, with a copy of it "
    "(https://ai.meta.com/resources/models-and-libraries/dinov3-license). "
)
PACKAGED_FOLDER = Path(str(files("densevit"))) / "pretrained/rooms"
BESIDE = ("config.json", "preprocessor_config.json", "README.md")
SHARDS = ("*-of-*.safetensors", "*-of-*.bin")


class Address(NamedTuple):
    """Address of a model on the hub."""

    repository: str  # owner/name; revision: a branch, tag or commit; file: in it, "" for what there is
    revision: str | None
    file: str

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{SCHEME}{self.repository}{revision}{'/' if self.file else ''}{self.file}"


class ReadAs(NamedTuple):
    """Family and options of a known repository, which its files do not tell."""

    family: str
    options: Mapping[str, Any] = {}


# Patterns of official repositories.
KNOWN: Mapping[str, ReadAs] = {
    "LiheYoung/depth_anything_vit?14": ReadAs("depth-anything-v1"),
    "depth-anything/Depth-Anything-V2-Small": ReadAs("depth-anything-v2"),
    "depth-anything/Depth-Anything-V2-Base": ReadAs("depth-anything-v2"),
    "depth-anything/Depth-Anything-V2-Large": ReadAs("depth-anything-v2"),
    "depth-anything/Depth-Anything-V2-Metric-Hypersim-*": ReadAs("depth-anything-v2-hypersim"),
    "depth-anything/Depth-Anything-V2-Metric-VKITTI-*": ReadAs("depth-anything-v2-vkitti"),
    "Intel/dpt-large": ReadAs("huggingface-dpt"),
    "facebook/dpt-dinov2-*-nyu": ReadAs("huggingface-dpt-metric"),
    "facebook/dpt-dinov2-*-kitti": ReadAs("huggingface-dpt-metric"),
}


def parse(text: str) -> Address:
    """Raise CheckpointError: no owner and name."""
    owner, slash, rest = text.removeprefix(SCHEME).partition("/")
    name, _, file = rest.partition("/")
    name, _, revision = name.partition("@")
    if not (owner and slash and name):
        raise CheckpointError(
            f"'{text}': a model on the hub is {SCHEME}owner/name, {SCHEME}owner/name@revision or .../file."
        )
    return Address(f"{owner}/{name}", revision or None, file)


def read_as_of(text: str) -> ReadAs | None:
    """Return the family and options of a known repository."""
    repository = parse(text).repository
    return next((row for pattern, row in KNOWN.items() if fnmatch.fnmatchcase(repository, pattern)), None)


def fetch(text: str) -> Path:
    """Return the model's file, or a folder with its weights and configs, in huggingface_hub's cache or in the package.
    Raises CheckpointError: neither in the cache nor reachable, no such model, or several weights files."""
    if text == PACKAGED:
        return PACKAGED_FOLDER
    address = parse(text)
    server = hub()
    if server and is_reachable(server):
        return download(address)
    folder = cached_snapshot(address)
    names = select_files(address, [str(path.relative_to(folder)) for path in folder.rglob("*")]) if folder else []
    if folder is None or not all((folder / name).is_file() for name in names):
        why = f"{server} is unreachable" if server else "HF_HUB_OFFLINE is set"
        raise CheckpointError(
            f"{address}: not in the cache of this machine, and {why}. Where there is a network, "
            f"`hf download {address.repository}` puts it there; or fetch its files elsewhere and load the path."
        )
    return model_path(folder, names)


def download(address: Address) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        names = HfApi().list_repo_files(address.repository, revision=address.revision)
        patterns = select_files(address, names)
        folder = snapshot_download(address.repository, revision=address.revision, allow_patterns=patterns)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise CheckpointError(f"{address}: cannot be fetched ({first_line(error)}).") from None
    return model_path(Path(folder), patterns)


def cached_snapshot(address: Address) -> Path | None:
    """Return the newest snapshot in the cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(address.repository, revision=address.revision, local_files_only=True))
    except (OSError, ValueError):
        return None


def select_files(address: Address, names: Sequence[str]) -> list[str]:
    """Return the files of a repository that make up the model. Raises CheckpointError: none, or several weights
    files."""
    if address.file:
        if address.file not in names:
            raise CheckpointError(f"{address}: no such file; there are {some_names(names)}.")
        return [address.file]
    beside = [name for name in BESIDE if name in names]
    for name in IN_FOLDER:
        if name in names:
            shards = [other for other in names if any(fnmatch.fnmatchcase(other, shard) for shard in SHARDS)]
            return [name, *beside, *(shards if name.endswith(".index.json") else [])]
    weights = [name for name in names if Path(name).suffix in SAFETENSORS + PICKLED and "/" not in name]
    if len(weights) != 1:
        what = "no weights" if not weights else f"{len(weights)} files of weights; say which, as {address}/{weights[0]}"
        raise CheckpointError(f"{address}: {what}. There are {some_names(names)}.")
    return weights


def model_path(folder: Path, names: Sequence[str]) -> Path:
    """Return the folder if the first name is that of the weights which are read from it, else the file."""
    read = next((name for name in IN_FOLDER if (folder / name).is_file()), None)
    return folder if names[0] == read else folder / names[0]


def save_pretrained(folder: Path, tensors: Mapping[str, Tensor], card: ModelCard) -> None:
    """Write a folder for `densevit.load` and the hub: weights with their card, and a README. Raises CheckpointError if
    it exists already. Raises StorageError if it cannot be written."""
    if folder.exists():
        raise CheckpointError(f"{folder}: exists already; nothing is replaced.")
    with atomic_io.atomic_folder(folder) as temporary:
        checkpoint.write_weights(temporary / checkpoint.WEIGHTS, tensors, card)
        atomic_io.write_text(temporary / "README.md", readme(card))


def push_to_hub(repository: str, tensors: Mapping[str, Tensor], card: ModelCard, *, private: bool = False) -> str:
    """Save to a repository `owner/name` on the hub, made where there is none; return its address. Raises
    CheckpointError: not reachable, or refused; with the hub's reason."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    address, server = parse(SCHEME + repository.removeprefix(SCHEME)), hub()
    if not (server and is_reachable(server)):
        why = f"{server} is unreachable" if server else "HF_HUB_OFFLINE is set"
        raise CheckpointError(f"{address}: cannot be saved there, {why}. `save_pretrained(FOLDER)` saves here.")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        save_pretrained(folder, tensors, card)
        try:
            api = HfApi()
            api.create_repo(address.repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=address.repository, folder_path=folder, commit_message="densevit model")
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            raise CheckpointError(f"{address}: cannot be saved there ({first_line(error)}).") from None
    if note := licence_note(card):
        log.warning("%s: %s", address, note.strip())
    return str(address)


def licence_note(card: ModelCard) -> str:
    """Return the terms for publishing the weights; empty for most licences."""
    if card.licence == "unknown":
        return "The licence of the weights that training started from is not recorded. "
    return DINOV3_NOTE if "dinov3" in card.licence.lower() else ""


def readme(card: ModelCard) -> str:
    """Return the README of a repository, with metadata for the hub."""
    kinds = {name: output.kind for name, output in card.outputs.items()}
    task = "image-segmentation" if set(kinds.values()) == {"labels"} else "depth-estimation"
    spdx = card.licence.lower()
    licence = {"license": spdx} if spdx in HUB_LICENCES else {"license": "other", "license_name": card.licence}
    top = {"library_name": "densevit", "pipeline_tag": task, **licence}
    lines = "\n".join(f"- {name}: {kind}" for name, kind in kinds.items())
    scores = "\n".join(f"- {name}: {value:.4g}" for name, value in card.scores.items()) or "none recorded"
    notes = (f"Learned from predictions of {name}, licence {terms}. " for name, terms in card.teachers.items())
    return (
        f"---\n{yaml.safe_dump(top, sort_keys=False)}---\n\n# A densevit model\n\n"
        '```python\nimport densevit\n\npredict = densevit.load("hf:OWNER/NAME")\nmaps = predict("photo.jpg")\n```\n\n'
        f"Predicts:\n\n{lines}\n\nSource: {card.source}. Licence: {card.licence}. {licence_note(card)}{''.join(notes)}"
        f"Trained on: {card.trained_on or 'not recorded'}. {card.limitations}".rstrip()
        + f"\n\nScores:\n\n{scores}\n"
    )


def some_names(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "") or "none"
