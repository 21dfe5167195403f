"""Checks a built site: every link and anchor leads somewhere, and no page loads anything from another host."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
NOT_LOADED = {"canonical", "alternate", "next", "prev", "edit"}  # values of <link rel>
CSS_ADDRESS = re.compile(r"""url\(["']?(?!data:)([^"')]+)|@import\s+["']([^"']+)""")


class Page(HTMLParser):
    """The anchors of a page, and its addresses: (address, whether the browser loads it by itself)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "top"}
        self.addresses: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        key = LOADED.get(tag, "href" if tag == "a" else "")
        if values.get(key):
            loaded = tag != "a" and not NOT_LOADED & {*values.get("rel", "").split()}
            self.addresses.append((values[key], loaded))


@cache
def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def faults(site: Path) -> Iterator[str]:
    """One line for each link that leads nowhere and for each thing loaded from elsewhere."""
    site = site.resolve()
    for path in sorted(site.rglob("*.html")):
        for address, loaded in read(path).addresses:
            if fault := fault_of(site, path, address, loaded=loaded):
                yield f"{path.relative_to(site)}: {address} {fault}"
    for path in sorted(site.rglob("*.css")):
        for first, second in CSS_ADDRESS.findall(path.read_text(encoding="utf-8")):
            if fault := fault_of(site, path, first or second, loaded=True):
                yield f"{path.relative_to(site)}: {first or second} {fault}"


def fault_of(site: Path, page: Path, address: str, *, loaded: bool) -> str:
    """What is wrong with an address of a page; "" if nothing."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return "is loaded from another host" if loaded and parts.scheme != "data" else ""
    if parts.path.startswith("/"):
        return "is absolute: the site may stand in a folder"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.exists():
        return "is not there"
    if parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in read(target).anchors:
        return "has no such anchor"
    return ""


def main(site: Path) -> int:
    found = list(faults(site))
    print("\n".join(found) if found else f"links: all of {len(list(site.rglob('*.html')))} pages lead somewhere")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
