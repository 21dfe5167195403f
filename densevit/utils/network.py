"""The model hub's addresses, and a quick test whether a server can be reached: clients retry for most of a minute."""

import socket
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

SCHEME = "hf:"
"""The prefix of an address on the hub."""

PACKAGED = "densevit:rooms"
"""The name of the model that comes with the package."""

PUBLISHED = "hf:depth-anything/Depth-Anything-V2-Small"
"""The address of published weights that serve where the packaged model does not."""

TIMEOUT = 0.7  # seconds


def is_reachable(url: str, timeout: float = TIMEOUT) -> bool:
    """Return whether the server of `url`, or its proxy, accepts a connection within `timeout` seconds."""
    address = urlsplit(url)
    if not address.hostname:
        return False
    proxy = urllib.request.getproxies().get(address.scheme)
    if proxy and not urllib.request.proxy_bypass(address.hostname):
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connected, finished = threading.Event(), threading.Event()

    def connect() -> None:
        port = address.port or (80 if address.scheme == "http" else 443)
        try:
            with socket.create_connection((address.hostname or "", port), timeout=timeout):
                connected.set()
        except OSError:
            pass
        finished.set()

    # In a thread, because name resolution has no timeout.
    threading.Thread(target=connect, daemon=True).start()
    finished.wait(timeout)
    return connected.is_set()


def hub() -> str:
    """Return the address of the model hub; empty in offline mode."""
    from huggingface_hub import constants

    return "" if constants.HF_HUB_OFFLINE else str(constants.ENDPOINT)


def is_address(path: str | Path) -> bool:
    """Return whether it names a model elsewhere than at a path: on the hub, or in the package."""
    return str(path).startswith(SCHEME) or str(path) == PACKAGED
