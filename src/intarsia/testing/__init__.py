"""For people who write their own kind of index: the contract a kind must meet, and what it reads.

::

    from intarsia.testing import check_index_kind

    def test_my_kind():
        check_index_kind(MyKind, pa.string(), searches=["match_substring"])

Needs Hypothesis, which the extra ``testing`` brings.
"""

from intarsia.errors import MissingDependencyError

try:
    from intarsia.testing.contract import check_index_kind
    from intarsia.testing.counting import CountingSource
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    message = "Hypothesis is not installed: install the extra, intarsia[testing]"
    raise MissingDependencyError(message) from error

__all__ = ["CountingSource", "check_index_kind"]
