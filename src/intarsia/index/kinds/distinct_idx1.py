"""``IDX1``: the values of one column of text, listed for the whole file, for DataFusion's readers.

::

    footer key distinct_index_offset = "OFFSET"
    at OFFSET:  IDX1 │ length in bytes, u64 little-endian │ value ⏎ value ⏎ value

The layout is that of the example in "Embedding User-Defined Indexes in Apache Parquet Files", on
Apache DataFusion's blog, July 2025. It knows no column, no version, no checksum and no file, so
that one found in a file says little by itself: ``found_in`` believes it as far as it can be
checked, and it is used only where the reader is told its column. One that is written here is listed
by the directory as well, which knows all of these.
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
from intarsia.pruning.predicates import Predicate, Test
from intarsia.row_ranges import RowRanges

KEY = "distinct_index_offset"
_MAGIC, _HEADER = b"IDX1", struct.Struct("<4sQ")
_MOST_BYTES = 16 * 1024 * 1024
"""Longer lists are neither written nor read: all of it is read for every file."""


@dataclass(frozen=True)
class DistinctIDX1(Distinct):
    """The list of a text column's distinct values as DataFusion's published example has it.

    Its readers, and this one, pass over a file that lists no value a filter lets pass; rows within
    a file it cannot tell apart, for which ``Distinct`` is better. A file has room for one. NULLs
    are not listed, so it is not asked where they pass.

    ``on`` is a column of text, itself or within structs. Values that the list would not give back
    are refused: with a line feed, with a carriage return at the end, more than 16 MiB of them, and
    an empty text that is the only value; a function of columns is refused by ``add_indexes``.
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
            return f"it lists texts, and this is {of.type}"
        return super().unfit(of)

    def keys_for(self, predicate: Predicate, of: Subject) -> Formula | None:
        formula = super().keys_for(predicate, of)
        return formula if isinstance(formula, KeysWhere) else None


class IDX1Section:
    """The list, opened: it tells whether any row of the file might pass."""

    exact = True

    def __init__(self, values: pa.Array, *, is_ours: bool) -> None:
        """Where it is not ``is_ours``, a value may have been cut at its line feeds."""
        self.listed, self._is_ours = values, is_ours

    @classmethod
    def listed_at(cls, source: Source, meta_length: int, meta_crc32: int) -> IDX1Section:
        """One the directory lists. Raises ``FormatError`` where it is not as it was written."""
        if meta_length != source.size or meta_length > _HEADER.size + _MOST_BYTES:
            raise FormatError("the list has another length")
        data = source.read([(0, source.size)])[0]
        if zlib.crc32(data) != meta_crc32:
            raise FormatError("the list does not match its checksum")
        if _length(data) != len(data) - _HEADER.size:
            raise FormatError("the list has another length")
        return cls(_values(data[_HEADER.size :]), is_ours=True)

    def rows_of(self, formula: Formula, of: Subject) -> RowRanges | None:
        """No rows where no listed value passes; None where there might be some."""
        assert isinstance(formula, KeysWhere)
        predicate = formula.predicate
        if not self._is_ours and not _asks_for_whole_lines(predicate):
            return None
        passed = passing(predicate, self.listed, of.order)
        return None if passed is None or passed.any() else RowRanges.none()


def _asks_for_whole_lines(predicate: Predicate) -> bool:
    """Would a value that passes be on a line of its own?

    Of others, one might pass of which no line does: ``'a⏎z' > 'a'`` is listed as ``a`` and ``z``.
    """
    if not isinstance(predicate, Test) or predicate.op not in (Op.EQ, Op.IN) or predicate.nulls:
        return False
    values = predicate.values
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return not pc.any(pc.match_substring(values, "\n"), min_count=0).as_py()
    return False


def encoded(values: pa.Array, on: str) -> bytes:
    """The list of distinct ``values``, which ascend.

    Raises ``IndexSpecError`` for values that it would not give back.
    """
    name = index_name(on, DistinctIDX1.kind)
    try:
        texts = values.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise IndexSpecError(f"no index {name}: a value is not UTF-8") from error
    problem = None
    if pc.any(pc.match_substring(texts, "\n")).as_py():
        problem = "a value has a line feed, which parts the values of the list"
    elif pc.any(pc.ends_with(texts, "\r")).as_py():
        problem = "a value ends in a carriage return, which readers of the list leave out"
    elif texts.to_pylist() == [""]:
        problem = "an empty text is the only value, which the list cannot tell from none"
    data = b"" if problem else "\n".join(texts.to_pylist()).encode()
    if len(data) > _MOST_BYTES:
        problem = f"the values take {len(data):,} bytes, of {_MOST_BYTES:,} at most; try distinct"
    if problem:
        raise IndexSpecError(f"no index {name}: {problem}")
    return _HEADER.pack(_MAGIC, len(data)) + data


def _length(header: memoryview) -> int:
    if len(header) < _HEADER.size:
        raise FormatError("it is cut short")
    magic, length = _HEADER.unpack(header[: _HEADER.size])
    if magic != _MAGIC:
        raise FormatError(f"it begins with {magic!r}, not {_MAGIC!r}")
    if length > _MOST_BYTES:
        raise FormatError(f"it claims {length:,} bytes, of {_MOST_BYTES:,} at most")
    return int(length)


def _values(data: memoryview) -> pa.Array:
    """The lines; that an empty text is one of them is what no bytes at all may mean."""
    try:
        return pa.array(bytes(data).decode().split("\n"), pa.large_string())
    except UnicodeDecodeError as error:
        raise FormatError(f"it is not UTF-8: {error}") from error


@dataclass(frozen=True, slots=True)
class Found:
    """A list that a file's footer points at: where it is, and the values on its lines."""

    place: ByteRange
    values: pa.Array


def found_in(
    metadata: FileMetaData, source: Source, end: int, taken: Sequence[ByteRange]
) -> Found | None:
    """The list a file's footer points at; None where it points at none.

    ``end`` is where the footer begins, ``taken`` what lies before it and is known to be something
    else: a tool that rewrote the file and kept its key/values left an offset that points into
    these, or at no ``IDX1``. Raises ``FormatError`` where that is so, or the list is damaged.
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
    return Found((offset, length), _values(data[_HEADER.size :]))


def contradiction(values: pa.Array, statistics: Sequence[Statistics | None]) -> str | None:
    """Why ``values`` cannot be all of a column whose chunks have these ``statistics``."""
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
