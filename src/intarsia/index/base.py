"""Base classes of index kinds: ``Inverted`` and ``Summary``.

An *inverted* kind computes keys of values, and the keys that a predicate requires. A *summary*
kind computes a summary of each granule, and which summaries might match a predicate.

A kind is a frozen dataclass derived from one of the two; its fields are its parameters. Storing,
finding, checking and probing an index is the same for all kinds.
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
from intarsia.index.index import Index
from intarsia.index.key_formula import FingerprintArray, Formula, KeyArray
from intarsia.index.literal_encoding import as_bytes
from intarsia.parquet.value_order import ValueOrder
from intarsia.parquet.xxhash64 import hash_values
from intarsia.pruning.predicates import How, Predicate
from intarsia.pruning.term import FUNCTIONS, Term, term_of

GRANULE_ROWS = 8192
"""Default number of rows per granule."""
_DECIMAL_DIGITS = 38
"""Digits of decimals that are hashed as 16 bytes."""
Positions = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Reads(Enum):
    """The form in which a kind receives the values of a term.

    Examples
    --------
    >>> ia.Lookup.reads
    <Reads.PHYSICAL: 'physical'>
    """

    VALUES = "values"
    """Values in the term's Arrow type. Dictionaries are decoded."""
    PHYSICAL = "physical"
    """Values in the column's physical type, as PLAIN encoding stores them."""
    ELEMENTS = "elements"
    """The elements of lists or the keys of maps, each at the position of its row."""
    ENTRIES = "entries"
    """The entries of maps, each at the position of its row.

    An entry is a struct of ``key`` and ``value``; the value is physical.
    """


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an index in one file: a term and its type.

    Attributes
    ----------
    term : Term
        The column or the function of columns.
    type : pyarrow.DataType
        Type of the values, elements or entries that the kind receives. If the kind reads physical
        values, the Arrow type that they represent.
    order : ValueOrder
        Order of the values as Parquet stores them. Undefined for entries of maps.

    Examples
    --------
    A kind refuses subjects in ``unfit``:

    >>> from intarsia.index import Subject
    >>> from intarsia.index.indexed_type import order_of_type
    >>> from intarsia.pruning.term import field_term
    >>> subject = Subject(field_term("status"), pa.int32(), order_of_type(pa.int32()))
    >>> ia.Words("status").unfit(subject)
    'its values are neither strings nor bytes'
    """

    term: Term
    type: pa.DataType
    order: ValueOrder

    @property
    def is_text(self) -> bool:
        """True if the values are strings."""
        checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        return any(check(self.type) for check in checks)


@dataclass(frozen=True)
class EmbeddedBase(Index):
    """An index of one kind on one term, as a user requests it and as a file stores it.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        A column path, or a function of columns as SQL text or Expression.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1.

    Raises
    ------
    IndexSpecError
        If a parameter is out of range, or the Expression cannot be indexed.
    """

    kind_version: ClassVar[int] = 1
    """Version of the stored keys or summaries. An index of another version is ignored."""
    reads: ClassVar[Reads] = Reads.VALUES
    serves: ClassVar[frozenset[Op | How]]
    """Operators and searches that the kind may answer. It is not asked about others."""

    negations: ClassVar[bool] = False
    """True if the kind also answers negated searches."""

    on_path: ClassVar[tuple[str, ...]] = ()
    """Column path of ``on`` if it was given as an Expression. Empty for any other ``on``."""

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
        """Parameters as the directory stores them: JSON values by field name."""
        names = (field.name for field in dataclasses.fields(self) if field.name != "on")
        return {name: getattr(self, name) for name in names}

    def unfit(self, of: Subject) -> str | None:
        """Returns why this subject cannot be indexed, or None if it can."""
        return None


class Inverted(EmbeddedBase):
    """Base class of inverted kinds: each key is mapped to the granules that contain it.

    A kind defines ``keys_of_values`` and ``keys_for``. Keys are fingerprints (uint32), or the
    values themselves if ``exact``.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        A column path, or a function of columns as SQL text or Expression.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1.

    Raises
    ------
    IndexSpecError
        If a parameter is out of range, or the Expression cannot be indexed.

    Examples
    --------
    A case-insensitive index of host names:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import pyarrow.compute as pc
    >>> from intarsia.index import Inverted, Keys, Op, fingerprints
    >>> @dataclass(frozen=True)
    ... class Host(Inverted):
    ...     kind = "host"
    ...     serves = frozenset({Op.EQ, Op.IN})
    ...     def keys_of_values(self, values):
    ...         return fingerprints(pc.utf8_lower(values)), np.arange(len(values))
    ...     def keys_for(self, predicate, of):
    ...         return Keys(fingerprints(pc.utf8_lower(predicate.values)))
    >>> Host("host").keys_of_values(pa.array(["A", "a"]))[0].tolist()
    [3528377585, 3528377585]
    """

    exact: ClassVar[bool] = False
    nulls: ClassVar[bool] = False
    """True if the kind receives NULLs. If not, it is not asked about predicates that NULLs pass."""
    nans: ClassVar[bool] = False
    """True if the kind receives NaNs. If not, it is not asked about predicates that NaNs pass."""
    reading_share: ClassVar[float | None] = None
    """Most bytes that a probe reads, as a share of the bytes of the candidate rows.

    None means no limit. If the share is too small for all keys of a formula, the most frequent keys
    are not looked up.
    """
    has_blocks: ClassVar[bool] = False
    """True if frequent keys are stored for blocks of small granules.

    A block has ``granule_rows`` rows, and granules are then no larger than pages. For kinds that
    compute many fingerprints per value.
    """

    def keys_of_values(self, values: pa.Array) -> tuple[KeyArray, Positions]:
        """Returns the keys of ``n`` values, and the position of a value that has each key.

        Parameters
        ----------
        values : pyarrow.Array
            ``n`` values in the form that ``reads`` names.

        Returns
        -------
        keys : numpy.ndarray of uint32, or pyarrow.Array
            Fingerprints. If ``exact``, values of the type of ``values``, with −0.0 as +0.0. A value
            may have any number of keys; keys may repeat.
        positions : numpy.ndarray of int64
            For each key, a position from 0 to ``n - 1``.
        """
        raise NotImplementedError

    def keys_of_runs(self, values: pa.Array, runs: Positions) -> tuple[KeyArray, Positions]:
        """Returns the keys of ``n`` values if only each value's run matters, such as its granule.

        ``runs`` has shape ``(n,)`` and ascends: it holds the number of each value's run. The
        position of a key is that of any value in its run.
        """
        return self.keys_of_values(values)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        """Returns the keys that a granule with a passing row must contain, or None if unknown.

        Parameters
        ----------
        predicate : Comparison or SearchPredicate
            One of those that ``serves`` names.
        of : Subject
            The term and its type.

        Returns
        -------
        Keys, KeysWhere, Every, Some or None
        """
        raise NotImplementedError


class Summary(EmbeddedBase):
    """Base class of summary kinds: each granule is mapped to one row of a table.

    A kind defines ``summarize`` and ``might_match``.

    Parameters
    ----------
    on : str or pyarrow.compute.Expression
        A column path, or a function of columns as SQL text or Expression.
    granule_rows : int, default 8192
        Most rows per granule, 1 to 2**31 - 1.

    Raises
    ------
    IndexSpecError
        If a parameter is out of range, or the Expression cannot be indexed.

    Examples
    --------
    An index of the longest string of each granule:

    >>> from dataclasses import dataclass
    >>> import pyarrow.compute as pc
    >>> from intarsia.index import How, Summary
    >>> @dataclass(frozen=True)
    ... class Longest(Summary):
    ...     kind = "longest"
    ...     serves = frozenset({How.SUBSTRING})
    ...     def summarize(self, values, starts):
    ...         longest = [
    ...             pc.max(pc.binary_length(values[start:stop])).as_py()
    ...             for start, stop in zip(starts[:-1], starts[1:])
    ...         ]
    ...         return pa.RecordBatch.from_pydict({"bytes": pa.array(longest, pa.int32())})
    ...     def might_match(self, predicate, summaries, of):
    ...         lengths = summaries["bytes"].fill_null(0).to_numpy(zero_copy_only=False)
    ...         return lengths >= len(predicate.pattern)
    >>> Longest("msg").summarize(pa.array(["a", "bcd", None]), [0, 2, 3])["bytes"].to_pylist()
    [3, None]
    """

    def summarize(self, values: pa.Array, starts: Positions) -> pa.RecordBatch:
        """Returns one row for each of ``g`` granules.

        Parameters
        ----------
        values : pyarrow.Array
            Values, including NULL and NaN.
        starts : numpy.ndarray of int64, shape ``(g + 1,)``
            Ascends strictly. Granule ``i`` is ``values[starts[i]:starts[i + 1]]``.

        Returns
        -------
        pyarrow.RecordBatch
            ``g`` rows of flat columns, whose types must not depend on the values.
        """
        raise NotImplementedError

    def might_match(
        self, predicate: Predicate, summaries: pa.RecordBatch, of: Subject
    ) -> BoolArray | None:
        """Returns which of ``n`` granules might have a passing row, or None if unknown.

        Parameters
        ----------
        predicate : Comparison or SearchPredicate
            One of those that ``serves`` names.
        summaries : pyarrow.RecordBatch
            ``n`` rows that ``summarize`` returned.
        of : Subject
            The term and its type.

        Returns
        -------
        numpy.ndarray of bool, shape ``(n,)``, or None
        """
        raise NotImplementedError


def fingerprints(values: pa.Array) -> FingerprintArray:
    """Returns the high 32 bits of XXH64 over the PLAIN encoding of values.

    Parameters
    ----------
    values : pyarrow.Array
        ``n`` strings, bytes, or integers or floats of 32 or 64 bits, without NULL. Both zeros of a
        float have one fingerprint.

    Returns
    -------
    numpy.ndarray of uint32, shape ``(n,)``

    Raises
    ------
    TypeError
        For values of any other type.

    Examples
    --------
    >>> from intarsia.index import fingerprints
    >>> fingerprints(pa.array(["t7"])).tolist()
    [1379777158]
    """
    return (hash_values(as_bytes(values)) >> np.uint64(32)).astype(np.uint32)


def hashable(values: pa.Array) -> pa.Array:
    """Returns values as fixed-width numbers or bytes, or strings. Equal values have equal bytes."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int32())
    if pa.types.is_decimal(kind):
        if kind.precision > _DECIMAL_DIGITS:
            return values.view(pa.binary(32))
        return values.cast(pa.decimal128(_DECIMAL_DIGITS, kind.scale)).view(pa.binary(16))
    if pa.types.is_date64(kind):
        return values.cast(pa.date32()).view(pa.int32())
    if pa.types.is_integer(kind):
        return values if kind.bit_width >= 32 else values.cast(pa.int32())
    if pa.types.is_temporal(kind):
        return values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values


def term_for(expression: pc.Expression, kind: str) -> Term:
    """Returns the term of an Expression. Raises ``IndexSpecError`` if it cannot be indexed."""
    term = term_of(read_expression(expression))
    if term is None:
        raise IndexSpecError(
            f"no index of kind {kind} on {shown(expression)}: it is no column, nor one of the "
            f"functions that indexes know: {FUNCTIONS}"
        )
    return term


def index_name(on: str, kind: str) -> str:
    """Returns the name of an index: ``trace_id:lookup``."""
    return f"{on}:{kind}"
