"""Draws HTML pages: of what a query reads, of a file, and of a lake.

May import ``scan``, ``plan`` and below. Start with ``query_html`` in ``render``.

::

    from intarsia.report import query_html

    Path("page.html").write_text(query_html(ds.explain(filter="trace_id = '596dcc'", maps=20)))

``query_page``, ``file_page`` and ``lake_page`` compute shares and strings, and the templates beside
them lay these out. Only footers and page indexes are read. Nothing is written. Needs jinja2 (extra
``cli``).
"""

from intarsia.report.render import query_html

__all__ = ["query_html"]
