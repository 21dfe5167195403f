"""What readers of images warn of, collected."""

import logging

from densevit.data.io.images import log


class ReaderWarnings(logging.Handler):
    """What readers warn of, by path, for the summary in place of standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        path, _, message = record.getMessage().partition(": ")
        self.messages[path] = message

    def __enter__(self) -> None:
        log.addHandler(self)
        log.propagate = False

    def __exit__(self, *_: object) -> None:
        log.removeHandler(self)
        log.propagate = True
