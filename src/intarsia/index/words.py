"""``Words``: the words of texts, for ``contains_words``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.index.formula import Every, FingerprintArray, Formula, Keys
from intarsia.index.kind import Inverted, Positions, Subject
from intarsia.index.ngram import unfit_for_text
from intarsia.predicate.leaves import How, Match, Predicate
from intarsia.text.texts import as_column, first_of_runs
from intarsia.text.words import WORDS_VERSION, keys_of_texts, keys_of_words


@dataclass(frozen=True)
class Words(Inverted):
    """An index of the words of texts, without their case, for ``contains_words``.

    What a word is, ``text.words`` says: letters, digits, marks and connectors side by side, or one
    ideograph. Otherwise as ``NGram``.
    """

    kind = "words"
    kind_version = WORDS_VERSION
    serves = frozenset({How.WORDS})
    reading_share = 0.1

    def unfit(self, of: Subject) -> str | None:
        return unfit_for_text(of)

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        return keys_of_texts(values, np.arange(len(values), dtype=np.int64))

    def keys_of_runs(self, values: pa.Array, runs: Positions) -> tuple[FingerprintArray, Positions]:
        return keys_of_texts(values, first_of_runs(runs))

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, Match)
        assert isinstance(predicate.pattern, str)
        keys = keys_of_words(as_column(predicate.pattern, of.type))
        parts = tuple(Keys(keys[i : i + 1]) for i in range(len(keys)))
        return Every(parts) if parts else None
