"""The trackers of a run. A fault of one never ends the training."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from densevit.config import parser
from densevit.config.schema import Run
from densevit.config.yaml_document import flat
from densevit.engine.trackers.base import TRACKERS, Tracker
from densevit.errors import ConfigError
from densevit.registry import ComponentConfig
from densevit.utils.packages import require_packages

log = logging.getLogger(__name__)


class Trackers:
    """All trackers of a run. One that fails is left out from then on, with a warning."""

    def __init__(self, choices: Iterable[str | ComponentConfig]) -> None:
        """Raises ConfigError: no such tracker or option, or its package is not installed."""
        named = [{"type": choice} if isinstance(choice, str) else choice for choice in choices]
        specs = [TRACKERS.check(choice, f"trackers.{i}") for i, choice in enumerate(named)]
        self.active = {spec.name: spec.build() for spec in specs}
        for i, (name, tracker) in enumerate(self.active.items()):
            try:
                require_packages(tracker.package, extra=name)
            except ConfigError as error:
                raise ConfigError(f"trackers.{i}: {error}") from None

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        plain = {key: value if isinstance(value, bool | int | float) else str(value) for key, value in config.items()}
        self._each(lambda tracker: tracker.start(folder, folder.resolve().name, plain), "start")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._each(lambda tracker: tracker.log(step, values), "take values")

    def finish(self) -> None:
        self._each(lambda tracker: tracker.finish(), "finish")
        self.active = {}

    def _each(self, action: Callable[[Tracker], object], what: str) -> None:
        for name, tracker in list(self.active.items()):
            try:
                action(tracker)
            except Exception as error:  # a network, a quota, a full disk: the training goes on
                del self.active[name]
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                log.warning("tracker %s could not %s (%s); the run goes on without it.", name, what, reason)


def start_trackers(run: Run, folder: Path | None) -> Trackers | None:
    """The trackers of a run, started; None where there are none, and on the processes that write nothing."""
    if folder is None or not run.trackers:
        return None
    trackers = Trackers(run.trackers)
    trackers.start(folder, flat(parser.to_dict(run)))
    return trackers
