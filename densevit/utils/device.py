"""The choice of the device."""

import torch

from densevit.errors import ConfigError

KINDS = ("cpu", "cuda", "mps", "xpu")


def choose_device(wanted: str | torch.device) -> torch.device:
    """Resolves `auto` to CUDA, else MPS, else the CPU.

    Raises:
        ConfigError: no such device here.
    """
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind = torch.device(wanted).type if isinstance(wanted, torch.device) else str(wanted).partition(":")[0]
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(f"device: '{wanted}' cannot be used here; choose auto, {known}, or cuda:1 for a second GPU.")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without CUDA
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"device: '{wanted}' cannot be used here ({reason}). `auto` takes what is available."
        ) from None
    return device
