"""A report: rows of numbers with the machine they are of, as Markdown to read and JSON for `--baseline`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch

from densevit.errors import DataError
from densevit.speed.timing import Rounds, Spread, speedup
from densevit.utils.atomic_io import write_text
from densevit.utils.json_files import MALFORMED, read_object

TOLERANCE = 0.10  # runs on one machine differ by some percent
HARDWARE = "hardware"  # the section of rows that are of the machine, not of an implementation
MACHINE = ("processor", "cores", "threads", "device")  # without the same of these, seconds are not comparable
NO_SPEEDUP = Spread(1.0, 1.0, 1.0)  # of the baseline over itself


@dataclass(frozen=True)
class Row:
    """One number."""

    section: str
    case: str
    who: str
    value: Spread
    unit: str
    better: Literal["lower", "higher"] = "lower"
    faster: Spread | None = None  # speedup over the section's baseline, round by round; None where nothing is compared
    note: str = ""  # share of the peak rate, difference of outputs

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.section, self.case, self.who, self.unit


def rows_by_clock(
    section: str,
    case: str,
    rounds: Rounds,
    names: Sequence[str],
    device: torch.device,
    *,
    images: int = 0,
    note: Callable[[Mapping[str, list[float]], str], str] = lambda seconds, name: "",
) -> Iterator[Row]:
    """Yield rows of seconds by the clock and, on a CPU, of processor time, compared with the first of `names`.
    `images`: of one round; 0 where the work is no image; `note`: from the seconds by that clock and a name."""
    unit = "s an image" if images else "s"
    clocks = {unit: rounds.wall, **({f"{unit}, processor": rounds.processor} if device.type == "cpu" else {})}
    for clock, seconds in clocks.items():
        for name in names:
            value = Spread.of(seconds[name]).map(lambda s: s / max(images, 1))
            faster = speedup(seconds, name, names[0])
            yield Row(section, case, name, value, clock, faster=faster, note=note(seconds, name))


@dataclass(frozen=True)
class Report:
    date: str
    command: str
    machine: Mapping[str, Any]
    rows: Sequence[Row]
    absent: Sequence[str] = field(default_factory=list)  # other implementations that could not run, and why

    def write(self, stem: Path) -> list[Path]:
        """Write `stem`.md and `stem`.json."""
        texts = {".md": self.markdown(), ".json": json.dumps(asdict(self), indent=1) + "\n"}
        for suffix, text in texts.items():
            write_text(Path(f"{stem}{suffix}"), text)
        return [Path(f"{stem}{suffix}") for suffix in texts]

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Raise DataError: no such file, or no report."""
        try:
            tree = read_object(path)
            rows = [Row(**{**row, "value": _spread(row["value"]), "faster": _speedup(row)}) for row in tree["rows"]]
            hash(tuple(row.key for row in rows))  # all of them strings
            return cls(**{**tree, "rows": rows, "machine": {**tree["machine"]}})
        except MALFORMED as error:
            raise DataError(f"{path}: not a report of `densevit benchmark` ({error!s:.300}).") from None

    def markdown(self) -> str:
        machine = {**self.machine, **self.machine.get("versions", {})}
        about = ", ".join(f"{key} {value}" for key, value in machine.items() if key != "versions")
        lines = [f"# Benchmark of {self.date}", "", f"`{self.command}`", "", f"Machine: {about}.", ""]
        lines += [
            "Implementations run in turns. A value is the median, with its quartiles; *times faster* is the median of "
            "the ratios round by round, against the row that says 1.",
            "",
        ]
        lines += [f"Not run: {reason}" for reason in self.absent] + [""] * bool(self.absent)
        for section, rows in groupby(self.rows, lambda row: row.section):
            lines += [f"## {section.capitalize()}", "", "| case | who | median | quartiles | times faster | |"]
            lines += ["|---|---|---|---|---|---|", *map(_line, rows), ""]
        return "\n".join(lines)


def _spread(values: Mapping[str, float]) -> Spread:
    return Spread(**{name: float(value) for name, value in values.items()})


def _speedup(row: Mapping[str, Any]) -> Spread | None:
    return None if row["faster"] is None else _spread(row["faster"])


def _line(row: Row) -> str:
    faster = "" if row.faster is None else f"{row.faster.middle:.2f}"
    value = row.value
    quartiles = f"{three_digits(value.low)} to {three_digits(value.high)}" if value.low != value.high else ""
    return f"| {row.case} | {row.who} | {three_digits(value.middle)} {row.unit} | {quartiles} | {faster} | {row.note} |"


def three_digits(value: float) -> str:
    """Write with three significant digits."""
    if value == 0:
        return "0"
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"


def regressions(before: Report, after: Report, tolerance: float = TOLERANCE) -> Iterator[str]:
    """Yield what became slower, a sentence each.

    Where both reports have a speedup over the same baseline, that is compared: it holds on a busy machine and on
    another one. Where densevit is the baseline, or the baselines differ, the value is compared. A difference inside the
    quartiles of either run is none.
    """
    old = {row.key: row for row in before.rows if row.section != HARDWARE}
    ran_beside, runs_beside = baselines(before), baselines(after)
    for row in after.rows:
        was = old.get(row.key)
        if was is None:
            continue
        ours, case = row.who.startswith("densevit"), (row.section, row.case)
        same = ran_beside.get(case) == runs_beside.get(case) and not (ours and row.faster == NO_SPEEDUP == was.faster)
        by_ratio = was.faster is not None and row.faster is not None and same
        if not (by_ratio or ours or row.faster is None):
            continue  # how fast others are by the clock is not ours to judge
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
                f"{row.section}, {row.case}, {row.who}: {three_digits(b.middle)} {what}, was {three_digits(a.middle)} "
                f"({worse:.0%} worse)."
            )


def baselines(report: Report) -> dict[tuple[str, str], str]:
    """Map each section and case to the implementation that the others are compared with, its first."""
    return {(row.section, row.case): row.who for row in reversed(report.rows) if row.faster == NO_SPEEDUP}


def summarize_overlap(before: Report, after: Report) -> str:
    """Return how many rows of two reports could be compared, and what is different about the machine."""
    machines = [(key, before.machine.get(key), after.machine.get(key)) for key in MACHINE]
    machine = "".join(f"; {key}: was {was}, is {now}" for key, was, now in machines if was != now)
    old, new = ({row.key for row in report.rows if row.section != HARDWARE} for report in (before, after))
    lines = [f"{len(old & new)} rows compared", f"{len(new - old)} are new", f"{len(old - new)} were not measured now"]
    counts = ", ".join(line for line in lines if not line.startswith("0 ")) if old & new else "no row is in both"
    return counts + machine
