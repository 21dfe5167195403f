"""Depth evaluation: protocols, metrics and reports."""
