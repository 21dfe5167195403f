"""All registries that a config can choose components from."""

import densevit.data
import densevit.data.transforms.photometric
import densevit.data.transforms.sparse_depth
import densevit.losses
import densevit.models
import densevit.objectives
import densevit.tasks
import densevit.weights.families  # noqa: F401 (the eight imports register components)
from densevit.data.datasets.base import DATASETS
from densevit.data.transforms.affine import TRANSFORMS
from densevit.engine.objective import OBJECTIVES
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.models.conditioning.base import CONDITIONINGS
from densevit.models.decoders.base import DECODERS
from densevit.models.encoders.base import ENCODERS
from densevit.models.heads.base import HEADS
from densevit.registry import Registries
from densevit.tasks.base import TASKS

REGISTRIES = Registries(ENCODERS, OBJECTIVES, DECODERS, HEADS, TASKS, TRANSFORMS, DATASETS, PROTOCOLS, CONDITIONINGS)
