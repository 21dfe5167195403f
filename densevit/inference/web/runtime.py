"""ONNX Runtime Web, which runs a model in a browser: its files out of the npm package `onnxruntime-web`."""

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from densevit.errors import ConfigError

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
    """Raises ConfigError if `package` is not there, or nothing is given and npm is not installed."""
    if package is None and shutil.which("npm") is None:
        raise ConfigError(
            f"npm, which fetches ONNX Runtime Web, is not installed. Install Node.js, or run `npm pack {PACKAGE}` on "
            "another machine and name the .tgz by --web-runtime."
        )
    if package is not None and not package.exists():
        raise ConfigError(f"--web-runtime: {package} does not exist; give the folder or .tgz of npm's {PACKAGE}.")


def copy_runtime(source: Path | None, folder: Path) -> str:
    """Copies the files of `FILES` into `folder`; returns their version. `source`: the package as a folder or as a .tgz;
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
    """The package as a folder, which may vanish after the block."""
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
    """One file of an archive under its own name in `folder`, whatever else the archive says of it."""
    content = archive.extractfile(name)
    if content is None:
        raise tarfile.TarError(f"{name} is no file")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with content, (folder / name).open("wb") as file:
        shutil.copyfileobj(content, file)


def fetch(folder: Path) -> Path:
    """The package as npm fetches it, from the registry that npm is set to or from npm's cache."""
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
