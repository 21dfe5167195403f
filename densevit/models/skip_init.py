"""Builds models without random initialisation, for weights from a file: a large ViT in a quarter of the time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

RANDOM = ("uniform_", "normal_", "trunc_normal_", "erfinv_")


class SkipInit(TorchFunctionMode):
    """Within `with SkipInit():` no random numbers are drawn; parameters are zero or uninitialised."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else given["tensor"]
        if getattr(func, "__name__", "") in RANDOM:
            return (
                args[0].zero_()
            )  # trunc_normal_ redraws until all numbers are within its bounds, which uninitialised ones may never be
        return func(*args, **given)
