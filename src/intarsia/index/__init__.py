"""Index kinds, and the directory that lists the indexes of a file.

May import ``parquet``, ``expr``, ``pruning``, ``strings`` and ``io``; ``section`` also ``decode``.
Start with ``base``; code for a new index kind imports from this module.
"""

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import Inverted, Reads, Subject, Summary, fingerprints
from intarsia.index.key_formula import Every, Keys, KeysWhere, Some
from intarsia.pruning.predicates import Comparison, How, SearchPredicate

Test = Comparison
"""The former name of ``Comparison``."""
Match = SearchPredicate
"""The former name of ``SearchPredicate``."""

__all__ = [
    "Comparison",
    "Every",
    "How",
    "Inverted",
    "Keys",
    "KeysWhere",
    "Match",
    "Op",
    "Reads",
    "SearchPredicate",
    "Some",
    "Subject",
    "Summary",
    "Test",
    "fingerprints",
]
