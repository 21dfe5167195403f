"""All checks of the scorecard, in its order."""

from scorecard import data_checks, input_checks, training_checks

CHECKS = tuple(
    sorted(
        (*training_checks.CHECKS, *data_checks.CHECKS, *input_checks.CHECKS),
        key=lambda c: ("CPNDIRS".index(c.number[0]), int(c.number[1:])),
    )
)
