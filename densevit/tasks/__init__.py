"""Tasks: losses and scores of a head's prediction."""

from densevit.tasks import classification as classification
from densevit.tasks import depth as depth
from densevit.tasks import focal as focal
from densevit.tasks import normals as normals
from densevit.tasks import segmentation as segmentation
from densevit.tasks import segments as segments
from densevit.tasks.base import TASKS as TASKS
from densevit.tasks.base import Task as Task
