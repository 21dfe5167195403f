"""Families of published checkpoints; importing this package registers them."""

from densevit.registry import import_all

import_all(__name__)
