"""What the kinds that take texts apart have in common."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from intarsia.index.base import Inverted, Positions, Subject
from intarsia.index.key_formula import FingerprintArray
from intarsia.strings.code_points import first_of_runs, is_text


class TextIndex(Inverted):
    """An inverted index of parts of texts, of which a probe may read some only."""

    reading_share = 0.1
    has_blocks = True

    def keys_of_texts(
        self, values: pa.Array, positions: Positions
    ) -> tuple[FingerprintArray, Positions]:
        """The keys of ``n`` texts that stand at ``positions``, ascending, of shape ``(n,)``."""
        raise NotImplementedError

    def unfit(self, of: Subject) -> str | None:
        return None if is_text(of.type) else "its values are no texts"

    def keys_of_values(self, values: pa.Array) -> tuple[FingerprintArray, Positions]:
        return self.keys_of_texts(values, np.arange(len(values), dtype=np.int64))

    def keys_of_runs(self, values: pa.Array, runs: Positions) -> tuple[FingerprintArray, Positions]:
        return self.keys_of_texts(values, first_of_runs(runs))
