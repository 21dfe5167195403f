"""Evaluation of a predictor, or of predictions on disk, on a data set. What one image scores is in `evaluation/`."""
