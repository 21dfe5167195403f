"""Progress bars for terminals and notebooks alike: the one place that imports tqdm."""

import sys

from tqdm.auto import tqdm

__all__ = ["in_notebook", "tqdm"]


def in_notebook() -> bool:
    """Whether a Jupyter kernel shows what is printed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and "IPKernelApp" in shell.config
