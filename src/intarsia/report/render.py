"""Renders pages as HTML with the templates beside this file.

Contents of files are untrusted. Control characters are shown as escapes in every string, and
everything is escaped for HTML. Pages have no script and load nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia.errors import optional
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.schema import Leaf
from intarsia.parquet.value_display import clean, plural
from intarsia.plan.explain_text import of
from intarsia.plan.explanation import Explanation
from intarsia.report.file_page import file_page
from intarsia.report.format import percent
from intarsia.report.lake_page import LakeFile, lake_page
from intarsia.report.query_page import report_of
from intarsia.version import __version__

if TYPE_CHECKING:  # an optional package that is slow to import
    import jinja2


def check_jinja2() -> None:
    """Raises ``MissingDependencyError`` if jinja2 is not installed."""
    _environment()


def query_html(explanation: Explanation) -> str:
    """Returns the HTML page of what a query reads.

    Parameters
    ----------
    explanation : Explanation
        The result of ``Dataset.explain``. Files are drawn if they have maps (``maps=20``).

    Returns
    -------
    str
        A page without scripts or links to other files.

    Raises
    ------
    MissingDependencyError
        If jinja2 is not installed (extra ``cli``).

    Examples
    --------
    >>> from intarsia.report import query_html
    >>> explanation = ia.dataset("logs.parquet").explain(filter="trace_id = 't17'", maps=20)
    >>> "What the query would read" in query_html(explanation)
    True
    """
    return _environment().get_template("query.html.j2").render(page=report_of(explanation))


def file_html(file: OpenedFile, leaves: Sequence[Leaf]) -> tuple[str, bool]:
    """Returns a file's page, and if it is whole. Raises ``MissingDependencyError``."""
    page = file_page(file, leaves)
    return _environment().get_template("file.html.j2").render(page=page), not page.problems


def lake_html(name: str, facts: Sequence[tuple[str, str]], files: Sequence[LakeFile]) -> str:
    """Returns the map of a lake. Raises ``MissingDependencyError``."""
    page = lake_page(name, facts, files)
    return _environment().get_template("lake.html.j2").render(page=page)


@functools.cache
def _environment() -> jinja2.Environment:
    message = "pages need jinja2, which is not installed: install the extra, intarsia[cli]"
    with optional(message, "jinja2", "markupsafe"):
        import jinja2
        import markupsafe

    def shown(value: Any) -> Any:
        is_text = isinstance(value, str) and not isinstance(value, markupsafe.Markup)
        return clean(value) if is_text else value

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("intarsia.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = __version__
    environment.filters.update(of=of, percent=percent, plural=plural, count=_count, style=_style)

    def box(start: float, width: float, least: float = _MIN_WIDTH) -> markupsafe.Markup:
        return markupsafe.Markup('x="{:.5g}" width="{:.4g}"'.format(*_place(start, width, least)))

    environment.globals["box"] = box
    return environment


def _count(number: int) -> str:
    return f"{number:,}"


def _style(share: float) -> str:
    """Returns a share as a CSS percentage."""
    return f"{100 * share:.4g}%"


_WIDTH, _MIN_WIDTH = 1000, 1.2
"""Width of pictures, and the least width of anything drawn, so that it can be seen."""


def _place(start: float, width: float, min_width: float) -> tuple[float, float]:
    """Returns where something begins and its width, both cut to the picture."""
    drawn_width = min(max(_WIDTH * width, min_width), _WIDTH)
    return min(_WIDTH * start, _WIDTH - drawn_width), drawn_width
