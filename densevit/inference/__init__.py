"""From pictures to depth maps, in Python (`Predictor`) and on disk (`export`). Start with predictor.py."""
