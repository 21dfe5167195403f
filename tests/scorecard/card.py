"""What a line of the scorecard is: a fault, what must happen, the tests that inject it, and the guards they watch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A guard taken out of the code; `test` must fail without it.

    Attributes:
        guard: what is taken out, in words.
        file: below the repository's root; `old` stands in it exactly once, and becomes `new`.
        test: the node id of a test that notices.
    """

    guard: str
    file: str
    old: str
    new: str
    test: str


@dataclass(frozen=True)
class Check:
    """One of the 34 checks.

    Attributes:
        target: the criterion to pass.
        anchor: the highest level found in other systems, by name; `none` where nobody has it.
        tests: node ids, without parameters; all must pass.
    """

    number: str
    fault: str
    target: str
    anchor: str
    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]
