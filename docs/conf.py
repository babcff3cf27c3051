"""Settings of Sphinx for ``make docs``."""

from html import escape
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

import intarsia

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

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings name the types
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False


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
            image.parent.replace_self(nodes.raw("", html, format="html"))


def setup(app: Sphinx) -> None:
    """Registers what this file adds to Sphinx."""
    app.connect("doctree-read", unlink_types)
    app.connect("doctree-read", inline_drawings)
