"""The base class of index kinds that store parts of strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from intarsia.index.base import Inverted, Positions, Subject
from intarsia.index.key_formula import FingerprintArray
from intarsia.strings.code_points import first_of_runs, is_text


class TextIndex(Inverted):
    """An inverted index of parts of strings. A probe may look up only some of the keys."""

    reading_share = 0.1
    has_blocks = True

    def keys_of_texts(
        self, values: pa.Array, positions: Positions
    ) -> tuple[FingerprintArray, Positions]:
        """Returns the keys of ``n`` strings, and the position of each key.

        ``positions`` holds the position of each string, ascending. Shape ``(n,)``.
        """
        raise NotImplementedError

    def unfit(self, of: Subject) -> str | None:
        return None if is_text(of.type) else "its values are neither strings nor bytes"

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        return self.keys_of_texts(values, np.arange(len(values), dtype=np.int64))

    def keys_of_runs(self, values: pa.Array, runs: Positions) -> tuple[FingerprintArray, Positions]:
        return self.keys_of_texts(values, first_of_runs(runs))
