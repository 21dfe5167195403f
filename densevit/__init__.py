"""densevit: train, evaluate and export dense-prediction Vision Transformers."""

from typing import TYPE_CHECKING, Any

from densevit.version import __version__

__all__ = ["Predictor", "__version__", "load"]

if TYPE_CHECKING:
    from densevit.api import load
    from densevit.inference.predictor import Predictor


def __getattr__(name: str) -> Any:
    # Torch takes a second to import; `densevit --help` must not wait for it.
    if name == "load":
        from densevit.api import load

        return load
    if name == "Predictor":
        from densevit.inference.predictor import Predictor

        return Predictor
    raise AttributeError(f"module 'densevit' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
