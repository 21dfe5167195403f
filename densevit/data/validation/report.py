"""An examination on paper: text for a terminal, JSON for programs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from densevit import __version__
from densevit.data.validation.issues import KINDS, LEVELS, Finding
from densevit.data.validation.validator import Summary, ValidationReport
from densevit.utils.atomic_io import write_text

SCHEMA = 1  # a new number when a key changes its meaning
SHOWN = 5  # findings of a kind in the text


def text(examination: ValidationReport) -> str:
    """All kinds of findings with their first five, the numbers of each split, and the verdict."""
    lines = [line for summary in examination.summaries for line in summary_lines(summary)]
    for level in LEVELS:
        for kind, findings in by_kind(examination.findings, level).items():
            lines += ["", f"{level}: {KINDS[kind].title} ({len(findings):,})"]
            lines += [f"  [{finding.split}] {finding.words()}" for finding in findings[:SHOWN]]
            if len(findings) > SHOWN:
                lines.append(f"  ... and {len(findings) - SHOWN:,} more")
            lines.append(f"  -> {KINDS[kind].remedy}")
    return "\n".join([*lines, "", verdict(examination)])


def verdict(examination: ValidationReport) -> str:
    counts = {level: sum(f.level == level for f in examination.findings) for level in LEVELS}
    said = ", ".join(f"{count:,} {level}{'s' * (count != 1)}" for level, count in counts.items())
    rate = examination.samples / max(examination.seconds, 1e-9)
    took = f"{examination.samples:,} samples in {examination.seconds:.1f} s ({rate:,.0f} a second)"
    return f"{said}; {took}. " + ("Good to go." if examination.healthy else "Training or scores would suffer.")


def summary_lines(summary: Summary) -> Iterator[str]:
    sizes = ", ".join(f"{size} ({count:,})" for size, count in list(summary.sizes.items())[:4])
    more = f" and {len(summary.sizes) - 4} more sizes" if len(summary.sizes) > 4 else ""
    yield f"{summary.split}: {summary.readable:,} of {summary.samples:,} samples are readable; {sizes or 'none'}{more}"
    if summary.depth is not None:
        low, middle, high = summary.depth
        yield f"  depth {low:.3g} to {high:.3g} m, median {middle:.3g} m; {summary.share:.0%} of the pixels measured"
    if summary.labelled is not None:
        yield f"  labels of {summary.classes:,} classes; {summary.labelled:.1%} of the pixels have one"


def by_kind(findings: Sequence[Finding], level: str) -> dict[str, list[Finding]]:
    """Kind -> its findings, in the order of the table."""
    groups: dict[str, list[Finding]] = {kind: [] for kind, facts in KINDS.items() if facts.level == level}
    for finding in findings:
        if finding.level == level:
            groups[finding.kind].append(finding)
    return {kind: group for kind, group in groups.items() if group}


def as_tree(examination: ValidationReport) -> dict[str, Any]:
    """All of it, in JSON's types."""
    findings = [{**asdict(finding), "level": finding.level} for finding in examination.findings]
    return {
        "schema": SCHEMA,
        "densevit": __version__,
        "healthy": examination.healthy,
        "samples": examination.samples,
        "seconds": round(examination.seconds, 3),
        "splits": [asdict(summary) for summary in examination.summaries],
        "findings": findings,
    }


def write_json(path: Path, examination: ValidationReport) -> None:
    write_text(path, json.dumps(as_tree(examination), indent=2, allow_nan=False) + "\n")
