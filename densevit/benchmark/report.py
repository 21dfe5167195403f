"""A report: rows of numbers with the machine they are of, as Markdown for people and JSON for `--against`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from densevit.benchmark.interleaved_timing import Spread
from densevit.errors import DataError
from densevit.utils.atomic_io import write_text

TOLERANCE = 0.10  # runs of one machine differ by some percent
ITSELF = Spread(1.0, 1.0, 1.0)  # times faster than itself


@dataclass(frozen=True)
class Row:
    """One number.

    Attributes:
        faster: times faster than the section's baseline, turn by turn; None where nothing is compared.
        note: what else there is to say: share of the peak, difference of outputs.
    """

    section: str
    case: str
    who: str
    value: Spread
    unit: str
    better: Literal["lower", "higher"] = "lower"
    faster: Spread | None = None
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.section, self.case, self.who, self.unit


@dataclass(frozen=True)
class Report:
    date: str
    command: str
    machine: Mapping[str, Any]
    rows: Sequence[Row]
    absent: Sequence[str] = field(default_factory=list)  # peers that are not here, and why

    def write(self, stem: Path) -> list[Path]:
        """Writes `stem`.md and `stem`.json."""
        texts = {".md": self.markdown(), ".json": json.dumps(asdict(self), indent=1) + "\n"}
        for suffix, text in texts.items():
            write_text(Path(f"{stem}{suffix}"), text)
        return [Path(f"{stem}{suffix}") for suffix in texts]

    @classmethod
    def read(cls, path: Path) -> "Report":
        """
        Raises:
            DataError: no such file, or no report.
        """
        try:
            tree = json.loads(path.read_text())
            rows = [Row(**{**row, "value": _spread(row["value"]), "faster": _ratio(row)}) for row in tree["rows"]]
            hash(tuple(row.key for row in rows))  # words, all of them
            return cls(**{**tree, "rows": rows})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: no report of `densevit benchmark` ({error}).") from None

    def markdown(self) -> str:
        machine = {**self.machine, **self.machine.get("versions", {})}
        told = ", ".join(f"{key} {value}" for key, value in machine.items() if key != "versions")
        lines = [f"# Benchmark of {self.date}", "", f"`{self.command}`", "", f"Machine: {told}.", ""]
        lines += [
            "Contestants take turns. A value is the median, with its quartiles; *times faster* is the median of the "
            "ratios turn by turn, against the row that says 1.",
            "",
        ]
        lines += [f"Not run: {reason}" for reason in self.absent] + [""] * bool(self.absent)
        for section, rows in groupby(self.rows, lambda row: row.section):
            lines += [f"## {section.capitalize()}", "", "| case | who | median | quartiles | times faster | |"]
            lines += ["|---|---|---|---|---|---|", *map(_line, rows), ""]
        return "\n".join(lines)


def _spread(values: Mapping[str, float]) -> Spread:
    return Spread(**{name: float(value) for name, value in values.items()})


def _ratio(row: Mapping[str, Any]) -> Spread | None:
    return None if row["faster"] is None else _spread(row["faster"])


def _line(row: Row) -> str:
    faster = "" if row.faster is None else f"{row.faster.middle:.2f}"
    value = row.value
    quartiles = f"{number(value.low)} to {number(value.high)}" if value.low != value.high else ""
    return f"| {row.case} | {row.who} | {number(value.middle)} {row.unit} | {quartiles} | {faster} | {row.note} |"


def number(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"


def regressions(before: Report, after: Report, tolerance: float = TOLERANCE) -> Iterator[str]:
    """What became worse, a sentence each.

    Where both have a ratio to a baseline in the same run, it decides: it holds on a busy machine and on another one.
    Where we are the baseline, it says nothing, and the value decides. A difference inside the quartiles of either run
    is none.
    """
    old = {row.key: row for row in before.rows if row.section != "floors"}
    for row in after.rows:
        was = old.get(row.key)
        if was is None:
            continue
        ours = row.who.startswith("densevit") and row.faster == ITSELF == was.faster
        by_ratio = was.faster is not None and row.faster is not None and not ours
        a, b = (was.faster, row.faster) if by_ratio else (was.value, row.value)
        assert a is not None and b is not None
        if not min(a.middle, b.middle) > 0:
            continue
        rises = by_ratio or row.better == "higher"
        worse = a.middle / b.middle - 1 if rises else b.middle / a.middle - 1
        apart = b.high < a.low if rises else b.low > a.high
        if worse > tolerance and (apart or (by_ratio is False and a.low == a.high)):
            what = "times faster than the baseline" if by_ratio else row.unit
            yield (
                f"{row.section}, {row.case}, {row.who}: {number(b.middle)} {what}, was {number(a.middle)} "
                f"({worse:.0%} worse)."
            )


def compared(before: Report, after: Report) -> str:
    """How much of two reports could be held against each other."""
    old, new = ({row.key for row in report.rows if row.section != "floors"} for report in (before, after))
    lines = [f"{len(old & new)} rows compared", f"{len(new - old)} are new", f"{len(old - new)} were not measured now"]
    return ", ".join(line for line in lines if not line.startswith("0 ")) if old & new else "no row is in both"
