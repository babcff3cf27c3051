"""What a kind of inverted index is: key → granules, by two pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.format.order import ValueOrder
from intarsia.predicate.leaves import Test

KeyArray = NDArray[np.uint32]


class InvertedKind(Protocol):
    """An index of one kind on one column, as it is asked for and as it is found in a file."""

    kind: ClassVar[str]
    kind_version: ClassVar[int]
    """Names the meaning of keys; an index of another version is ignored."""

    @property
    def on(self) -> str:
        """The column's path."""

    @property
    def granule_rows(self) -> int:
        """The most rows one granule has."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters as the directory stores them: JSON values."""

    def unfit(self, order: ValueOrder) -> str | None:
        """Why a column of this order cannot be indexed; None where it can."""

    def keys_of_values(self, values: pa.Array) -> KeyArray:
        """The key of each of ``n`` physical values without NULL and NaN. Shape ``(n,)``."""

    def keys_for(self, test: Test, order: ValueOrder) -> KeyArray | None:
        """Keys, one of which every row that passes ``test`` has; None where this cannot be told."""


def index_name(on: str, kind: str) -> str:
    """What an index is called: ``trace_id:lookup``."""
    return f"{on}:{kind}"
