"""densevit's commands in this process, as a shell would run them: what they print, and how they end."""

from typing import NamedTuple

import pytest

from densevit.cli.main import main


class Printed(NamedTuple):
    out: str
    err: str


class Shell:
    """Runs a command; its words are made text."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> Printed:
        """What the command prints; it must end with this code, and never by a traceback."""
        self.capsys.readouterr()
        try:
            ended: object = main([str(word) for word in words])
        except SystemExit as ending:  # of the parser
            ended = ending.code
        assert ended == code, self.capsys.readouterr()
        printed = Printed(*self.capsys.readouterr())
        assert "Traceback" not in printed.err
        return printed

    def refused(self, *words: object) -> str:
        """The message of a command that must end with 2: it names what the user has to change."""
        return self(*words, code=2).err
