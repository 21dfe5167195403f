"""Exports a model as a static web page that predicts in the visitor's browser."""

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from torch import nn

from densevit.errors import ConfigError
from densevit.inference.camera import assumed_fov
from densevit.inference.onnx import export as onnx
from densevit.inference.onnx.dynamic_size import check_any_size
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.model_card import HeadSpec, ModelCard, head_giving
from densevit.ops.colors import ColorMap, palette_for, table
from densevit.reporting.html_page import render
from densevit.structures import Size
from densevit.utils import atomic_io
from densevit.utils.packages import require_packages
from densevit.version import __version__
from densevit.weights.describe import in_brief

MODEL, SETTINGS = "model.onnx", "model.json"


@dataclass(frozen=True)
class ExportedSite:
    folder: Path  # the site
    size: Size  # (h, w) at which the network sees every image
    # by head, the largest difference of the ONNX file from torch as a share of the largest value
    errors: Mapping[str, float]
    bytes: int  # of all files; `download`: of those that a browser fetches to compute on its CPU
    download: int
    runtime: str  # the version of ONNX Runtime Web

    def __str__(self) -> str:
        lines = [
            f"{self.folder}: {self.bytes / 1e6:.1f} MB, of which a browser without WebGPU fetches "
            f"{self.download / 1e6:.1f} MB; images at {self.size[0]}x{self.size[1]}; ONNX Runtime Web {self.runtime}"
        ]
        lines += [
            f"  {name}: max. difference from PyTorch {error:.1e} (relative)" for name, error in self.errors.items()
        ]
        return "\n".join(
            [*lines, f"see it: python -m http.server --directory {self.folder}, then http://localhost:8000"]
        )


def check_output(folder: Path, runtime: Path | None, *, overwrite: bool = False) -> None:
    """Raise before a checkpoint is read where the export would fail. Raises ConfigError: packages or npm are not
    installed; a folder that exists, or one that is no site of densevit. Raises StorageError if the folder cannot be
    made."""
    require_packages(*onnx.NEEDS, extra="onnxruntime")
    if folder.exists():
        if not overwrite:
            raise ConfigError(f"--output: {folder} exists already; --overwrite replaces it.")
        if not (folder / SETTINGS).is_file() or not (folder / MODEL).is_file():
            raise ConfigError(f"--output: {folder} is no site of export and is not replaced. Name another folder.")
    atomic_io.check_can_create(folder)
    check_runtime(runtime)


def export_web(
    model: nn.Module,
    card: ModelCard,
    folder: Path,
    *,
    size: Size | None = None,
    heads: tuple[str, ...] = (),
    title: str = "",
    runtime: Path | None = None,
) -> ExportedSite:
    """Write the site whole, or nothing; one that stands there is replaced. Raises ConfigError, DataError: see
    `export_onnx` and `copy_runtime`; weights of over 2 GB; no size is known. Raises StorageError if the disk is full.

    Args:
        size: (h, w) at which the network sees every image; None for the size that the model is made for.
        heads: empty for all.
        title: of the page.
        runtime: the npm package `onnxruntime-web` as a folder or .tgz; None fetches it.
    """
    onnx.refuse_inputs(card, "a web page")
    card, size = at_size(shown(card, heads), size)
    check_any_size(model, card, "a web page", "Export FILE.onnx with --image-size H,W, for images of one size.")
    labels = any(spec.kind == "labels" for spec in card.outputs.values())
    options = OnnxExportOptions(size=None, any_size=True, heads=heads or tuple(card.outputs), argmax=labels)
    atomic_io.make_folder(folder.parent)
    atomic_io.remove_stale_temporaries(folder.parent)
    with atomic_io.atomic_folder(folder, replace=True) as made:
        (made / "ort").mkdir()
        version = copy_runtime(runtime, made / "ort")  # seconds, before the minutes of the model
        exported = onnx.export_onnx(model, card, made / MODEL, options)
        if len(exported.paths) > 1:
            raise ConfigError("weights of over 2 GB: no browser loads them. Export a smaller model.")
        with as_file(files(__package__) / "site") as page:
            shutil.copytree(page, made, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        style = render("style.html") + "\n" + (made / "page.css").read_text(encoding="utf-8")
        (made / "page.css").write_text(style, encoding="utf-8")
        settings = describe(card, size, title, (made / MODEL).stat().st_size)
        runtime_files = [path for path in (made / "ort").iterdir() if "webgpu" not in path.name]
        settings["download"] = settings["modelBytes"] + sum(path.stat().st_size for path in runtime_files)
        (made / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
        sizes = {path.relative_to(made).as_posix(): path.stat().st_size for path in made.rglob("*") if path.is_file()}
    total, gpu = sum(sizes.values()), sum(size for name, size in sizes.items() if "webgpu" in name)
    return ExportedSite(folder, size, exported.errors, total, total - gpu, version)


def shown(card: ModelCard, heads: tuple[str, ...]) -> ModelCard:
    """Return the card with the heads that a page shows: those that are given, or all that it can show. Raises
    ConfigError if there is none, or one of those gives segments or a focal length."""
    named = {*heads, *map(head_giving, heads)}  # uncertainty comes with its depth
    kinds = {name: spec.output_kind for name, spec in card.outputs.items() if not heads or name in named}
    fit = [name for name, kind in kinds.items() if kind.averaged and not kind.estimates_camera]
    if other := [name for name in kinds if name not in fit and (heads or not fit)]:
        raise ConfigError(f"--heads: {other[0]} gives {kinds[other[0]].meaning}, which a web page does not show.")
    return replace(card, outputs={name: card.outputs[name] for name in fit})


def at_size(card: ModelCard, size: Size | None) -> tuple[ModelCard, Size]:
    """Return the card with every image resized to `size`, without sliding windows, and that size: that of a window or
    of the network unless it is given. Raises ConfigError if the model takes images as they come, and no size is
    given."""
    size = size or onnx.size_of_network(card)
    if size is None:
        raise ConfigError(
            "--image-size: this model takes images of any size. Give height and width at which the page shall show "
            f"them to it: multiples of {card.multiple}, fewer pixels for more speed."
        )
    return replace(card, resize=replace(card.resize, mode="fixed", size=size, window=None, stride=None)), size


def describe(card: ModelCard, size: Size, title: str, model_bytes: int) -> dict[str, Any]:
    """Return what the page must know of the model."""
    data, limitation, details = in_brief(card)
    return {
        "title": title or card.source,
        "densevit": __version__,
        "source": card.source,
        "licence": card.licence,
        "data": data,
        "limitation": limitation,
        "details": details,
        "size": size,
        "modelBytes": model_bytes,
        "needsFocal": card.needs_camera,
        "fov": assumed_fov(card),
        "outputs": [{"name": name, **describe_head(spec)} for name, spec in card.outputs.items()],
        "colormaps": {name: table(name).ravel().tolist() for name in get_args(ColorMap)},
    }


def describe_head(spec: HeadSpec) -> dict[str, Any]:
    palette = palette_for(spec) if spec.kind == "labels" else ()
    kind = spec.output_kind
    meaning, unit = kind.meaning, spec.unit if kind.is_metric else ""
    return {"kind": spec.kind, "meaning": meaning, "unit": unit, "classes": spec.classes, "palette": palette}


VERSION = "1.30.0"
PACKAGE = f"onnxruntime-web@{VERSION}"
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""Of the package, as the registry states it (`npm view onnxruntime-web@1.30.0 dist.integrity`)."""

TIMEOUT = 600  # seconds for 33 MB

FILES = {
    "dist/ort.wasm.min.mjs": "ort.wasm.js",  # on the CPU
    "dist/ort-wasm-simd-threaded.mjs": "wasm.js",
    "dist/ort-wasm-simd-threaded.wasm": "wasm.wasm",
    "dist/ort.webgpu.min.mjs": "ort.webgpu.js",  # on the GPU
    "dist/ort-wasm-simd-threaded.asyncify.mjs": "webgpu.js",
    "dist/ort-wasm-simd-threaded.asyncify.wasm": "webgpu.wasm",
    "package.json": "package.json",  # version, authors, licence
    "README.md": "README.md",
}
"""In the package -> in the site; `.js`, since many servers do not know `.mjs` as JavaScript."""


def check_runtime(package: Path | None) -> None:
    """Raise ConfigError if `package` is not there, or nothing is given and npm is not installed."""
    if package is None and shutil.which("npm") is None:
        raise ConfigError(
            f"npm, which fetches ONNX Runtime Web, is not installed. Install Node.js, or run `npm pack {PACKAGE}` on "
            "another machine and name the .tgz by --web-runtime."
        )
    if package is not None and not package.exists():
        raise ConfigError(f"--web-runtime: {package} does not exist; give the folder or .tgz of npm's {PACKAGE}.")


def copy_runtime(source: Path | None, folder: Path) -> str:
    """Copy the files of `FILES` into `folder`; return their version. `source`: the package as a folder or as a .tgz;
    None fetches it by npm. Raises ConfigError: npm fails, or the package has other files than these."""
    with unpacked(source) as package:
        missing = [name for name in FILES if not (package / name).is_file()]
        if missing:
            raise ConfigError(f"{source or PACKAGE}: has no {missing[0]}; it must be the npm package {PACKAGE}.")
        for name, copy in FILES.items():
            shutil.copyfile(package / name, folder / copy)
    return str(json.loads((folder / "package.json").read_text(encoding="utf-8")).get("version", "unknown"))


@contextmanager
def unpacked(source: Path | None) -> Iterator[Path]:
    """Give the package as a folder, which may vanish after the block."""
    if source is not None and source.is_dir():
        yield source
        return
    with TemporaryDirectory(prefix="densevit-") as temporary:
        archive = source or fetch(Path(temporary))
        try:
            with tarfile.open(archive) as file:
                for name in FILES:
                    extract(file, f"package/{name}", Path(temporary))
        except (tarfile.TarError, OSError, KeyError) as error:
            raise ConfigError(f"{archive}: is not the npm package {PACKAGE} ({error}).") from error
        yield Path(temporary) / "package"


def extract(archive: tarfile.TarFile, name: str, folder: Path) -> None:
    """Extract one file of an archive under its own name in `folder`, whatever else the archive says of it."""
    content = archive.extractfile(name)
    if content is None:
        raise tarfile.TarError(f"{name} is no file")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with content, (folder / name).open("wb") as file:
        shutil.copyfileobj(content, file)


def fetch(folder: Path) -> Path:
    """Return the package as npm fetches it, from the registry that npm is set to or from npm's cache."""
    command = ["npm", "pack", PACKAGE, "--prefer-offline", "--ignore-scripts", "--silent"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise ConfigError(
            f"npm could not fetch {PACKAGE} ({said[-1] if said else error}). `npm pack {PACKAGE}` on a machine with a "
            "network makes a .tgz for --web-runtime."
        ) from error
    archive = folder / done.stdout.strip().splitlines()[-1]
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != SHA512:
        raise ConfigError(f"{PACKAGE}: what npm fetched has the sha512 {digest}, not {SHA512}; it is not used.")
    return archive
