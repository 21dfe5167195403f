"""Experiment trackers beside CSV and TensorBoard: `trackers: [wandb]`; importing this registers them.

Each package is imported when a run begins, and needs no network unless options name a server.
"""

from densevit.engine.trackers.base import TRACKERS, Tracker
from densevit.engine.trackers.mlflow import MlflowTracker
from densevit.engine.trackers.run import Trackers, start_trackers
from densevit.engine.trackers.trackio import TrackioTracker
from densevit.engine.trackers.wandb import WandbTracker

__all__ = ["TRACKERS", "MlflowTracker", "Tracker", "Trackers", "TrackioTracker", "WandbTracker", "start_trackers"]
