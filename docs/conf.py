"""Settings of Sphinx for ``make docs``."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

import click
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

import intarsia
from intarsia.cli.command_line import cli

project = "Intarsia"
author = "the Intarsia developers"
version = release = intarsia.__version__
copyright = author  # noqa: A001 # Sphinx's name for it

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
root_doc = "index"
myst_heading_anchors = 3  # links such as performance.md#many-files

html_theme = "furo"
html_title = "Intarsia"
html_show_sourcelink = html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#7a4a12",
        "color-brand-content": "#7a4a12",
    },
    "dark_css_variables": {
        "color-brand-primary": "#e0a95e",
        "color-brand-content": "#e0a95e",
    },
}

MAX_SHORT_CODE = 24  # characters that fit beside other words on a phone

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings name the types
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False


class Commands(SphinxDirective):
    """Lists all commands, each with a table of its arguments and options."""

    def run(self) -> list[nodes.Node]:
        """Returns the sections, parsed from Markdown."""
        lines = [
            line for name, command in _commands("intarsia", cli) for line in _help(name, command)
        ]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yields the commands below a group, with their full names."""
    if isinstance(command, click.Group):
        for word, below in sorted(command.commands.items()):
            yield from _commands(f"{name} {word}", below)
    else:
        yield name, command


def _help(name: str, command: click.Command) -> Iterator[str]:
    """Yields the Markdown of a command."""
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    summary = (command.help or "").split("\n\n")[0].replace("\n", " ")
    yield from (f"## {name}", "", f"`{name} {usage}`", "", summary, "")
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        yield from ("| option | value | default | meaning |", "|---|---|---|---|")
    for option in options:
        names = ", ".join(f"`{one}`" for one in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag else f"`{option.make_metavar(context)}`"
        default = "" if option.is_flag else _default(option, context)
        cells = names, value.replace("|", "\\|"), default, (option.help or "").replace("|", "\\|")
        yield f"| {' | '.join(cells)} |"
    yield ""


def _default(option: click.Option, context: click.Context) -> str:
    """Returns the default of an option as text; empty if there is none."""
    extra = option.get_help_extra(context)
    return f"`{extra['default']}`" if "default" in extra else ""


def unlink_types(app: Sphinx, document: nodes.document) -> None:
    """Removes the links of parameter types: they are prose, and would lead to any like name."""
    for link in list(document.findall(addnodes.pending_xref)):
        if link.get("refspecific") and link["reftype"] == "class":
            link.replace_self(link.children)


def inline_drawings(app: Sphinx, document: nodes.document) -> None:
    """Puts SVG pictures into the page, where they follow the reader's choice of light or dark."""
    for image in list(document.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"].lstrip("/"))
        if path.suffix == ".svg" and app.builder.format == "html":
            drawing = path.read_text().replace("aria-label=", "data-title=", 1)
            html = drawing.replace("<svg ", f'<svg aria-label="{escape(image["alt"])}" ', 1)
            html = f'<div class="drawing">{html}</div>'
            image.parent.replace_self(nodes.raw("", html, format="html"))


def keep_short_code_together(app: Sphinx, document: nodes.document) -> None:
    """Marks short code such as ``--no-replace``, which browsers would break at its hyphens."""
    for literal in document.findall(nodes.literal):
        if len(literal.astext()) <= MAX_SHORT_CODE and " " not in literal.astext():
            literal["classes"].append("short")


class Screenshots(SphinxTransform):
    """Shows the dark twin of a PNG picture in dark mode, and links both to their full sizes."""

    default_priority = 200

    def apply(self) -> None:
        """Adds the twins of a document's pictures, which are named ``…-dark.png``."""
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.doc2path(self.env.docname)).parent / image["uri"]
            dark = path.with_name(f"{path.stem}-dark.png")
            if path.suffix == ".png" and dark.exists():
                image["width"] = "100%"  # Sphinx links scaled pictures to their files
                twin = image.deepcopy()
                twin["uri"] = image["uri"].removesuffix(".png") + "-dark.png"
                image["classes"] += ["only-light"]
                twin["classes"] += ["only-dark"]
                image.parent.insert(image.parent.index(image) + 1, twin)


def setup(app: Sphinx) -> None:
    """Registers what this file adds to Sphinx."""
    app.add_transform(Screenshots)
    app.add_directive("intarsia-commands", Commands)
    app.connect("doctree-read", unlink_types)
    app.connect("doctree-read", inline_drawings)
    app.connect("doctree-read", keep_short_code_together)
