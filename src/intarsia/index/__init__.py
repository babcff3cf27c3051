"""Indexes embedded in a file: their kinds, their sections, and the directory that lists them.

A kind says which keys values have and which keys a predicate needs, or how values are summed up and
which summaries might match; everything else about an index, how it is stored, found, checked and
probed, is the same for all kinds. What a kind of one's own is made of can be imported from here.
"""

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import Inverted, Reads, Subject, Summary, fingerprints
from intarsia.index.key_formula import Every, Keys, KeysWhere, Some
from intarsia.pruning.predicates import How, Match, Test

__all__ = [
    "Every",
    "How",
    "Inverted",
    "Keys",
    "KeysWhere",
    "Match",
    "Op",
    "Reads",
    "Some",
    "Subject",
    "Summary",
    "Test",
    "fingerprints",
]
