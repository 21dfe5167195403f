"""How well a predicted uncertainty tells the error, and intervals that are calibrated by it."""
