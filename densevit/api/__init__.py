"""What `import densevit` gives: load, train, evaluate and export, one module each. The commands call these, too."""

from densevit.api.checkpoint import load

__all__ = ["load"]
