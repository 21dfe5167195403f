"""Tasks: losses and scores of a head's prediction; importing this registers them."""

from densevit.registry import import_all

import_all(__name__)
