"""``Words``: the words of texts, for ``contains_words``."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from intarsia.index.base import Positions, Subject
from intarsia.index.key_formula import Every, FingerprintArray, Formula, Keys
from intarsia.index.kinds.text_base import TextIndex
from intarsia.pruning.predicates import How, Match, Predicate
from intarsia.strings.code_points import as_column
from intarsia.strings.tokenizer import WORDS_VERSION, keys_of_texts, keys_of_words


@dataclass(frozen=True)
class Words(TextIndex):
    """An index of the words of texts, without their case, for ``contains_words``.

    What a word is, ``text.words`` says: letters, digits, marks and connectors side by side, or one
    ideograph. Otherwise as ``NGram``.
    """

    kind = "words"
    kind_version = WORDS_VERSION
    serves = frozenset({How.WORDS})

    def keys_of_texts(
        self, values: pa.Array, positions: Positions
    ) -> tuple[FingerprintArray, Positions]:
        return keys_of_texts(values, positions)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        assert isinstance(predicate, Match)
        assert isinstance(predicate.pattern, str)
        keys = keys_of_words(as_column(predicate.pattern, of.type))
        parts = tuple(Keys(keys[i : i + 1]) for i in range(len(keys)))
        return Every(parts) if parts else None
