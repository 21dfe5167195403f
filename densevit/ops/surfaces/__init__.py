"""Depth as surfaces: normals, depth edges, triangles."""
