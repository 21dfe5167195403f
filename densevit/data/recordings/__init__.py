"""Recordings of a camera: the layouts that recorders write, poses and trajectories, splits by blocks of time."""
