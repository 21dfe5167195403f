"""Packages of extras, which need not be installed."""

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
