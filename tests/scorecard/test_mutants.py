"""Each guard of the scorecard is needed: with it taken out, the test that watches it fails."""

from pathlib import Path

import pytest
from scorecard import mutation
from scorecard.card import Mutant
from scorecard.checks import CHECKS

MUTANTS = [
    pytest.param(mutant, id=f"{check.number}-{i}") for check in CHECKS for i, mutant in enumerate(check.mutants, 1)
]


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_the_guard_its_test_fails(mutant: Mutant, tmp_path: Path) -> None:
    mutation.apply(mutant, mutation.copy(tmp_path))
    code, said = mutation.run(mutant.test, tmp_path)
    assert code == mutation.TESTS_FAILED, f"{mutant.guard}: {said[-3000:]}"


def test_every_guard_stands_where_the_table_says() -> None:
    for mutant in (mutant for check in CHECKS for mutant in check.mutants):
        assert (mutation.ROOT / mutant.file).read_text().count(mutant.old) == 1, (mutant.file, mutant.old)


def test_every_check_names_functions_that_are_there() -> None:
    named = [test for check in CHECKS for test in (*check.tests, *(mutant.test for mutant in check.mutants))]
    for test in named:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (mutation.ROOT / path).read_text(), test
