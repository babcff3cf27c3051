"""The tables of a catalog: Parquet files with page indexes, read as sections are.

=======  =============================================================  ==================
table    a row is                                                       sorted by
=======  =============================================================  ==================
files    a file: name, identity, rows, row groups, form                 number
bounds   a column of a file: least and greatest value, NULLs, NaNs      column, file
covers   an index of a file: its granules                               index, file
tails    the end of a file, from its directory or footer on             number
keys     an entry of one index in all files: key, step from the         key, granule
         granule before (``section_write``); granules are numbered
         through all files that have the index
=======  =============================================================  ==================

Metadata has a CRC that the pointer knows, pages have their own; a table repeats its name.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from intarsia.catalog.manifest import Table
from intarsia.errors import FormatError
from intarsia.index.key_formula import FingerprintArray, Granules
from intarsia.index.section.probe import InvertedSection, pages_with_keys
from intarsia.index.section.reader import Section
from intarsia.index.section.writer import PAGE_ROWS, BuiltSection, packed, write_section
from intarsia.io.source import Source, WindowSource
from intarsia.row_ranges import Int64Array, UInt64Array

FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("mtime", pa.int64()),
        ("stamp", pa.string()),
        ("rows", pa.int64()),
        ("row_groups", pa.int64()),
        ("form", pa.uint32()),
    ]
)
BOUNDS = pa.schema(
    [
        ("leaf", pa.uint32()),
        ("file", pa.uint32()),
        ("low", pa.binary()),
        ("high", pa.binary()),
        ("all_null", pa.bool_()),
        ("nulls", pa.int64()),
        ("nans", pa.int64()),
    ]
)
COVERS = pa.schema([("index", pa.uint32()), ("file", pa.uint32()), ("granules", pa.int64())])
TAILS = pa.schema([("tail", pa.binary())])
TAIL_ROWS = 8
"""Ends of files on a page."""

_STARTS = np.array([0, 1], dtype=np.int64)
"""Of the one granule that a section has to have."""
_MAGIC_BYTES = 4


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table, and the bytes of its file."""

    table: Table
    data: memoryview


def new_name(generation: str, what: str) -> str:
    """A name for a table that no other will have."""
    return f"catalog-{generation}-{what}-{secrets.token_hex(4)}.table"


def build_table(
    name: str, schema: pa.Schema, blocks: Iterable[pa.Table], page_rows: int = PAGE_ROWS
) -> BuiltTable:
    """A table of ``blocks`` of rows, in order."""
    out, rows = pa.BufferOutputStream(), 0

    def counted() -> Iterable[pa.Table]:
        nonlocal rows
        for block in blocks:
            rows += len(block)
            yield block

    write_section(out, schema, counted(), _STARTS, name, page_rows)
    data = memoryview(out.getvalue())
    built = BuiltSection.of(data)
    return BuiltTable(Table(name, len(data), built.meta_length, built.meta_crc32, rows), data)


def _window(source: Source, table: Table) -> Source:
    if source.size != table.size or table.size < _MAGIC_BYTES:
        raise FormatError(f"{table.name} is not as long as the catalog says")
    return WindowSource(source, 0, table.size - _MAGIC_BYTES)


class Rows(Section):
    """An opened table of rows."""

    def __init__(self, source: Source, table: Table, schema: pa.Schema) -> None:
        """Raises ``FormatError`` where it is damaged, or not the one the pointer means."""
        window = _window(source, table)
        super().__init__(window, table.meta_length, table.meta_crc32, table.name, 1)
        if self.num_entries != table.rows or list(self.columns) != schema.names:
            raise FormatError(f"{table.name} is not the table that the catalog says")
        self._schema = schema

    def columns_of(self, names: Iterable[str], pages: Int64Array | None = None) -> pa.Table:
        """Some columns of the rows on ``pages``, by default all. Raises ``FormatError``."""
        names = list(names)
        wanted = np.arange(self.num_pages) if pages is None else pages
        schema = pa.schema([self._schema.field(name) for name in names])
        if not len(wanted):
            return schema.empty_table()
        found = self.read(names, wanted)
        if [column.type for column in found] != schema.types:
            raise FormatError("a table of the catalog has columns of other types")
        return pa.Table.from_arrays(found, schema=schema)

    def where(self, name: str, number: int, names: Iterable[str]) -> pa.Table:
        """The rows whose column ``name``, by which they are sorted, is ``number``."""
        bounds = self.columns[name].bounds if self.num_pages else None
        if bounds is None:
            pages = np.arange(self.num_pages)
        else:
            held = ~bounds.bounded | ((bounds.low <= number) & (bounds.high >= number))
            pages = np.flatnonzero(held)
        found = self.columns_of([name, *names], pages)
        return found.filter(np.asarray(found.column(name)) == number).drop_columns([name])


class KeyRows(InvertedSection):
    """An opened part of a table of keys; its granules are those of ``num_granules``."""

    def __init__(self, source: Source, table: Table, num_granules: int) -> None:
        """Raises ``FormatError`` as ``Rows`` does."""
        self._num_granules = num_granules
        window = _window(source, table)
        super().__init__(window, table.meta_length, table.meta_crc32, table.name, 1)
        if self.num_entries != table.rows:
            raise FormatError(f"{table.name} is not the table that the catalog says")

    @property
    def num_granules(self) -> int:
        return self._num_granules

    def bytes_for(self, keys: FingerprintArray) -> int:
        """Bytes of the pages that ``keys``, distinct and sorted, might be on."""
        pages = self._pages_of(keys)
        return int(sum(column.pages[pages, 1].sum() for column in self.columns.values()))

    def holding(self, keys: FingerprintArray) -> tuple[FingerprintArray, Granules]:
        """Entries of which those of ``keys``, distinct and sorted, are all there are."""
        known, granules = self._entries(self._pages_of(keys))
        if (known[1:] < known[:-1]).any():
            raise FormatError("the keys are not sorted")
        is_wanted = np.isin(known, keys)
        return known[is_wanted], granules[is_wanted]

    def all(self) -> UInt64Array:
        """All entries, as ``packed``. Raises ``FormatError`` where a page is damaged."""
        known, granules = self._entries(np.arange(self.num_pages))
        return packed([(known, granules)])


def hit(low: Int64Array, high: Int64Array, keys: FingerprintArray) -> Int64Array:
    """Which parts, from ``low`` to ``high``, any of ``keys``, distinct and sorted, might be in."""
    return pages_with_keys(low, high, keys)
