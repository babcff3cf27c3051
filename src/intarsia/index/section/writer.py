"""Writes index sections: small page-indexed Parquet files without their last four bytes.

An inverted index has rows ``(key, granule)``, sorted and distinct. A summary index has one row per
granule. If keys are fingerprints, a granule is stored as the step from the previous granule of the
same key on its page::

    key      3  3  3  7 │ 7  9      │ ends a page
    granule  1  4  5  0 │ 2  1
    step     1  3  1  0 │ 2  1

Cells (``granule_blocks``) are stored like granules, in a column named ``cell``. Entries that do not
fit into memory together arrive in parts; each part becomes a row group.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from intarsia.index.key_formula import FingerprintArray
from intarsia.parquet.footer import MAGIC
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import FileMetaData
from intarsia.parquet.thrift import decode
from intarsia.row_ranges import Int64Array, UInt64Array, distinct

PAGE_ROWS = 8192
"""Entries per page: few enough for a probe to read little, enough to compress well."""
ENTRY_SCHEMA = pa.schema([("key", pa.uint32()), ("granule", pa.uint32())])
"""Entries as the first version stored them."""
STEP_SCHEMA = pa.schema([("key", pa.uint32()), ("step", pa.uint32())])
"""Entries with steps between granules."""
CELL_SCHEMA = pa.schema([("key", pa.uint32()), ("cell", pa.uint32())])
"""Entries with steps between cells. The section states how many granules a block has."""
LENGTH_BYTES = 4
"""Bytes of the footer's length."""
MAX_GRANULES = 1 << 24
"""Most granules per index. A few compressed kilobytes could otherwise claim a thousandfold."""


@dataclass(frozen=True, slots=True)
class BuiltSection:
    """The bytes of a section, and how many of the last ones are its metadata."""

    data: memoryview
    meta_length: int

    @property
    def meta_crc32(self) -> int:
        return zlib.crc32(self.data[-self.meta_length :])

    @classmethod
    def of(cls, parquet_file: memoryview) -> BuiltSection:
        """Returns the section of a complete Parquet file that ``write_section`` wrote."""
        data = parquet_file[: -len(MAGIC)]
        return cls(data, len(data) - _metadata_start(data))


def write_section(
    sink: Any,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    granule_starts: Int64Array,
    file_id: str,
    page_rows: int = PAGE_ROWS,
    block_size: int | None = None,
) -> None:
    """Writes tables, each as one row group, as a Parquet file for ``BuiltSection.of``.

    ``block_size`` is the number of granules per block, if the section stores cells.
    """
    info: dict[str, object] = {"file_id": file_id, "granules": _pack_starts(granule_starts)}
    if block_size is not None:
        info["block_size"] = block_size
    integer_columns = [field.name for field in schema if pa.types.is_integer(field.type)]
    encodings = dict.fromkeys(integer_columns, "DELTA_BINARY_PACKED")
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
        writer.add_key_value_metadata({FOOTER_KEY: json.dumps(info)})
        for table in tables:
            writer.write_table(table, row_group_size=max(len(table), 1))


def entry_table(merged: UInt64Array, schema: pa.Schema = STEP_SCHEMA) -> pa.Table:
    """Returns a row group of ``packed`` entries, which refer to granules or cells."""
    keys, granules = halves(merged)
    is_start = is_step_start(keys, np.arange(0, len(keys), PAGE_ROWS))
    steps = granules.copy()
    steps[1:] -= granules[:-1] * ~is_start[1:]  # faster than np.where with random choices
    return pa.table([pa.array(keys), pa.array(steps)], schema=schema)


def entries_of(table: pa.Table) -> UInt64Array:
    """Returns the ``packed`` entries of a table that ``entry_table`` returned."""
    keys, steps = (column.to_numpy() for column in table.columns)
    granules = granules_of_steps(keys, steps, np.arange(0, len(keys), PAGE_ROWS))
    merged: UInt64Array = keys.astype(np.uint64) << np.uint64(32) | granules
    return merged


def is_step_start(keys: FingerprintArray, page_starts: Int64Array) -> NDArray[np.bool_]:
    """Returns where a step starts from 0: at a new key or page. Shape ``(n,)``."""
    is_start = np.empty(len(keys), dtype=np.bool_)
    is_start[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=is_start[1:])
    is_start[page_starts[page_starts < len(keys)]] = True
    return is_start


def granules_of_steps(
    keys: FingerprintArray, steps: FingerprintArray, page_starts: Int64Array
) -> NDArray[np.uint64]:
    """Returns the granules of ``n`` entries from their steps. Shape ``(n,)``.

    ``page_starts`` holds the first entry of each page. Sums cannot overflow, as they have 64 bits.
    """
    sums: UInt64Array = steps.cumsum(dtype=np.uint64)
    is_start = is_step_start(keys, page_starts)
    before = sums[is_start] - steps[is_start]
    sums -= before[is_start.cumsum() - 1]
    return sums


def packed(entries: Iterable[tuple[FingerprintArray, FingerprintArray]]) -> UInt64Array:
    """Packs keys and granules into one number each, the key in the high half: sorted, distinct."""
    parts = [
        distinct(keys.astype(np.uint64) << np.uint64(32) | granules.astype(np.uint64))
        for keys, granules in entries
    ]
    return distinct(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def halves(merged: UInt64Array) -> tuple[FingerprintArray, FingerprintArray]:
    """Returns the keys and the granules of ``packed`` entries."""
    words = merged.astype("<u8", copy=False).view("<u4")
    return words[1::2].copy(), words[::2].copy()


def _metadata_start(data: memoryview) -> int:
    """Returns the offset of a section's page indexes, or of its footer if it has none."""
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
