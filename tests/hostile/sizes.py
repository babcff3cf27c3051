"""Small files that hold, or claim, as many of one thing as their bytes allow.

``SIZES`` maps names to functions that return the bytes of a file with ``count`` of these.
"""

import io
import itertools
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from crafted import INT64, data_page, footer_of, of_pages, sound

from intarsia.parquet.footer import MAGIC, framed, with_key_values
from intarsia.parquet.metadata import ColumnChunk, ColumnMetaData, Encoding, RowGroup, SchemaElement
from intarsia.parquet.thrift import amended, encode

SIZES = {}


def size(make):
    SIZES[make.__name__] = make
    return make


@cache
def _empty_metadata():
    out = io.BytesIO()
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    pq.write_table(schema.empty_table(), out)
    return footer_of(out.getvalue()).metadata


def _chunk(path, start, size, values):
    return ColumnChunk(
        file_offset=0,
        meta_data=ColumnMetaData(
            type=INT64,
            encodings=[Encoding.PLAIN, Encoding.RLE],
            path_in_schema=[path],
            codec=0,
            num_values=values,
            total_uncompressed_size=size,
            total_compressed_size=size,
            data_page_offset=start,
        ),
    )


def _page(value):
    return data_page(int(value).to_bytes(8, "little", signed=True), 1)


def _file(body, groups, **changes):
    metadata = amended(_empty_metadata(), row_groups=groups, **changes)
    return MAGIC + body + framed(encode(metadata))


@size
def empty_pages(count):
    return of_pages([*[data_page(b"", 0)] * count, _page(7)], 1)


@size
def pages_of_one_value(count):
    return of_pages([_page(n) for n in range(count)], count)


@size
def row_groups(count):
    pages = [_page(n) for n in range(count)]
    starts = itertools.accumulate(map(len, pages), initial=4)
    groups = [
        RowGroup(columns=[_chunk("a", at, len(page), 1)], total_byte_size=len(page), num_rows=1)
        for at, page in zip(starts, pages, strict=False)
    ]
    return _file(b"".join(pages), groups, num_rows=count)


@size
def row_groups_of_one_chunk(count):
    """Every row group claims the bytes of the first one."""
    page = data_page(np.arange(100).tobytes(), 100)
    group = RowGroup(
        columns=[_chunk("a", 4, len(page), 100)], total_byte_size=len(page), num_rows=100
    )
    return _file(page, [group] * count, num_rows=100 * count)


@size
def columns(count):
    page = _page(7)
    names = [f"c{n}" for n in range(count)]
    chunks = [_chunk(name, 4 + n * len(page), len(page), 1) for n, name in enumerate(names)]
    group = RowGroup(columns=chunks, total_byte_size=count * len(page), num_rows=1)
    schema = [
        SchemaElement(name="schema", num_children=count),
        *(SchemaElement(name=name, type=INT64, repetition_type=0) for name in names),
    ]
    changes = {"schema": schema, "num_rows": 1, "column_orders": None, "key_value_metadata": None}
    return _file(page * count, [group], **changes)


@size
def key_values(count):
    raw = with_key_values(footer_of(sound()).raw, {f"k{n}": "v" for n in range(count)})
    return sound()[: footer_of(sound()).offset] + framed(raw)
