"""`densevit app`: serve the page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from densevit.api.types import Count


def app(
    models: Sequence[str | Path] = (),
    /,
    *,
    host: str = "127.0.0.1",
    port: Count | None = None,
    max_pixels: Count = 2_000_000,
    max_megabytes: Count = 200,
    time_limit: Count = 120,
    **options: Any,
) -> None:
    """Serve a local page: drop an image or a clip, and see what one or several models predict, side by side.

    Depth with metres under the pointer, classes, point clouds, attention, and every file format. Images stay on this
    machine, which needs no network. Needs densevit[app].

    Args:
        models: checkpoints: folders or files, densevit's own or published. Default: the small model of the package.
        host: 127.0.0.1: this machine; 0.0.0.0: the network.
        port: default: the first free one from 7860 on.
        max_pixels: larger images are reduced to this number of pixels.
        max_megabytes: largest file.
        time_limit: seconds for a clip, by each checkpoint.
        options: of `densevit.load`.
    """
    from densevit.utils.packages import require_packages

    require_packages("gradio", extra="app")
    from densevit import api
    from densevit.api.checkpoint import packaged_model
    from densevit.app.inputs import Limits
    from densevit.app.models import AppModel
    from densevit.app.server import serving
    from densevit.errors import ConfigError
    from densevit.utils.process import interruptible

    if options.get("focal") is not None:
        raise ConfigError("--focal: images of a page have many sizes; give --fov DEGREES, which holds for all.")
    models = models or [packaged_model()]
    loaded = []
    for name, path in zip(names_of(list(map(str, models))), models, strict=True):
        loaded.append(AppModel(name, api.load(path, **options)))
        loaded[-1].predictor.check_tileable(loaded[-1].heads)
        print(f"{name}: {loaded[-1].predictor!r}")
    limits = Limits(max_pixels, max_megabytes, time_limit)
    with interruptible() as stop, serving(loaded, limits, host=host, port=port) as address:
        print(f"{address} (Ctrl-C ends)", flush=True)
        stop.wait()


def names_of(checkpoints: list[str]) -> list[str]:
    """Return the last part of each path; of those that share it, as much as tells them apart."""
    paths = [Path(path).absolute().parts for path in checkpoints]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-length:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {path}" for number, path in enumerate(checkpoints, 1)]
