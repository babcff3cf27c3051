"""``NGram``: n-grams of strings, for searches of substrings and patterns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from intarsia.expr.comparison_operators import Op
from intarsia.index.base import Positions, Subject
from intarsia.index.key_formula import FingerprintArray, Formula
from intarsia.index.kinds.gram_keys import GRAMS_VERSION, keys_needed, keys_of_strings
from intarsia.index.kinds.regex_literals import required_by_regex
from intarsia.index.kinds.required_substrings import (
    Required,
    any_of,
    required_by_like,
    required_by_literal,
)
from intarsia.index.kinds.text_base import TextIndex
from intarsia.pruning.predicates import Comparison, How, Predicate
from intarsia.strings.code_points import is_bytes, is_text

PATTERNS = {
    How.LIKE: required_by_like,
    How.SUBSTRING: required_by_literal,
    How.STARTS_WITH: required_by_literal,
    How.ENDS_WITH: required_by_literal,
    How.REGEX: required_by_regex,
}
"""The function that computes the substrings that a pattern requires, by search."""
_MAX_IN_VALUES = 16
"""Longer ``IN`` lists are not looked up, because most granules would contain one of the values."""


@dataclass(frozen=True)
class NGram(TextIndex):
    """An index of three-character pieces of strings.

    It serves substrings, ``LIKE``, regular expressions, ``=`` and ``IN``. A key is three characters
    and a few bits of the fourth, without case. So the index also serves searches that ignore case,
    and searches in ``lower`` and ``upper`` of the column (not ``=`` and ``IN``).

    A pattern must contain three consecutive characters somewhere. For a regular expression, the
    index derives the strings that every match contains.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        A column path, or a function of columns as SQL text or Expression.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1. A column's longer pages are divided.

    Raises
    ------
    IndexSpecError
        If ``granule_rows`` is out of range, or the Expression cannot be indexed.

    Examples
    --------
    >>> report, = ia.add_indexes("logs.parquet", [ia.NGram("msg")])
    >>> report.added
    ('msg:ngram',)
    >>> ia.dataset("logs.parquet").to_table(filter="msg LIKE '%request 42 %'").num_rows
    1
    """

    kind = "ngram"
    kind_version = GRAMS_VERSION
    serves = frozenset({*PATTERNS, Op.EQ, Op.IN})

    def keys_of_texts(
        self, values: pa.Array, positions: Positions
    ) -> tuple[FingerprintArray, Positions]:
        return keys_of_strings(values, positions)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        return keys_needed(_required(predicate, latin=is_bytes(of.type)))


def _required(predicate: Predicate, *, latin: bool) -> Required | None:
    if isinstance(predicate, Comparison):
        values = predicate.values
        if len(values) > _MAX_IN_VALUES or not is_text(values.type):
            return None
        return any_of(required_by_literal(value, latin=latin) for value in values.to_pylist())
    return PATTERNS[predicate.how](predicate.pattern, latin=latin)
