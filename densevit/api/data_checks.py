"""What stands behind `check_data`: the validation of splits, and the weights of their classes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from densevit.api.data_arguments import Split
from densevit.data import validation
from densevit.data.datasets.mix import Mix, split_sources
from densevit.data.labels.class_frequencies import METHODS, ClassCounts, Method, count_classes
from densevit.data.validation import SplitToValidate
from densevit.data.validation.cache import cache_path
from densevit.errors import ConfigError
from densevit.registry import did_you_mean
from densevit.utils.atomic_io import check_can_create, make_folder, write_text
from densevit.utils.output import Outcome, say_written, tqdm


def check_data(
    splits: Iterable[Split],
    classes: int | None,
    checksums: Path | None,
    ignore: list[str],
    output: Path | None,
    threads: int | None,
    *,
    cache: bool,
) -> Outcome:
    """Validate splits, and write the report."""
    for name in ignore:
        if name not in validation.ISSUE_TYPES:
            raise ConfigError(f"--ignore: no type of issue '{name}'.{did_you_mean(name, validation.ISSUE_TYPES)}")
    if output is not None:
        check_can_create(output)
    datasets = list(_to_validate(splits, classes, cache=cache))
    report = validation.validate(datasets, threads=threads, checksums=checksums, ignore=ignore, progress=_progress)
    text = validation.format_text(report)
    if output is not None:
        make_folder(output)
        write_text(output / "report.txt", f"{text}\n")
        validation.write_json(output / "report.json", report)
        validation.write_html(output / "report.html", report)
        say_written(output / "report.txt", "report.json", "report.html")
    return Outcome(text, 0 if report.ok else 2)


def _to_validate(splits: Iterable[Split], classes: int | None, *, cache: bool) -> Iterator[SplitToValidate]:
    for name, whole, optional in splits:
        for split, data in split_sources(name, whole.options) if whole.component is Mix else [(name, whole)]:
            yield SplitToValidate(split, data.build, cache_path(data.spec()) if cache else None, classes, optional)


def _progress(samples: Iterable[Any], total: int, split: str) -> Iterable[Any]:
    return tqdm(samples, total=total, desc=split, delay=2, disable=None, unit="samples")


def class_weights(splits: Sequence[Split], method: Method, threads: int | None) -> str:
    """Return the classes of splits with their weights, and a line of the config."""
    lines = []
    for split in splits:
        counts = count_classes(
            split.data.build(), threads=threads, progress=lambda done, total: _progress(done, total, "count")
        )
        pixels = int(counts.pixels.sum())
        labelled = pixels / (pixels + counts.ignored)
        lines.append(f"{split.name}: {counts.total:,} label maps; {labelled:.1%} of the pixels have a class")
        lines += [table(counts), line(counts, method)]
    return "\n".join(lines)


def table(counts: ClassCounts) -> str:
    """Return classes with their pixels and images, and their weights by each method."""
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


def line(counts: ClassCounts, method: Method) -> str:
    """Return the weights as a loss of a config has them."""
    weights = ", ".join(f"{weight:.4g}" for weight in METHODS[method](counts))
    return f"losses: [{{type: cross_entropy, weights: [{weights}]}}]  # {method}; of the task, in the config"
