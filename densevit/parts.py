"""The one table of all parts that a config can choose from."""

import densevit.data
import densevit.data.transforms
import densevit.losses
import densevit.models
import densevit.tasks
import densevit.weights.families  # noqa: F401 (the six imports register the parts)
from densevit.checking import Parts
from densevit.data.dataset import DATASETS
from densevit.data.transform import TRANSFORMS
from densevit.evaluation.protocols import PROTOCOLS
from densevit.models.decoder import DECODERS
from densevit.models.encoder import ENCODERS
from densevit.models.heads import HEADS
from densevit.tasks.task import TASKS

PARTS = Parts(ENCODERS, DECODERS, HEADS, TASKS, TRANSFORMS, DATASETS, PROTOCOLS)
