"""Metrics, published protocols, confidence intervals and reports for depth, segmentation and classification."""
