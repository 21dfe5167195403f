"""The data sets; importing this registers them."""

from densevit.registry import import_all

import_all(f"{__name__}.datasets")
