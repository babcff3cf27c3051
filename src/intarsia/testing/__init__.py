"""For people who write their own kind of index: the contract a kind must meet, and what it reads.

::

    from intarsia.testing import check_index_kind

    def test_my_kind():
        check_index_kind(MyKind, pa.string(), searches=["match_substring"])

Needs Hypothesis, which the extra ``testing`` brings.
"""

from intarsia.errors import optional

with optional("Hypothesis is not installed: install the extra, intarsia[testing]", "hypothesis"):
    from intarsia.testing.contract import check_index_kind
    from intarsia.testing.counting import CountingSource

__all__ = ["CountingSource", "check_index_kind"]
