"""The documentation site: its pages, its links, and that what is broken is found. docs/site/build.py builds it."""

import sys
from pathlib import Path, PurePosixPath
from pkgutil import resolve_name
from types import ModuleType

import pytest

from densevit.cli.main import COMMANDS
from densevit.config.json_schema import by_kind

SITE = Path(__file__).parents[1] / "docs/site"


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(SITE), *sys.path])
    monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__(name)


def test_links_are_rewritten_outside_of_code_only(monkeypatch: pytest.MonkeyPatch) -> None:
    links = module("links", monkeypatch)
    text = "[a](b.md#c) ![d [e]](f.png) `[g](h)` [`i`](j 'k')\n\n```\n[l](m)\n```\n[n](https://o)"
    assert [*links.targets(text)] == ["b.md#c", "f.png", "j", "https://o"]
    assert links.rewrite(text, str.upper) == text.replace("b.md#c", "B.MD#C").replace("f.png", "F.PNG").replace(
        "(j ", "(J "
    ).replace("https://o", "HTTPS://O")


@pytest.mark.parametrize(
    ("source", "folder", "place"),
    [
        ("README.md", False, "index.md"),
        ("docs/export.md", False, "export.md"),
        ("docs/images/vit_depth.jpg", False, "images/vit_depth.jpg"),
        ("benchmarks/2026-11-21-speed.md", False, "benchmarks/2026-11-21-speed.md"),
        ("examples/plugin.py", False, "source/examples/plugin.py.md"),
        ("configs", True, "source/configs/index.md"),
    ],
)
def test_every_kind_of_file_has_its_place(
    source: str, folder: bool, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = module("links", monkeypatch)
    assert links.place(PurePosixPath(source), folder=folder) == PurePosixPath(place)


def test_a_notebook_is_shown_as_text_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = module("build", monkeypatch)
    place = build.Pages(tmp_path).add(PurePosixPath("examples/notebooks/score_maps.ipynb"))
    shown = (tmp_path / place).read_text()
    assert shown.startswith("# Score somebody's depth maps") and '"cell_type"' not in shown
    assert "\n```python\nfrom pathlib import Path\n\nimport cv2\n" in shown and shown.endswith(
        "print(table(comparison))\n```\n"
    )


def test_links_between_pages_are_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    links = module("links", monkeypatch)
    page = PurePosixPath("docs/export.md")
    assert links.resolve(page, "../configs/depth/folder.yaml") == (PurePosixPath("configs/depth/folder.yaml"), "")
    assert links.resolve(page, "data.md#rooms") == (PurePosixPath("docs/data.md"), "#rooms")
    assert links.resolve(page, "#names") == (page, "#names")
    assert links.between(PurePosixPath("benchmarks/a.md"), PurePosixPath("export.md")) == "../export.md"


def test_the_reference_has_every_command_key_and_component(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = module("reference", monkeypatch)
    pages = dict(reference.pages())
    for name in COMMANDS:
        assert f"\n### {name}\n" in pages["commands.md"]
    schema = reference.load_schema(with_plugins=False)
    for key in [*schema["properties"], *schema["$defs"]["Data"]["properties"]]:
        assert f"\n| `{key}` |" in pages["config.md"]
    for kind, parts in by_kind(schema["$defs"]).items():
        for name in parts:
            assert f"\n## `{name}`\n" in pages[f"components/{kind}.md"]
    assert "| `lr` | number > 0 | `0.0001` |" in pages["config.md"]
    assert "::: densevit.Predictor" in pages["api/index.md"]


def test_text_for_tables_keeps_code_and_escapes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = module("reference", monkeypatch)
    assert reference.escaped("a < b | `x * <y>`\n  * 2") == r"a &lt; b \| `x * <y>` \* 2"


def test_lists_and_tables_get_the_blank_line_that_python_markdown_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("embreex")
    build = module("build", monkeypatch)
    assert build.spaced("Text:\n- a\n- b\nmore\n| x |\n") == "Text:\n\n- a\n- b\nmore\n\n| x |\n"
    code = "```\nText:\n- a\n```\n"
    assert build.spaced(code) == code


def test_a_page_with_a_broken_link_or_something_from_elsewhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = module("check", monkeypatch)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/b.html").write_text('<h2 id="here">b</h2><a href="../a.html#there">a</a><a href="../a.html">a</a>')
    (tmp_path / "a.html").write_text(
        '<p id="x"></p><a href="sub/b.html#here">b</a><a href="#x">x</a><a href="https://elsewhere.org">e</a>'
        '<a href="c.html">c</a><a href="/a.html">a</a><img src="//cdn.org/i.png"><img src="data:image/png;base64,">'
        '<link rel="stylesheet" href="s.css"><link rel="canonical" href="https://elsewhere.org">'
    )
    (tmp_path / "s.css").write_text("@import 'https://fonts.org/f.css'; p { background: url(data:image/gif;base64,R) }")
    assert list(check.faults(tmp_path)) == [
        "a.html: c.html is not there",
        "a.html: /a.html is absolute: the site may stand in a folder",
        "a.html: //cdn.org/i.png is loaded from another host",
        "sub/b.html: ../a.html#there has no such anchor",
        "s.css: https://fonts.org/f.css is loaded from another host",
    ]


def test_a_link_out_of_a_page_that_leads_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("embreex")
    build = module("build", monkeypatch)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# A\n\n[b](b.md) [code](../tool.py)\n")
    (tmp_path / "tool.py").write_text("print(1)\n")
    pages = build.Pages(tmp_path / "site")
    pages.add(PurePosixPath("docs/a.md"))
    assert pages.faults == ["docs/a.md: b.md is not there"]
    assert (tmp_path / "site/a.md").read_text() == "# A\n\n[b](b.md) [code](source/tool.py.md)\n"
    assert "```python\nprint(1)\n" in (tmp_path / "site/source/tool.py.md").read_text()


@pytest.mark.slow
def test_the_site_is_built_and_every_link_leads_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("zensical", "mkdocstrings", "embreex"):
        pytest.importorskip(name)
    build = module("build", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["build.py", "--output", str(tmp_path), "--steps", "2"])
    code = build.main()
    said = capfd.readouterr().out
    assert code == 0, said
    assert "pages lead somewhere" in said
    site = tmp_path / "site"
    assert "densevit_train" not in (site / "reference/api/index.html").read_text()
    assert 'id="densevit.train"' in (site / "reference/api/index.html").read_text()
    for picture in ("truth-0-1", "maps-0-1", "attention-2"):
        assert (site / f"gallery/{picture}.jpg").stat().st_size > 1000
    assert {"train.html", "depth.html", "cloud.html"} <= {path.name for path in (site / "gallery").iterdir()}


def test_what_the_reference_documents_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, _, names in module("reference", monkeypatch).API.values():
        for name in names:
            resolve_name(name)
