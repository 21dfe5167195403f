"""An extension of Griffe: examples that start with `>>>` anywhere in a docstring become code blocks."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)+", re.MULTILINE)


def fenced(text: str) -> str:
    """
    >>> fenced("Adds.\\n\\n>>> 1 + 1  # doctest: +SKIP\\n2\\n")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """

    def block(found: re.Match[str]) -> str:
        code = re.sub(r"\s*# doctest: .*$", "", found[0], flags=re.MULTILINE).rstrip()
        indent = re.match(" *", code)[0]  # type: ignore[index]
        return f"{indent}```pycon\n{code}\n{indent}```\n"

    return EXAMPLE.sub(block, text)


class FencedExamples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
