"""``IDX1``: a list of one string column's distinct values in a file, as DataFusion reads it.

::

    footer key distinct_index_offset = "OFFSET"
    at OFFSET:  IDX1 │ length in bytes, u64 little-endian │ value ⏎ value ⏎ value

The layout is that of the example in "Embedding User-Defined Indexes in Apache Parquet Files", on
Apache DataFusion's blog, July 2025. It states no column, version, checksum or file. A list of
another writer is checked by ``found_in`` as far as possible, and used only if the caller names its
column. A list that Intarsia writes is also an entry of the directory, which states all of these.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import FormatError, IndexSpecError
from intarsia.expr.comparison_operators import Op
from intarsia.index.base import Subject, index_name
from intarsia.index.key_formula import Formula, KeysWhere
from intarsia.index.kinds.distinct import Distinct
from intarsia.index.value_predicates import passing
from intarsia.io.source import ByteRange, Source
from intarsia.parquet.metadata import FileMetaData, Statistics
from intarsia.pruning.predicates import Comparison, Predicate
from intarsia.row_ranges import RowRanges

KEY = "distinct_index_offset"
"""The footer key that points at the list."""
_MAGIC, _HEADER = b"IDX1", struct.Struct("<4sQ")
_MAX_LIST_BYTES = 16 * 1024 * 1024
"""Longer lists are neither written nor read, because each query reads the whole list of a file."""


@dataclass(frozen=True)
class DistinctIDX1(Distinct):
    """A list of a string column's distinct values, in the layout of DataFusion's example.

    Readers skip a file if no listed value passes a filter. The list cannot skip rows within a file;
    ``Distinct`` can. A file can have one list. NULLs are not listed, so the list is not used for
    predicates that NULLs pass.

    Values that the list could not return are refused when the index is built:

    - values that contain a line feed or end with a carriage return,
    - an empty string as the only value,
    - more than 16 MiB of values.

    Parameters
    ----------
    on : str
        Path of a string column, at the top level or within structs. ``add_indexes`` refuses
        functions of columns.
    granule_rows : int, default 8192
        Not used.

    Raises
    ------
    IndexSpecError
        If ``granule_rows`` is out of range.

    Examples
    --------
    >>> report, = ia.add_indexes("logs.parquet", [ia.DistinctIDX1("trace_id")])
    >>> report.added
    ('trace_id:distinct_idx1',)
    """

    kind = "distinct_idx1"
    nulls = False

    @property
    def params(self) -> Mapping[str, Any]:
        return {}

    def unfit(self, of: Subject) -> str | None:
        if not of.term.path:
            return "it lists the values of a column, not of a function"
        if not of.is_text:
            return f"it lists strings, and this is {of.type}"
        return super().unfit(of)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        formula = super().keys_for(predicate, of)
        return formula if isinstance(formula, KeysWhere) else None


class IDX1Section:
    """An open list, which tells whether any row of the file might pass."""

    exact = True

    def __init__(self, values: pa.Array, *, is_ours: bool) -> None:
        """Takes the listed values. A list that is not ours may have cut values at line feeds."""
        self.listed, self._is_ours = values, is_ours

    @classmethod
    def listed_at(cls, source: Source, meta_length: int, meta_crc32: int) -> IDX1Section:
        """Opens a list of the directory. Raises ``FormatError`` if it is damaged."""
        if meta_length != source.size or meta_length > _HEADER.size + _MAX_LIST_BYTES:
            raise FormatError("the list has another length")
        data = source.read([(0, source.size)])[0]
        if zlib.crc32(data) != meta_crc32:
            raise FormatError("the list does not match its checksum")
        if _length(data) != len(data) - _HEADER.size:
            raise FormatError("the list has another length")
        return cls(_values(data[_HEADER.size :]), is_ours=True)

    def rows_of(self, formula: Formula, of: Subject) -> RowRanges | None:
        """Returns no rows if no listed value passes ``formula``, or None if one might."""
        assert isinstance(formula, KeysWhere)
        predicate = formula.predicate
        if not self._is_ours and not _is_on_one_line(predicate):
            return None
        passed = passing(predicate, self.listed, of.order)
        return None if passed is None or passed.any() else RowRanges.none()


def _is_on_one_line(predicate: Predicate) -> bool:
    """True if each value that passes would be on a line of its own.

    Another value may pass although none of its lines does: ``'a⏎z' > 'a'`` is listed as ``a`` and
    ``z``.
    """
    if (
        not isinstance(predicate, Comparison)
        or predicate.op not in (Op.EQ, Op.IN)
        or predicate.nulls
    ):
        return False
    values = predicate.values
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return not pc.any(pc.match_substring(values, "\n"), min_count=0).as_py()
    return False


def encoded(values: pa.Array, on: str) -> bytes:
    """Encodes ascending ``values``. Raises ``IndexSpecError`` for some that cannot come back."""
    name = index_name(on, DistinctIDX1.kind)
    try:
        strings = values.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise IndexSpecError(f"no index {name}: a value is not UTF-8") from error
    problem = None
    if pc.any(pc.match_substring(strings, "\n")).as_py():
        problem = "a value has a line feed, which separates the values of the list"
    elif pc.any(pc.ends_with(strings, "\r")).as_py():
        problem = "a value ends with a carriage return, which readers of the list drop"
    elif strings.to_pylist() == [""]:
        problem = "an empty string is the only value, which looks like an empty list"
    data = b"" if problem else "\n".join(strings.to_pylist()).encode()
    if len(data) > _MAX_LIST_BYTES:
        problem = (
            f"the values take {len(data):,} bytes, of {_MAX_LIST_BYTES:,} at most; try distinct"
        )
    if problem:
        raise IndexSpecError(f"no index {name}: {problem}")
    return _HEADER.pack(_MAGIC, len(data)) + data


def _length(header: memoryview) -> int:
    if len(header) < _HEADER.size:
        raise FormatError("it is cut short")
    magic, length = _HEADER.unpack(header[: _HEADER.size])
    if magic != _MAGIC:
        raise FormatError(f"it begins with {magic!r}, not {_MAGIC!r}")
    if length > _MAX_LIST_BYTES:
        raise FormatError(f"it claims {length:,} bytes, of {_MAX_LIST_BYTES:,} at most")
    return int(length)


def _values(data: memoryview) -> pa.Array:
    """Decodes the lines. An empty list gives one empty string."""
    try:
        return pa.array(bytes(data).decode().split("\n"), pa.large_string())
    except UnicodeDecodeError as error:
        raise FormatError(f"it is not UTF-8: {error}") from error


@dataclass(frozen=True, slots=True)
class ListedValues:
    """A list that a file's footer points at: its offset and length in bytes, and its values."""

    place: ByteRange
    values: pa.Array


def found_in(
    metadata: FileMetaData, source: Source, end: int, taken: Sequence[ByteRange]
) -> ListedValues | None:
    """Returns the list that a file's footer points at, or None if it points at none.

    ``end`` is the offset of the footer. ``taken`` holds the known parts of the file before it. A
    tool that rewrote the file and copied its key/values leaves an offset into these parts, or one
    without ``IDX1``. Raises ``FormatError`` in these cases, and if the list is damaged.
    """
    text = metadata.key_value(KEY)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"{KEY} is {text!r}, not an offset")
    offset = int(text)
    if not len(_MAGIC) <= offset <= end - _HEADER.size:
        raise FormatError(f"{KEY} points outside the file's body")
    length = _HEADER.size + _length(source.read([(offset, _HEADER.size)])[0])
    if offset + length > end:
        raise FormatError("the list is longer than the file's body")
    if any(start < offset + length and offset < start + size for start, size in taken):
        raise FormatError(f"{KEY} points into other parts of the file: it was rewritten since")
    data = source.read([(offset, length)])[0]
    return ListedValues((offset, length), _values(data[_HEADER.size :]))


def contradiction(values: pa.Array, statistics: Sequence[Statistics | None]) -> str | None:
    """Returns why a column with these ``statistics`` has other values than the list, or None.

    Source: ``Statistics`` in ``parquet.thrift``.
    """
    listed = sorted(value.encode() for value in values.to_pylist())
    for stats in statistics:
        if stats is None or stats.min_value is None or stats.max_value is None:
            continue
        low, high = bytes(stats.min_value), bytes(stats.max_value)
        first, last = bisect.bisect_left(listed, low), bisect.bisect_right(listed, high) - 1
        if first > last:
            return "the list has no value where statistics show some"
        if (stats.is_min_value_exact and listed[first] != low) or (
            stats.is_max_value_exact and listed[last] != high
        ):
            return "the list lacks a value that statistics show"
    return None
