"""From images to maps, in Python (`Predictor`) and on disk (`export`). Start with predictor.py."""
