"""Scores of surface normals."""
