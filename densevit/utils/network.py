"""The model hub's addresses, and whether a server is within reach, said at once: clients retry for most of a minute."""

import socket
import threading
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

SCHEME = "hf:"
"""What an address on the hub begins with."""

PATIENCE = 0.7  # seconds until a server that does not answer counts as out of reach


def is_reachable(url: str, patience: float = PATIENCE) -> bool:
    """Whether the server of `url`, or the proxy before it, accepts a connection before our patience ends."""
    address = urlsplit(url)
    if not address.hostname:
        return False
    proxy = urllib.request.getproxies().get(address.scheme)
    if proxy and not urllib.request.proxy_bypass(address.hostname):
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    answered, finished = threading.Event(), threading.Event()

    def knock() -> None:
        port = address.port or (80 if address.scheme == "http" else 443)
        try:
            with socket.create_connection((address.hostname or "", port), timeout=patience):
                answered.set()
        except OSError:
            pass
        finished.set()

    # A thread, because looking up a name knows no timeout.
    threading.Thread(target=knock, daemon=True).start()
    finished.wait(patience)
    return answered.is_set()


def hub() -> str:
    """The address of the model hub; empty where the user has ruled it out."""
    from huggingface_hub import constants

    return "" if constants.HF_HUB_OFFLINE else str(constants.ENDPOINT)


def is_address(path: str | Path) -> bool:
    return isinstance(path, str) and path.startswith(SCHEME)
