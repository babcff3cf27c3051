"""The documentation builds as a site, its links lead somewhere, and it has every public name."""

import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import click
import pytest

from intarsia.cli.command_line import cli

DOCS = Path(__file__).parents[2] / "docs"
MODULES = (
    "intarsia",
    "intarsia.index",
    "intarsia.polars",
    "intarsia.spark",
    "intarsia.testing",
    "intarsia.usage",
)
UNDOCUMENTED = {
    "intarsia.__version__",
    "intarsia.polars",  # modules, whose functions are documented
    "intarsia.usage",
    "intarsia.index.Match",  # old names
    "intarsia.index.Test",
}


class Page(HTMLParser):
    """The links, the anchors and the text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [values[key] for key in ("href", "src") if values.get(key)]
        self.anchors |= {values["id"]} if values.get("id") else set()

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", DOCS, out]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


def test_links_of_the_site_lead_to_pages_and_anchors(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 30
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, anchor = urldefrag(link)
            target = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].anchors, f"{path.relative_to(site)}: {link}"
            checked += 1
    assert checked > 1000


def test_every_page_is_in_the_contents(site):
    page = Page(site / "index.html")
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS).with_suffix(".html").as_posix()
        assert name == "index.html" or name in page.links, name


def test_each_command_and_option_is_documented(site):
    text = Page(site / "reference" / "options.html").text
    commands = list(commands_below("intarsia", cli))
    assert len(commands) > 20
    for name, command in commands:
        section = text.partition(f"{name}¶")[2].partition("¶")[0]
        assert section, name
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"{name} {option.name} has no help"
                assert all(one in section for one in (*option.opts, *option.secondary_opts))


def commands_below(name, command):
    if isinstance(command, click.Group):
        for word, below in command.commands.items():
            yield from commands_below(f"{name} {word}", below)
    else:
        yield name, command


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_is_documented_once(module):
    text = "\n".join(path.read_text() for path in DOCS.glob("reference/python/*.md"))
    documented = re.findall(r"^\.\. auto\w+:: (\S+)$", text, re.MULTILINE)
    names = [f"{module}.{name}" for name in pkgutil.resolve_name(module).__all__]
    assert names
    for name in names:
        assert documented.count(name) == (name not in UNDOCUMENTED), name
