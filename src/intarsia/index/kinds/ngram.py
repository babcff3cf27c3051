"""``NGram``: the grams of texts, for whatever looks for a piece of one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import Positions, Subject
from intarsia.index.key_formula import FingerprintArray, Formula
from intarsia.index.kinds.gram_keys import GRAMS_VERSION, keys_needed, keys_of_texts
from intarsia.index.kinds.regex_literals import of_regex
from intarsia.index.kinds.required_substrings import Required, any_of, of_like, of_literal
from intarsia.index.kinds.text_base import TextIndex
from intarsia.pruning.predicates import How, Predicate, Test
from intarsia.strings.code_points import is_bytes, is_text

PATTERNS = {
    How.LIKE: of_like,
    How.SUBSTRING: of_literal,
    How.STARTS_WITH: of_literal,
    How.ENDS_WITH: of_literal,
    How.REGEX: of_regex,
}
"""What reads the pattern of each."""
_MOST_VALUES = 16
"""Of more values than this, some are likely to be anywhere."""


@dataclass(frozen=True)
class NGram(TextIndex):
    """An index of the pieces of texts: for substrings, ``LIKE``, regular expressions, ``=``.

    A key is three characters and a few bits of the fourth, without their case, so that searches
    that ignore it, and those in ``lower`` and ``upper`` of the column, are served as well (all but
    ``=``). A pattern has to have three characters in a row somewhere; of a regular expression, what
    every match must contain is found out.

    ``on`` is a column path, or a function of columns as SQL text or as an Expression;
    ``granule_rows`` the most rows of a granule (1 to 2**31 - 1). Raises ``IndexSpecError`` for a
    value outside.
    """

    kind = "ngram"
    kind_version = GRAMS_VERSION
    serves = frozenset({*PATTERNS, Op.EQ, Op.IN})

    def keys_of_texts(
        self, values: pa.Array, positions: Positions
    ) -> tuple[FingerprintArray, Positions]:
        return keys_of_texts(values, positions)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        return keys_needed(_required(predicate, latin=is_bytes(of.type)))


def _required(predicate: Predicate, *, latin: bool) -> Required | None:
    if isinstance(predicate, Test):
        values = predicate.values
        if len(values) > _MOST_VALUES or not is_text(values.type):
            return None
        return any_of(of_literal(value, latin=latin) for value in values.to_pylist())
    return PATTERNS[predicate.how](predicate.pattern, latin=latin)
