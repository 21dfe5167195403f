"""Data, input and security: D, I and S of the scorecard."""

from scorecard.card import Check

CHECKS: tuple[Check, ...] = ()
