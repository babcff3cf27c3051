"""Writing sections: small page-indexed Parquet files, less their last four bytes.

An inverted index has rows ``(key, granule)``, sorted and distinct; a summary a row a granule. Where
keys are fingerprints, a granule is stored as the step from the one before, of the same key::

    key      3  3  3  7 │ 7  9      │ ends a page
    granule  1  4  5  0 │ 2  1
    step     1  3  1  0 │ 2  1

Cells (``index.blocks``), where there are such, are stored like granules, in a column of their name.
What does not fit into memory at once comes in blocks, and each block becomes a row group.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from intarsia.index.key_formula import FingerprintArray
from intarsia.parquet.footer import MAGIC
from intarsia.parquet.footer_cache import OWN_KEY
from intarsia.parquet.metadata import FileMetaData
from intarsia.parquet.thrift import decode
from intarsia.row_ranges import Int64Array, UInt64Array

N = TypeVar("N", np.uint32, np.uint64)

PAGE_ROWS = 8192
"""Entries a page: few enough that a probe reads little, many enough to compress well."""
INFO_KEY = OWN_KEY
ENTRY_SCHEMA = pa.schema([("key", pa.uint32()), ("granule", pa.uint32())])
"""How entries of fingerprints were stored at first."""
STEP_SCHEMA = pa.schema([("key", pa.uint32()), ("step", pa.uint32())])
CELL_SCHEMA = pa.schema([("key", pa.uint32()), ("cell", pa.uint32())])
"""The same with steps from cell to cell; the section says how many granules a block has."""
LENGTH_BYTES = 4
MOST_GRANULES = 1 << 24
"""Of an index. A few kilobytes of a section may say a thousand times as much of them."""


@dataclass(frozen=True, slots=True)
class BuiltSection:
    """The bytes of a section, and how many of the last ones are its metadata."""

    data: memoryview
    meta_length: int

    @property
    def meta_crc32(self) -> int:
        return zlib.crc32(self.data[-self.meta_length :])

    @classmethod
    def of(cls, whole: memoryview) -> BuiltSection:
        """A section that was written as a whole Parquet file."""
        data = whole[: -len(MAGIC)]
        return cls(data, len(data) - _metadata_start(data))


def build_section(
    entries: Iterable[tuple[FingerprintArray, FingerprintArray]],
    granule_starts: Int64Array,
    file_id: str,
) -> BuiltSection:
    """A section of all ``entries``: keys and granule numbers in any order, repeats allowed.

    ``granule_starts`` has shape ``(granules + 1,)``: the first row of each granule, counted from
    the start of the file, and the number of rows at the end.
    """
    out = pa.BufferOutputStream()
    write_section(out, STEP_SCHEMA, [entry_table(packed(entries))], granule_starts, file_id)
    return BuiltSection.of(memoryview(out.getvalue()))


def write_section(
    sink: Any,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    granule_starts: Int64Array,
    file_id: str,
    page_rows: int = PAGE_ROWS,
    block_size: int | None = None,
) -> None:
    """Write row groups, in order, as a whole Parquet file that ``BuiltSection.of`` takes.

    ``block_size`` is how many granules a block of cells has.
    """
    info: dict[str, object] = {"file_id": file_id, "granules": _pack_starts(granule_starts)}
    if block_size is not None:
        info["block_size"] = block_size
    packs = [field.name for field in schema if pa.types.is_integer(field.type)]
    encodings = dict.fromkeys(packs, "DELTA_BINARY_PACKED")
    has_steps = schema in (STEP_SCHEMA, CELL_SCHEMA)
    if has_steps:
        encodings[schema.names[1]] = "BYTE_STREAM_SPLIT"
    with pq.ParquetWriter(
        sink,
        schema,
        max_rows_per_page=page_rows,
        write_batch_size=page_rows,
        compression="zstd",
        use_dictionary=False,
        column_encoding=encodings,
        write_page_index=True,
        write_page_checksum=True,
        store_schema=not has_steps,
    ) as writer:
        writer.add_key_value_metadata({INFO_KEY: json.dumps(info)})
        for table in tables:
            writer.write_table(table, row_group_size=max(len(table), 1))


def entry_table(merged: UInt64Array, schema: pa.Schema = STEP_SCHEMA) -> pa.Table:
    """Rows of ``packed`` entries, of granules or cells, which begin a row group."""
    keys, granules = halves(merged)
    anew = starts_anew(keys, np.arange(0, len(keys), PAGE_ROWS))
    steps = granules.copy()
    steps[1:] -= granules[:-1] * ~anew[1:]  # quicker than a choice, which would be by chance
    return pa.table([pa.array(keys), pa.array(steps)], schema=schema)


def entries_of(table: pa.Table) -> UInt64Array:
    """The ``packed`` entries of which ``entry_table`` made ``table``."""
    keys, steps = (column.to_numpy() for column in table.columns)
    granules = granules_of_steps(keys, steps, np.arange(0, len(keys), PAGE_ROWS))
    merged: UInt64Array = keys.astype(np.uint64) << np.uint64(32) | granules
    return merged


def starts_anew(keys: FingerprintArray, page_starts: Int64Array) -> NDArray[np.bool_]:
    """Where steps begin: at a key, or at a page."""
    anew = np.ones(len(keys), dtype=np.bool_)
    anew[1:] = keys[1:] != keys[:-1]
    anew[page_starts[page_starts < len(keys)]] = True
    return anew


def granules_of_steps(
    keys: FingerprintArray, steps: FingerprintArray, page_starts: Int64Array
) -> NDArray[np.uint64]:
    """The granules of entries by their steps, on pages that begin at ``page_starts``.

    ``n`` entries give shape ``(n,)``; nothing overflows.
    """
    found = np.cumsum(steps, dtype=np.uint64)
    at = np.flatnonzero(starts_anew(keys, page_starts))
    before = found[at] - steps[at]
    return found - np.repeat(before, np.diff(at, append=len(keys)))


def packed(entries: Iterable[tuple[FingerprintArray, FingerprintArray]]) -> UInt64Array:
    """Pairs of key and granule, as one number each with the key above: sorted, distinct."""
    parts = [
        distinct(keys.astype(np.uint64) << np.uint64(32) | granules.astype(np.uint64))
        for keys, granules in entries
    ]
    return distinct(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def halves(merged: UInt64Array) -> tuple[FingerprintArray, FingerprintArray]:
    """The keys and the granules of ``packed`` entries."""
    found = merged.astype("<u8", copy=False).view("<u4")
    return found[1::2].copy(), found[::2].copy()


def distinct(values: NDArray[N]) -> NDArray[N]:
    """Sorted and without repeats; ``np.unique`` hashes first, which is far slower here."""
    return without_repeats(np.sort(values))


def without_repeats(values: NDArray[N]) -> NDArray[N]:
    """Sorted ``values``, each once; themselves where none repeats."""
    differ = values[1:] != values[:-1]
    return values if differ.all() else values[np.concatenate(([True], differ))]


def _metadata_start(data: memoryview) -> int:
    """Where the page indexes, or else the footer, of a section begin."""
    (length,) = struct.unpack("<I", data[-LENGTH_BYTES:])
    footer_start = len(data) - LENGTH_BYTES - length
    metadata, _ = decode(FileMetaData, data[footer_start:-LENGTH_BYTES])
    starts = [
        offset
        for group in metadata.row_groups
        for chunk in group.columns
        for offset in (chunk.column_index_offset, chunk.offset_index_offset)
        if offset is not None
    ]
    return min([int(footer_start), *starts])


def _pack_starts(starts: Int64Array) -> str:
    steps = np.diff(starts, prepend=np.int64(0))
    return base64.b64encode(zlib.compress(steps.astype("<i8").tobytes())).decode()
