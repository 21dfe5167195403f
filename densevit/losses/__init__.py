"""Losses; importing this registers them."""

from densevit.registry import import_all

import_all(__name__)
