"""Checkpoints, preemption, numerics and repeatability: C, P, N and R of the scorecard."""

from scorecard.card import Check, Mutant

CHECKS: tuple[Check, ...] = ()
