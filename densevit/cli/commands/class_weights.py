"""Count the classes in label maps, and print class weights for a loss as a line of the config."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from densevit.cli.options import dataset
from densevit.cli.options.checkpoint import add_plugin_option
from densevit.cli.options.types import positive_int

if TYPE_CHECKING:
    from densevit.data.labels.class_frequencies import ClassCounts, Method


def add_arguments(parser: argparse.ArgumentParser) -> None:
    dataset.add_split_options(parser, splits="the training data")
    add_plugin_option(parser)
    add = parser.add_argument
    add("--method", default="enet", metavar="NAME", help="enet (default): 1/ln(1.02 + share); inverse: 1/share; median")
    add("--threads", type=positive_int, metavar="N", help="default: one a core")


def run(args: argparse.Namespace) -> int:
    from densevit.data.labels.class_frequencies import METHODS, count_classes
    from densevit.errors import ConfigError
    from densevit.registry import did_you_mean

    if args.method not in METHODS:
        raise ConfigError(f"--method: no method '{args.method}'.{did_you_mean(args.method, METHODS)}")
    splits = dataset.find_splits(args)
    for split in splits if args.split else [next(splits)]:
        counts = count_classes(split.data.build(), threads=args.threads, progress=_progress)
        print(f"{split.name}: {counts.total:,} label maps; {_labelled(counts):.1%} of the pixels have a class")
        print(table(counts))
        print(line(counts, args.method))
    return 0


def table(counts: "ClassCounts") -> str:
    """Classes with their pixels and images, and their weights by each method."""
    from densevit.data.labels.class_frequencies import METHODS

    weights = {method: weigh(counts) for method, weigh in METHODS.items()}
    width = max(len("class"), *(len(name) for name in counts.names))
    lines = [
        f"{'id':>4}  {'class':<{width}}{'pixels':>16}{'share':>10}{'images':>9}" + "".join(f"{m:>10}" for m in weights)
    ]
    for i, name in enumerate(counts.names):
        numbers = "".join(f"{values[i]:>10.4g}" for values in weights.values())
        pixels, images = f"{counts.pixels[i]:>16,}", f"{counts.images[i]:>9,}"
        lines.append(f"{i:>4}  {name:<{width}}{pixels}{counts.shares[i]:>10.4%}{images}{numbers}")
    return "\n".join(lines)


def line(counts: "ClassCounts", method: "Method") -> str:
    """The weights as a loss of a config has them."""
    from densevit.data.labels.class_frequencies import METHODS

    weights = ", ".join(f"{weight:.4g}" for weight in METHODS[method](counts))
    return f"losses: [{{type: cross_entropy, weights: [{weights}]}}]  # {method}; of the task, in the config"


def _labelled(counts: "ClassCounts") -> float:
    pixels = int(counts.pixels.sum())
    return pixels / (pixels + counts.ignored)


def _progress(found: Iterable[Any], total: int) -> Iterable[Any]:
    from densevit.utils.progress import tqdm

    return tqdm(found, total=total, desc="count", delay=2, disable=None, unit="maps")
