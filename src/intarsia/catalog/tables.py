"""The tables of a catalog: Parquet files with page indexes, in the format of index sections.

=======  =============================================================  ==================
table    a row is                                                       sorted by
=======  =============================================================  ==================
files    a file: name, identity, rows, row groups, form                 number
bounds   a column of a file: least and greatest value, NULLs, NaNs      column, file
covers   an index of a file: its granules                               index, file
tails    the end of a file, from its directory or footer on             number

keys     an entry of one index in all files: key, granule step          key, granule
=======  =============================================================  ==================

Granules are numbered across all files that have the index. The step is the difference to the
granule before (``index.section.writer``). The pointer holds the CRC of a table's metadata; each
page has a CRC of its own. A table contains its own name.
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
"""Rows on a page of the ``tails`` table. Few, because the end of a file may be long."""

_SINGLE_GRANULE = np.array([0, 1], dtype=np.int64)
"""Granule boundaries: a section needs at least one granule, and a table has no use for more."""
_MAGIC_BYTES = 4


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table, and the bytes of its file."""

    table: Table
    data: memoryview


def new_name(generation: str, what: str) -> str:
    """Returns a unique name for a table."""
    return f"catalog-{generation}-{what}-{secrets.token_hex(4)}.table"


def build_table(
    name: str, schema: pa.Schema, blocks: Iterable[pa.Table], page_rows: int = PAGE_ROWS
) -> BuiltTable:
    """Returns a table with the rows of ``blocks``, in order."""
    out, rows = pa.BufferOutputStream(), 0

    def counted() -> Iterable[pa.Table]:
        nonlocal rows
        for block in blocks:
            rows += len(block)
            yield block

    write_section(out, schema, counted(), _SINGLE_GRANULE, name, page_rows)
    data = memoryview(out.getvalue())
    built = BuiltSection.of(data)
    return BuiltTable(Table(name, len(data), built.meta_length, built.meta_crc32, rows), data)


def _window(source: Source, table: Table) -> Source:
    if source.size != table.size or table.size < _MAGIC_BYTES:
        raise FormatError(f"{table.name} is not as long as the catalog says")
    return WindowSource(source, 0, table.size - _MAGIC_BYTES)


class Rows(Section):
    """An opened table of rows, except those of keys."""

    def __init__(self, source: Source, table: Table, schema: pa.Schema) -> None:
        """Raises ``FormatError`` if the table is damaged, or not the one in the pointer."""
        window = _window(source, table)
        super().__init__(window, table.meta_length, table.meta_crc32, table.name, 1)
        if self.num_entries != table.rows or list(self.columns) != schema.names:
            raise FormatError(f"{table.name} is not the table that the catalog says")
        self._schema = schema

    def columns_of(self, names: Iterable[str], pages: Int64Array | None = None) -> pa.Table:
        """Returns columns of the rows on ``pages``, by default all."""
        names = list(names)
        page_numbers = np.arange(self.num_pages) if pages is None else pages
        schema = pa.schema([self._schema.field(name) for name in names])
        if not len(page_numbers):
            return schema.empty_table()
        arrays = self.read(names, page_numbers)
        if [column.type for column in arrays] != schema.types:
            raise FormatError("a table of the catalog has columns of other types")
        return pa.Table.from_arrays(arrays, schema=schema)

    def where(self, name: str, number: int, names: Iterable[str]) -> pa.Table:
        """Returns the rows whose column ``name`` equals ``number``. Rows are sorted by it."""
        bounds = self.columns[name].bounds if self.num_pages else None
        if bounds is None:
            pages = np.arange(self.num_pages)
        else:
            might_hold = ~bounds.bounded | ((bounds.low <= number) & (bounds.high >= number))
            pages = np.flatnonzero(might_hold)
        rows = self.columns_of([name, *names], pages)
        return rows.filter(np.asarray(rows.column(name)) == number).drop_columns([name])


class KeyRows(InvertedSection):
    """An opened ``keys`` table of an index that has ``num_granules`` granules in all files."""

    def __init__(self, source: Source, table: Table, num_granules: int) -> None:
        """Raises ``FormatError`` if the table is damaged, or not the one in the pointer."""
        self._num_granules = num_granules
        window = _window(source, table)
        super().__init__(window, table.meta_length, table.meta_crc32, table.name, 1)
        if self.num_entries != table.rows:
            raise FormatError(f"{table.name} is not the table that the catalog says")

    @property
    def num_granules(self) -> int:
        return self._num_granules

    def bytes_for(self, keys: FingerprintArray) -> int:
        """Returns the bytes of the pages that might hold ``keys``, distinct and sorted."""
        pages = self.pages_for(keys)
        return int(sum(column.pages[pages, 1].sum() for column in self.columns.values()))

    def holding(self, keys: FingerprintArray) -> tuple[FingerprintArray, Granules]:
        """Returns all entries of ``keys``, distinct and sorted: the keys and their granules."""
        pages, none = self._entries_by_page(keys), np.empty(0, np.uint32)
        page_keys = np.concatenate([none, *(page.keys for page in pages)])
        if (page_keys[1:] < page_keys[:-1]).any():
            raise FormatError("the keys are not sorted")
        return page_keys, np.concatenate([none, *(page.granules for page in pages)])

    def all(self) -> UInt64Array:
        """Returns all entries as ``packed`` does. Raises ``FormatError`` if a page is damaged."""
        keys, granules = self.entries_on(np.arange(self.num_pages))
        return packed([(keys, granules)])


def parts_with_keys(low: Int64Array, high: Int64Array, keys: FingerprintArray) -> Int64Array:
    """Returns which parts, with keys from ``low`` to ``high``, might hold sorted ``keys``."""
    return pages_with_keys(low, high, keys)
