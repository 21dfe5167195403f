"""How the errors of normals of many images become one number, as published programs do it."""

from dataclasses import dataclass
from typing import Literal

from densevit.errors import ConfigError
from densevit.registry import did_you_mean


@dataclass(frozen=True, kw_only=True)
class NormalsProtocol:
    """How the errors of many images become one number."""

    name: str
    description: str
    source: str  # the program it repeats, `repository: file`
    # `pixels` takes those of all images together; `images` averages the scores of each image
    pool: Literal["pixels", "images"]
    digits: int | None = None  # to which the published program rounds the scores of an image; here they are not rounded


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        NormalsProtocol(
            name="dsine",
            description="all pixels of the data set with a true normal, pooled",
            source="baegwangbin/DSINE: projects/dsine/test.py",
            pool="pixels",
        ),
        NormalsProtocol(
            name="marigold",
            description="the scores of each image, over its pixels with a true normal, averaged over images",
            source="prs-eth/Marigold: script/normals/eval.py",
            pool="images",
            digits=4,
        ),
    )
}


def find_protocol(name: str) -> NormalsProtocol:
    """Raises ConfigError: no such protocol."""
    if name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{name}' for normals.{did_you_mean(name, PROTOCOLS)}")
    return PROTOCOLS[name]
