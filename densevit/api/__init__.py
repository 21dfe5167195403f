"""What `import densevit` gives, and what the commands call.

`train`, `data`, `evaluate`, `predict`, `models` and `catalog` declare the functions, each argument once, and import
nothing heavy; the other modules stand behind them.
"""

from densevit.api.models import load

__all__ = ["load"]
