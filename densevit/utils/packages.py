"""Packages of extras, which need not be installed."""

import sys
from importlib.util import find_spec

from densevit.errors import ConfigError


def require_packages(*packages: str, extra: str) -> None:
    """Raise ConfigError: one of them is not installed."""
    missing = [name for name in packages if not is_installed(name)]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not installed: pip install 'densevit[{extra}]'.")


def is_installed(package: str) -> bool:
    """Return whether it can be imported; a mere folder of that name in the current one does not count."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def refuse_telemetry() -> None:
    """Have OpenVINO and NNCF find no `openvino_telemetry`, before they are imported.

    At every import it sends a message to Google Analytics, under an identity that it keeps in ~/intel, and from Python
    3.14 on the process that sends it runs the user's script a second time.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
