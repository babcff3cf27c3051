"""For people who write their own kind of index: the contract a kind must meet.

::

    from intarsia.testing import check_index_kind

    def test_my_kind():
        check_index_kind(MyKind, pa.string(), searches=["match_substring"])

Needs Hypothesis.
"""

from intarsia.testing.contract import check_index_kind

__all__ = ["check_index_kind"]
