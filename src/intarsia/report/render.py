"""Pages as HTML: the templates beside this file, filled in.

What comes from files is hostile: control characters are shown as escapes wherever a text is put
in, and everything is escaped for HTML. Pages have no script, and load nothing.
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
from intarsia.report.query_page import report_of
from intarsia.version import __version__

if TYPE_CHECKING:  # it is of the extra, and takes its time
    import jinja2


def check_jinja2() -> None:
    """Raise ``MissingDependencyError`` where the templates' library is not installed."""
    _environment()


def query_html(explanation: Explanation) -> str:
    """The page of a query's reads; files are drawn where their accounts have maps.

    Raises ``MissingDependencyError`` without jinja2.
    """
    return _environment().get_template("query.html.j2").render(page=report_of(explanation))


def file_html(file: OpenedFile, leaves: Sequence[Leaf]) -> tuple[str, bool]:
    """The page of a file and ``leaves`` of it, and whether all of these could be decoded.

    Raises ``MissingDependencyError`` without jinja2.
    """
    page = file_page(file, leaves)
    return _environment().get_template("file.html.j2").render(page=page), not page.problems


@functools.cache
def _environment() -> jinja2.Environment:
    message = "pages need jinja2, which is not installed: install the extra, intarsia[cli]"
    with optional(message, "jinja2", "markupsafe"):
        import jinja2
        import markupsafe

    def shown(value: Any) -> Any:
        is_text = isinstance(value, str) and not isinstance(value, markupsafe.Markup)
        return clean(value) if is_text else value

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("intarsia.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["version"] = __version__
    made.filters.update(of=of, percent=percent, plural=plural, count=_count, style=_style)

    def box(start: float, width: float, least: float = _LEAST) -> markupsafe.Markup:
        return markupsafe.Markup('x="{:.5g}" width="{:.4g}"'.format(*_place(start, width, least)))

    made.globals["box"] = box
    return made


def _count(number: int) -> str:
    return f"{number:,}"


def _style(share: float) -> str:
    """A share as a style has it."""
    return f"{100 * share:.4g}%"


_WIDTH, _LEAST = 1000, 1.2
"""Of pictures; and what there is takes so much of it at least, to be seen however narrow."""


def _place(start: float, width: float, least: float) -> tuple[float, float]:
    """Where something begins in a picture, and how wide it is, neither beyond the right edge.

    Footers may claim more than there is.
    """
    shown = min(max(_WIDTH * width, least), _WIDTH)
    return min(_WIDTH * start, _WIDTH - shown), shown
