"""A config checked before torch is imported, which takes seconds: a typo is told at once."""

from densevit import signatures
from densevit.checking import Faults, choose, choose_trunk
from densevit.config import Draft


def check(draft: Draft) -> None:
    """Refuses what names, options and types tell; what only the parts themselves can tell is left to `planning`.

    Raises:
        ConfigError: every such fault at once, with file and line.
    """
    faults = Faults(draft.problems)
    if not draft.run.plugins:  # whose parts nobody knows yet
        parts = signatures.shipped()
        choose(draft.run, parts, faults)
        choose_trunk(draft.run.model, parts, faults)
    faults.tell(draft.locate)
