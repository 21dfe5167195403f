"""What a training minimises, imported so that each objective registers."""

from densevit.engine.objective import OBJECTIVES as OBJECTIVES
from densevit.objectives.pretraining.dino import SelfDistillation as SelfDistillation
from densevit.objectives.pretraining.mae import MaskedAutoencoder as MaskedAutoencoder
from densevit.objectives.self_supervised.objective import SelfSupervised as SelfSupervised
from densevit.objectives.supervised import Supervised as Supervised
