"""The configs that come with densevit, found by name: `densevit train nyu_dinov2_vits_dpt`."""

import difflib
import re
from pathlib import Path

from densevit.errors import ConfigError

PACKAGE = Path(__file__).parents[1]
SUFFIXES = (".yaml", ".yml")


def folder() -> Path:
    """`densevit/configs` in an installed package, `configs` beside the package in a clone."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def recipes() -> dict[str, Path]:
    """Name -> file; with its folder, `depth/rooms`, where several files have the name."""
    files = sorted(folder().rglob("*.yaml"))
    stems = [path.stem for path in files]
    return {path.stem if stems.count(path.stem) == 1 else f"{path.parent.name}/{path.stem}": path for path in files}


def find_config(path: str | Path) -> Path:
    """A config file, or else the recipe of that name, with or without its folder and suffix. Raises ConfigError if
    there is neither; with the files in its folder, and the recipes."""
    path = Path(path)
    if path.exists():
        return path
    name = path.with_suffix("") if path.suffix in SUFFIXES else path
    named = recipes()
    parts = name.parts[1:] if name.parts[:1] == ("configs",) else name.parts
    matches = [recipe for recipe in named.values() if recipe.with_suffix("").parts[-len(parts) :] == parts and parts]
    if len(matches) == 1:
        return matches[0]
    near = sorted(p.name for p in path.parent.glob("*") if p.suffix in SUFFIXES) if path.parent.is_dir() else []
    beside = f" There are: {', '.join(near)}." if near else ""
    close = difflib.get_close_matches("/".join(parts), named, n=1) or difflib.get_close_matches(name.name, named, n=1)
    hint = f" Did you mean the recipe '{close[0]}'?" if close else ""
    raise ConfigError(f"{path}: no such config file.{beside}{hint} Recipes that go by name: {', '.join(named)}.")


def title(path: Path) -> str:
    """Return the first sentence of a config's opening comment."""
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        words.append(line[2:].strip())
    first, *_ = re.split(r"(?<!et al)\.(?: |$)", " ".join(words), maxsplit=1)
    return first
