"""Builds the documentation site: `make docs`, or `python docs/site/build.py` with `pip install 'densevit[docs,rooms]'`.

The pages are the repository's own Markdown files, the reference comes from the code (reference.py) and the pictures of
the gallery from a small model (gallery.py). Zensical makes the pages; then check.py follows every link.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import check
import gallery
import links
import reference
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".md": "markdown", ".json": "json", ".cfg": "ini"}
Place = PurePosixPath


class Pages:
    """Collects the pages of a site in a folder, and what they link to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: set[Place] = set()
        self.faults: list[str] = []

    def write(self, place: Place, text: str) -> None:
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def add(self, source: Place) -> Place:
        """A file or folder of the repository, and then everything that it links to; its place in the site."""
        path = ROOT / source
        place = links.place(source, folder=path.is_dir())
        if source in self.done:
            return place
        self.done.add(source)
        if path.is_dir():
            files = sorted(
                f.relative_to(ROOT) for f in path.rglob("*") if f.suffix in {*LANGUAGES, ".ipynb"} and f.is_file()
            )
            lines = [f"- [{f.relative_to(source)}]({links.between(place, self.add(Place(f)))})" for f in files]
            self.write(place, "\n".join([f"# {source}/", "", *lines, ""]))
        elif source.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            self.write(place, spaced(links.rewrite(text, lambda target: self.link(source, target))))
        elif source.suffix == ".ipynb":
            self.write(place, cells(json.loads(path.read_text(encoding="utf-8"))))
        elif source.is_relative_to("docs"):
            (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.folder / place)
        else:
            code = path.read_text(encoding="utf-8").rstrip()
            self.write(place, f"# {source}\n\n````{LANGUAGES.get(source.suffix, 'text')}\n{code}\n````\n")
        return place

    def link(self, page: Place, target: str) -> str:
        if links.EXTERNAL.match(target):
            return target
        path, anchor = links.resolve(page, target)
        if not (ROOT / path).exists():
            self.faults.append(f"{page}: {target} is not there")
            return target
        if path == page:
            return anchor or target
        return links.between(links.place(page), self.add(path)) + anchor


def cells(notebook: dict[str, Any]) -> str:
    """The cells of a notebook as Markdown."""
    texts = [("".join(cell["source"]), cell["cell_type"]) for cell in notebook["cells"]]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for text, kind in texts) + "\n"


def spaced(text: str) -> str:
    """A blank line before lists and tables that follow a paragraph: GitHub needs none, Python-Markdown does."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    item = re.compile(r"^(?![-*|#>\d ])(.+)\n(?=[-*] |1\. |\|)", re.MULTILINE)
    return "".join(part if part.startswith("```") else item.sub(r"\1\n\n", part) for part in parts)


def title(page: Path) -> str:
    (heading,) = re.findall(r"\A# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading.replace("`", "")


def stage(folder: Path) -> list[object]:
    """Writes all Markdown below `folder`; the navigation."""
    pages, settings = Pages(folder), yaml.safe_load((HERE / "site.yml").read_text(encoding="utf-8"))
    generated = {f"reference/{name}": text for name, text in reference.pages()}
    for name, text in generated.items():
        pages.write(Place(name), text)

    def entry(place: Place) -> dict[str, str]:
        return {"densevit" if place.name == "index.md" and len(place.parts) == 1 else title(folder / place): str(place)}

    nav: list[object] = []
    for section in settings["nav"]:
        for name, sources in section.items():
            places = [Place(s) if (folder / s).exists() else pages.add(Place(s)) for s in sources]
            nav.append({name: [entry(place) for place in places]})
    named = {links.place(Place(source)) for section in settings["nav"] for name in section.values() for source in name}
    rest = [Place(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))]
    if more := [entry(pages.add(source)) for source in rest if links.place(source) not in named]:
        nav.append({"More": more})
    kinds = [entry(Place(name)) for name in generated if "/components/" in name]
    api = [entry(Place(name)) for name in generated if "/api/" in name]
    single = [entry(Place(f"reference/{name}.md")) for name in ("commands", "config")]
    nav.append({"Reference": [*single, {"Components": kinds}, {"Python": api}]})
    reports = sorted((ROOT / "benchmarks").glob("*.md"), reverse=True)
    nav.append({"Measured": [entry(pages.add(Place(path.relative_to(ROOT)))) for path in reports]})
    if pages.faults:
        sys.exit("\n".join(pages.faults))
    return nav


def configure(folder: Path, nav: list[object]) -> Path:
    """Writes Zensical's settings for the pages in `folder/pages`."""
    settings = yaml.safe_load((HERE / "site.yml").read_text(encoding="utf-8"))
    settings |= {"docs_dir": "pages", "site_dir": "site", "nav": nav}
    (python,) = (p["mkdocstrings"]["handlers"]["python"] for p in settings["plugins"] if isinstance(p, dict))
    python["paths"], python["options"]["extensions"] = [str(ROOT)], [str(HERE / "doctests.py")]
    path = folder / "mkdocs.yml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


def assets(pages: Path) -> Iterator[Path]:
    yield Path(shutil.copyfile(HERE / "site.css", pages / "site.css"))
    (pages / "images").mkdir(exist_ok=True)
    yield Path(shutil.copyfile(HERE / "favicon.svg", pages / "images/favicon.svg"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build/docs", help="folder; the site is OUTPUT/site")
    parser.add_argument("--steps", type=int, default=gallery.STEPS, help="of the gallery's training")
    args = parser.parse_args()
    output: Path = args.output.absolute()
    for old in ("pages", "site", ".cache"):
        shutil.rmtree(output / old, ignore_errors=True)
    (output / "pages").mkdir(parents=True)
    gallery.write(output / "pages", output / "gallery", steps=args.steps)
    settings = configure(output, stage(output / "pages"))
    list(assets(output / "pages"))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(settings)]
    if code := subprocess.run(command, cwd=output).returncode:
        return code
    (output / "site/404.html").unlink(missing_ok=True)  # its addresses hold only at the root of a host
    print(f"site: {output / 'site'}; `python -m http.server --directory {output / 'site'}` shows it")
    return check.main(output / "site")


if __name__ == "__main__":
    sys.exit(main())
