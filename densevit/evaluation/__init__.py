"""Protocols, metrics, and the report: predictions of any system become comparable numbers."""
