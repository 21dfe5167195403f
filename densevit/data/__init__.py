"""The data sets; importing this registers them. `download` fetches some of them."""

from densevit.data.prepare.download import download
from densevit.registry import import_all

__all__ = ["download"]

import_all(f"{__name__}.datasets")
