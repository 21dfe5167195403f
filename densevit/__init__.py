"""densevit: train, evaluate and export dense-prediction Vision Transformers."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Predictor", "__version__", "load"]

if TYPE_CHECKING:
    from densevit.build import load
    from densevit.inference.predictor import Predictor


def __getattr__(name: str) -> Any:
    # Torch takes a second to import; `densevit --help` must not wait for it.
    if name == "load":
        from densevit.build import load

        return load
    if name == "Predictor":
        from densevit.inference.predictor import Predictor

        return Predictor
    raise AttributeError(f"module 'densevit' has no attribute '{name}'")
