"""The commands: which function each calls, and how it is run."""

from typing import NamedTuple


class Command(NamedTuple):
    """A function and how it is run.

    Attributes:
        function: `module:function`, below `densevit`.
        interruptible: works for long, and ends at a signal where nothing is half done.
        distributed: shares its work among the processes of torchrun.
        prints: print what it returns.
    """

    function: str
    group: str
    interruptible: bool = False
    distributed: bool = False
    prints: bool = True


COMMANDS = {
    "train": Command("api.train:train", "train", True, True, prints=False),
    "init": Command("api.data:init", "train"),
    "check-data": Command("api.data:check_data", "train", True),
    "list": Command("api.catalog:list_known", "train"),
    "replay": Command("api.train:replay", "train"),
    "completion": Command("cli.completion:completion", "train"),
    "eval": Command("api.evaluate:evaluate", "evaluate", True),
    "compare": Command("api.evaluate:compare", "evaluate"),
    "calibrate": Command("api.evaluate:calibrate", "evaluate", True),
    "predict": Command("api.predict:predict", "predict", True, True),
    "pseudo-label": Command("api.predict:pseudo_label", "predict", True, True),
    "app": Command("app.command:app", "predict"),
    "inspect": Command("api.models:inspect", "models"),
    "convert": Command("api.models:convert", "models"),
    "export": Command("api.models:export", "models"),
    "benchmark": Command("speed.command:benchmark", "models"),
}
