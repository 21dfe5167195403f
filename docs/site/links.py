"""Links of Markdown files: from places in the repository to places in the site."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

# Code, fenced or inline, is kept; `[text](target)` and `![text](target "title")` are links.
LINK = re.compile(
    r"(?P<code>^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$|`[^`\n]+`)"
    r"|(?P<open>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)",
    re.MULTILINE | re.DOTALL,
)
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def rewrite(text: str, replace: Callable[[str], str]) -> str:
    """The text with every link's target replaced, apart from those in code."""

    def changed(found: re.Match[str]) -> str:
        return found[0] if found["code"] else found["open"] + replace(found["target"])

    return LINK.sub(changed, text)


def targets(text: str) -> Iterator[str]:
    found: list[str] = []
    rewrite(text, lambda target: found.append(target) or target)
    yield from found


def place(path: PurePosixPath, *, folder: bool = False) -> PurePosixPath:
    """Where a file of the repository stands in the site; what is no Markdown gets a page that shows it."""
    if path == PurePosixPath("README.md"):
        return PurePosixPath("index.md")
    if folder:
        return "source" / path / "index.md"
    inside = path.relative_to("docs") if path.is_relative_to("docs") else path
    if path.suffix == ".md":
        return inside.with_name(inside.name.lower().replace("readme", "index"))
    return inside if path.is_relative_to("docs") else PurePosixPath(f"source/{path}.md")


def resolve(page: PurePosixPath, target: str) -> tuple[PurePosixPath, str]:
    """The file of the repository that a link on a page of it leads to, and the link's `#anchor`."""
    address, sharp, anchor = target.partition("#")
    path = PurePosixPath(os.path.normpath(page.parent / unquote(address))) if address else page
    return path, sharp + anchor


def between(page: PurePosixPath, other: PurePosixPath) -> str:
    """The link from one place of the site to another."""
    return Path(os.path.relpath(other, page.parent)).as_posix()
