"""Tasks: what a head's prediction is taught and scored by."""

from densevit.tasks import classification as classification
from densevit.tasks import depth as depth
from densevit.tasks import segmentation as segmentation
from densevit.tasks.base import TASKS as TASKS
from densevit.tasks.base import Task as Task
