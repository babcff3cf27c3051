"""``Words``: the words of strings, for ``contains_words``."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from intarsia.index.base import Positions, Subject
from intarsia.index.key_formula import Every, FingerprintArray, Formula, Keys
from intarsia.index.kinds.text_base import TextIndex
from intarsia.pruning.predicates import How, Predicate, SearchPredicate
from intarsia.strings.code_points import as_column
from intarsia.strings.tokenizer import WORDS_VERSION, keys_of_strings, keys_of_words


@dataclass(frozen=True)
class Words(TextIndex):
    """An index of the words of strings, without case, for ``contains_words``.

    ``strings.tokenizer`` defines words: consecutive letters, digits, marks and connectors, or one
    ideograph.

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
    >>> report, = ia.add_indexes("logs.parquet", [ia.Words("msg")])
    >>> report.added
    ('msg:words',)
    >>> ia.dataset("logs.parquet").to_table(filter=ia.contains_words("msg", "done 42")).num_rows
    1
    """

    kind = "words"
    kind_version = WORDS_VERSION
    serves = frozenset({How.WORDS})

    def keys_of_texts(
        self, values: pa.Array, positions: Positions
    ) -> tuple[FingerprintArray, Positions]:
        return keys_of_strings(values, positions)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, SearchPredicate)
        assert isinstance(predicate.pattern, str)
        keys = keys_of_words(as_column(predicate.pattern, of.type))
        parts = tuple(Keys(keys[i : i + 1]) for i in range(len(keys)))
        return Every(parts) if parts else None
