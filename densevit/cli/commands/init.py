"""Write a first config for a folder of your own, after a look at it: sizes, the unit of depth, classes.

`densevit init mine --root /data/mine` writes mine.yaml, ready for `densevit train mine.yaml`. Images lie in images/,
depth maps of the same names in depths/, label maps in labels/, all of them perhaps in train/ and val/.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="of the config, NAME.yaml, and of the run, runs/NAME")
    parser.add_argument("--root", type=Path, metavar="DIR", help="the folder; default: the one called NAME")
    parser.add_argument("--overwrite", action="store_true", help="replace a config that is there")


def run(args: argparse.Namespace) -> int:
    from densevit.config import validation
    from densevit.config.parser import Draft
    from densevit.config.starter import starter_config
    from densevit.data.folder_facts import look_at_folder
    from densevit.errors import ConfigError
    from densevit.utils.atomic_io import write_text

    root = args.root or Path(args.name)
    path = Path(Path(args.name).name.removesuffix(".yaml") + ".yaml")
    if path.exists() and not args.overwrite:
        raise ConfigError(f"{path}: is there already; take another NAME, or --overwrite.")
    facts = look_at_folder(root)
    write_text(path, starter_config(path.stem, facts))
    validation.check(Draft.read(path))
    next_steps = [f"written  {path}", f"next     densevit check-data {path}", f"         densevit train {path}"]
    print("\n".join([*facts.lines(), *next_steps]))
    return 0
