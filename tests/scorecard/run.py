"""Runs the scorecard and prints it as a table.

python tests/scorecard/run.py                all checks, and all guards taken out one by one
python tests/scorecard/run.py C P2 -n 2      some of them, on two cores
python tests/scorecard/run.py --no-mutants   the checks alone
"""

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from scorecard.card import Check  # noqa: E402
from scorecard.checks import CHECKS  # noqa: E402

MUTANTS = "tests/scorecard/test_mutants.py"
HEAD = "| check | fault | target | held | anchor | guards removed and noticed |\n|---|---|---|---|---|---|"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="C1, or C for all that begin so; default: all")
    parser.add_argument("-n", type=int, default=1, metavar="N", help="processes (pytest-xdist)")
    parser.add_argument("--no-mutants", action="store_true", help="leave the guards in")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there, too")
    args = parser.parse_args()
    chosen = [check for check in CHECKS if not args.checks or {check.number, check.number[0]} & set(args.checks)]
    began = time.monotonic()
    outcomes = run(wanted(chosen, mutants=not args.no_mutants), args.n)
    lines = [line(check, outcomes) for check in chosen]
    held = sum(all(passed(test, outcomes) for test in check.tests) for check in chosen)
    text = "\n".join([HEAD, *lines, "", f"{held} of {len(chosen)} held; {time.monotonic() - began:.0f} s."])
    print(text)
    if args.output is not None:
        words = f"`python tests/scorecard/run.py {' '.join(sys.argv[1:])}`, {date.today()}"
        args.output.write_text(f"# The reliability scorecard\n\n{words}\n\n{text}\n")
    return 0 if all(passed(test, outcomes) for test in wanted(chosen, mutants=not args.no_mutants)) else 1


def wanted(checks: Sequence[Check], *, mutants: bool) -> list[str]:
    tests = [test for check in checks for test in check.tests]
    removed = [mutant for check in checks for mutant in guards(check)] if mutants else []
    return list(dict.fromkeys([*tests, *removed]))


def guards(check: Check) -> list[str]:
    return [
        f"{MUTANTS}::test_without_the_guard_its_test_fails[{check.number}-{i + 1}]" for i in range(len(check.mutants))
    ]


def run(tests: Sequence[str], processes: int) -> dict[str, bool]:
    """Node id, with parameters -> passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        spread = ["-n", str(processes), "--dist", "worksteal"] if processes > 1 else []
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *spread, *tests]
        subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
        if not report.exists():
            sys.exit("pytest could not run; see above.")
        cases = list(ElementTree.parse(report).iter("testcase"))
    return {node(case): is_good(case) for case in cases}


def node(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def is_good(case: ElementTree.Element) -> bool:
    return not {child.tag for child in case} & {"failure", "error", "skipped"}


def passed(test: str, outcomes: dict[str, bool]) -> bool:
    found = [good for name, good in outcomes.items() if name == test or name.startswith(f"{test}[")]
    return bool(found) and all(found)


def line(check: Check, outcomes: dict[str, bool]) -> str:
    held = "yes" if all(passed(test, outcomes) for test in check.tests) else "**no**"
    noticed = sum(passed(guard, outcomes) for guard in guards(check))
    cells = check.number, check.fault, check.target, held, check.anchor, f"{noticed} of {len(check.mutants)}"
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
