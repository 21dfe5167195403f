"""Start-up time of a command, beside that of Python itself."""

import subprocess
import sys
from collections.abc import Iterator

from densevit.speed.report import Row
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread, time_interleaved

BARE = "python -c pass"
COMMANDS = {
    BARE: ["-c", "pass"],
    "densevit --help": ["-m", "densevit.cli.main", "--help"],
    "import densevit": ["-c", "import densevit"],
    "import torch": ["-c", "import torch"],
}


def measure(settings: Settings) -> Iterator[Row]:
    def start(arguments: list[str]) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    works = {name: (lambda a=arguments: start(a)) for name, arguments in COMMANDS.items()}
    seconds = time_interleaved(works, settings.rounds).wall
    for name in COMMANDS:
        over = [s - bare for s, bare in zip(seconds[name], seconds[BARE], strict=True)]
        note = "" if name == BARE else f"{Spread.of(over).middle:.2f} s over bare Python"
        yield Row("start-up", "a new process", name, Spread.of(seconds[name]), "s", note=note)
