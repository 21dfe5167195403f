"""The registry of training objectives."""

from densevit.engine.objective import TrainingObjective
from densevit.registry import Registry

OBJECTIVES = Registry[TrainingObjective]("objective")
