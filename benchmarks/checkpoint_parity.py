"""Published checkpoints through our loader beside the original code: the same random weights, the same maps?

Each case builds the original model from its own repository (or from `transformers`, `segmentation_models_pytorch`) with
seeded random weights, writes them in the original layout, loads that file with `densevit.load`, and shows both the same
picture files: a square one, a landscape, a portrait and a small one. Prints the largest difference as a share of the
output's range, in fp32, and ends with 1 if one exceeds the bound.

    python benchmarks/checkpoint_parity.py --repositories DIR [--only WORD] [--slow] [--report FILE.md]

DIR holds clones under the names of their repositories, as Depth-Anything-V2. Cases whose code is absent are listed as
not run. Cases live in `checkpoint_cases/`, one file a family.
"""

import argparse
import gc
import importlib
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from checkpoint_cases.case import SIZES, Case, picture
from PIL import Image

import densevit
from densevit.utils.atomic_io import write_text

HERE = Path(__file__).parent


class Row(NamedTuple):
    case: Case
    gaps: dict[str, float]  # by size: the largest difference, as a share of the output's range
    low: float
    high: float
    parameters: int
    seconds: float


class Broken(NamedTuple):
    case: Case
    why: str


def all_cases() -> list[Case]:
    files = sorted(path.stem for path in (HERE / "checkpoint_cases").glob("*.py") if path.stem != "case")
    return [case for name in files for case in importlib.import_module(f"checkpoint_cases.{name}").CASES]


def absent(case: Case, repositories: Path | None) -> str:
    """What a case lacks; empty if nothing."""
    if case.package and not find_spec(case.package):
        return f"`{case.package}` is not installed"
    folders = (case.repository, *case.needs) if case.repository else ()
    lacking = [name for name in folders if repositories is None or not (repositories / name).is_dir()]
    return f"{lacking[0]} is not below --repositories" if lacking else ""


def compare(case: Case, repositories: Path | None, work: Path) -> Row:
    begun = time.monotonic()
    torch.manual_seed(0)
    original = case.make((repositories or Path()) / case.repository, work)
    how = {"family_options": original.options, "device": "cpu", "precision": "fp32", **original.camera}
    ours = densevit.load(original.weights, case.family, **how)
    gaps, low, high = {}, np.inf, -np.inf
    for name, size in case.sizes.items():
        path = work / f"{name}.png"
        Image.fromarray(picture(size)).save(path)
        theirs, mine = np.asarray(original.predict(path), dtype=np.float64), ours(path)
        assert theirs.shape == mine.shape, f"{case.family} {case.name} {name}: {theirs.shape}, ours {mine.shape}"
        assert np.isfinite(theirs).all(), f"{case.family} {case.name} {name}: the original gives NaN or infinity"
        gaps[name] = float(np.abs(theirs - mine).max() / np.ptp(theirs))
        low, high = min(low, float(theirs.min())), max(high, float(theirs.max()))
    parameters = sum(p.numel() for p in ours.model.parameters())
    return Row(case, gaps, low, high, parameters, time.monotonic() - begun)


def rows(cases: Sequence[Case], repositories: Path | None) -> Iterator[Row | Broken]:
    for case in cases:
        row: Row | Broken
        try:
            with tempfile.TemporaryDirectory() as work:
                row = compare(case, repositories, Path(work))
            print(line(row), f"({row.seconds:.0f} s)", flush=True)
        except Exception as error:  # one case that breaks must not cost the others
            row = Broken(case, f"{type(error).__name__}: {str(error).strip()[:300]}")
            print(f"{case.family}, {case.name}: {row.why}", flush=True)
        yield row
        gc.collect()


def line(row: Row) -> str:
    gaps = " | ".join(f"{row.gaps[size]:.1e}" if size in row.gaps else "-" for size in SIZES)
    return (
        f"| {row.case.family} | {row.case.name} | {row.case.code} | {row.parameters / 1e6:.1f} M | "
        f"{row.low:.3g} to {row.high:.3g} | {gaps} |"
    )


def table(found: Sequence[Row]) -> str:
    head = f"| family | variant | beside | parameters | output | {' | '.join(SIZES)} |"
    return "\n".join([head, "|---" * (5 + len(SIZES)) + "|", *map(line, found)])


def passes(row: Row, bound: float) -> bool:
    worst = max(row.gaps.values())
    return worst > bound if row.case.differs else worst <= bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repositories", type=Path, help="folder with clones of the original repositories")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this in their family or variant")
    parser.add_argument("--slow", action="store_true", help="also the large variants")
    parser.add_argument("--bound", type=float, default=1e-4, help="of the output's range (1e-4)")
    parser.add_argument("--report", type=Path, help="write the table here, too")
    args = parser.parse_args()
    wanted = [case for case in all_cases() if args.only in f"{case.family} {case.name}"]
    lacking = [
        (case, absent(case, args.repositories) or "only with --slow" * (case.slow and not args.slow)) for case in wanted
    ]
    skipped = [(case, why) for case, why in lacking if why]
    found: list[Row] = []
    for row in rows([case for case, why in lacking if not why], args.repositories):
        if isinstance(row, Row):
            found.append(row)
        else:
            skipped.append((row.case, f"broke: {row.why}"))
        if args.report:  # after each case: a long run that is stopped leaves what it found
            write_text(args.report, report(found, skipped, args.bound))
    print(f"\n{report(found, skipped, args.bound)}")
    broken = any(why.startswith("broke") for _, why in skipped)
    return int(broken or not found or not all(passes(row, args.bound) for row in found))


def report(found: Sequence[Row], skipped: Sequence[tuple[Case, str]], bound: float) -> str:
    pairs = [row for row in found if not row.case.differs]
    controls = [row for row in found if row.case.differs]
    worst = max((max(row.gaps.values()) for row in pairs), default=float("nan"))
    extra = " --slow" * ("--slow" in sys.argv)
    failed = [row for row in found if not passes(row, bound)]
    parts = [
        "# Published checkpoints through our loader, beside the original code",
        f"Made by `python benchmarks/checkpoint_parity.py --repositories DIR{extra}`. Random weights in the original "
        "layout, the same picture files for both; each number is the largest difference of two maps as a share of "
        "the range of the original's map. Sizes (h x w): "
        + ", ".join(f"{name} {h}x{w}" for name, (h, w) in SIZES.items())
        + ", unless a case says otherwise.",
        table(pairs),
        f"{len(pairs)} cases, largest difference {worst:.1e}, bound {bound:.0e}; {len(failed)} failed.",
    ]
    if controls:
        parts += ["Controls, which must differ:", table(controls)]
    if skipped:
        parts += ["Not run:", "\n".join(f"- {case.family}, {case.name}: {why}" for case, why in skipped)]
    parts.append(f"torch {torch.__version__}, {platform.machine()}, fp32, one CPU.")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
