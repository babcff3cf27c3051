"""Checks index kinds against their contract, for authors of kinds, and counts what is read.

May import ``verify``, ``indexing`` and below. Start with ``check_index_kind`` in ``contract``.

::

    from intarsia.testing import check_index_kind

    def test_my_kind():
        check_index_kind(MyKind, pa.string(), searches=["match_substring"])

Needs Hypothesis (extra ``testing``).
"""

from intarsia.errors import optional

with optional("Hypothesis is not installed: install the extra, intarsia[testing]", "hypothesis"):
    from intarsia.testing.contract import check_index_kind
    from intarsia.testing.counting import CountingSource

__all__ = ["CountingSource", "check_index_kind"]
