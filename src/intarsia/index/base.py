"""What a kind of index is: two pure functions, and what they are about.

An *inverted* kind gives keys for values, and says which keys a predicate needs. A *summary* kind
gives a summary for each granule, and says which summaries might match a predicate. A kind is a
frozen dataclass derived from one of them; its fields are its parameters. How indexes are stored,
found, checked and asked is the same for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from intarsia.errors import IndexSpecError
from intarsia.expr.comparison_operators import Op
from intarsia.expr.tree import read_expression, shown
from intarsia.index.key_formula import FingerprintArray, Formula, KeyArray
from intarsia.parquet.value_order import ValueOrder
from intarsia.parquet.xxhash64 import hash_values
from intarsia.pruning.predicates import How, Predicate
from intarsia.pruning.term import Term, term_of
from intarsia.pruning.term_sql import FUNCTIONS

GRANULE_ROWS = 8192
Positions = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Reads(Enum):
    """What a kind is given of a term."""

    VALUES = "values"
    """Values in the term's Arrow type; dictionaries are decoded."""
    PHYSICAL = "physical"
    """Values in the column's physical type, as PLAIN encoding would hold them."""
    ELEMENTS = "elements"
    """The elements of lists, the keys of maps, each at the position of its row."""
    ENTRIES = "entries"
    """The entries of maps, likewise: structs of a ``key`` and of a ``value``, a physical one."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What an index is on, in one file.

    ``type`` is the Arrow type of the values, elements or entries that the kind is given or, where
    it reads physical ones, of what they stand for. ``order`` is how they compare as Parquet stores
    them; that of entries is undefined.
    """

    term: Term
    type: pa.DataType
    order: ValueOrder

    @property
    def is_text(self) -> bool:
        """Are the values texts?"""
        checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        return any(check(self.type) for check in checks)


@dataclass(frozen=True)
class Index:
    """An index of one kind on one term, as it is asked for and as it is found in a file.

    ``on`` is a column's path, or a function of columns as SQL text or as an Expression;
    ``granule_rows`` the most rows one granule has (1 to 2**31 - 1). Raises ``IndexSpecError`` for a
    value outside.
    """

    kind: ClassVar[str]
    kind_version: ClassVar[int] = 1
    """Names the meaning of what is stored; an index of another version is ignored."""
    reads: ClassVar[Reads] = Reads.VALUES
    serves: ClassVar[frozenset[Op | How]]
    """What tests and matches ask that the kind may answer; it is not asked about any other."""

    negations: ClassVar[bool] = False
    """May it be asked where a match is FALSE?"""

    on_path: ClassVar[tuple[str, ...]] = ()
    """Of a field that was given as an Expression, which no column's name is taken for."""

    on: str
    granule_rows: int = GRANULE_ROWS

    def __post_init__(self) -> None:
        if isinstance(self.on, pc.Expression):
            term = term_for(self.on, self.kind)
            object.__setattr__(self, "on_path", term.path)
            object.__setattr__(self, "on", str(term))
        if not isinstance(self.on, str) or not self.on:
            raise IndexSpecError(f"an index of kind {self.kind} needs the name of a column")
        rows = self.granule_rows
        if not isinstance(rows, int) or isinstance(rows, bool) or not 0 < rows < 2**31:
            raise IndexSpecError(f"granule_rows must be 1 to 2**31 - 1, not {rows!r}")

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters as the directory stores them: JSON values, by the names of fields."""
        names = (field.name for field in dataclasses.fields(self) if field.name != "on")
        return {name: getattr(self, name) for name in names}

    def unfit(self, of: Subject) -> str | None:
        """Why this cannot be indexed; None where it can."""
        return None


class Inverted(Index):
    """key → granules. Keys are fingerprints, uint32, or, where ``exact``, values themselves."""

    exact: ClassVar[bool] = False
    nulls: ClassVar[bool] = False
    """Are NULLs among the values the kind is given? Else it is not asked where they pass."""
    nans: ClassVar[bool] = False
    """Are NaNs? Likewise."""
    reading_share: ClassVar[float | None] = None
    """The most a probe reads, as a part of the bytes of the rows in question; ``None``: anything.

    Where that is too little for all keys of a formula, the most frequent are not looked for.
    """
    has_blocks: ClassVar[bool] = False
    """Are frequent keys stored for several small granules at once, of ``granule_rows`` together?

    For fingerprints of which a value has many; granules then are no larger than pages.
    """

    def keys_of_values(self, values: pa.Array) -> tuple[KeyArray, Positions]:
        """The keys of ``n`` values: each with the position, 0 to ``n - 1``, of a value that has it.

        A value may have any number of keys; repeats do no harm. Both arrays have one length.
        Keys that are values are a ``pyarrow.Array`` of the values' type, with −0.0 as +0.0.
        """
        raise NotImplementedError

    def keys_of_runs(self, values: pa.Array, runs: Positions) -> tuple[KeyArray, Positions]:
        """The keys of ``n`` values of which only the runs they are in count, as of a granule.

        ``runs``, of shape ``(n,)``, ascends. A key's position is that of any value of the run.
        """
        return self.keys_of_values(values)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        """What keys a granule needs to hold a row that passes; None where this cannot be told."""
        raise NotImplementedError


class Summary(Index):
    """granule → a row of a table."""

    def summarize(self, values: pa.Array, starts: Positions) -> pa.RecordBatch:
        """A row for each of ``g`` granules: values ``starts[i]`` to ``starts[i + 1]``.

        ``values`` have NULLs and NaNs; ``starts`` has shape ``(g + 1,)`` and ascends strictly.
        Columns are flat; their types must not depend on the values.
        """
        raise NotImplementedError

    def might_match(
        self, predicate: Predicate, summaries: pa.RecordBatch, of: Subject
    ) -> BoolArray | None:
        """For each of ``n`` summaries: might a row there pass? None where this cannot be told."""
        raise NotImplementedError


def fingerprints(values: pa.Array) -> FingerprintArray:
    """The high 32 bits of XXH64 over the PLAIN encoding of ``n`` values. Shape ``(n,)``, uint32.

    ``values`` have no NULL; they are texts, bytes, or integers or floats of 32 or 64 bits, of which
    both zeros have one fingerprint. Raises ``TypeError`` for any other.
    """
    return (hash_values(as_bytes(values)) >> np.uint64(32)).astype(np.uint32)


def as_bytes(values: pa.Array) -> pa.Array:
    """Texts as the bytes they are; any other values as they come."""
    if pa.types.is_string(values.type):
        return values.view(pa.binary())
    return values.view(pa.large_binary()) if pa.types.is_large_string(values.type) else values


def term_for(expression: pc.Expression, kind: str) -> Term:
    """The term an Expression is. Raises ``IndexSpecError`` where it cannot be indexed."""
    term = term_of(read_expression(expression))
    if term is None:
        raise IndexSpecError(
            f"no index of kind {kind} on {shown(expression)}: it is no column, nor one of the "
            f"functions that indexes know: {FUNCTIONS}"
        )
    return term


def index_name(on: str, kind: str) -> str:
    """What an index is called: ``trace_id:lookup``."""
    return f"{on}:{kind}"
