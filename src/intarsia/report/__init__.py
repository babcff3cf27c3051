"""Pictures: the HTML page of a query's reads, and that of a file.

::

    from intarsia.report import query_html

    Path("page.html").write_text(query_html(ds.explain(filter="trace_id = '596dcc'", maps=20)))

What is drawn is decided apart from how: ``query`` and ``file`` make data of shares and texts, and
templates beside them set it out. Nothing here reads anything but what a footer and page indexes say
of a file; nothing is written. Needs jinja2, which the extra ``cli`` brings.
"""

from intarsia.report.render import query_html

__all__ = ["query_html"]
