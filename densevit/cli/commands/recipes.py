"""List the configs that come with densevit, or print one: `densevit recipes depth/folder > mine.yaml`."""

import argparse
import re
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="print this one")


def run(args: argparse.Namespace) -> int:
    from densevit.config.recipes import find_config, recipes

    if args.name is not None:
        print(find_config(args.name).read_text(encoding="utf-8"), end="")
        return 0
    known = recipes()
    width = max(map(len, known))
    for folder in dict.fromkeys(path.parent.name for path in known.values()):
        print(f"{folder}:")
        for name, path in known.items():
            if path.parent.name == folder:
                print(f"  {name:{width}}  {title(path)}")
    print("`densevit recipes NAME` prints one; `densevit train NAME key=value ...` trains by it.")
    return 0


def title(path: Path) -> str:
    """The first sentence of a config's opening comment."""
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        words.append(line[2:].strip())
    first, *_ = re.split(r"(?<!et al)\.(?: |$)", " ".join(words), maxsplit=1)
    return first
