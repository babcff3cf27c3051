"""Cuts files and recovers them; the expected answer is always the rows that were written."""

import functools
import io

import pyarrow.parquet as pq

import intarsia as ia
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import read_footer
from intarsia.recovery.salvage import Template, salvage


def template(data):
    footer = read_footer(BufferSource(data))
    return Template(footer.raw, footer.metadata)


@functools.lru_cache(8)
def read(document):
    """Reads rows with pyarrow; most cuts give the same bytes as the cut before."""
    return pq.read_table(io.BytesIO(document))


def recovered(data, schema_from=None):
    """The rows that pyarrow reads from the recovered ``data``; None if nothing was recovered."""
    source = BufferSource(data)
    try:
        actual = salvage(source, schema_from)
    except ia.FormatError:
        return None, None
    table = read(bytes(actual.document(source)))
    assert table.num_rows == sum(group.rows for group in actual.saved)
    return table, actual


def rows_after(data, cut, whole, schema_from=None):
    """The number of rows recovered from ``data[:cut]``; asserts that they are the first of
    ``whole``.
    """
    table, _ = recovered(data[:cut], schema_from)
    if table is None:
        return None
    first = whole.slice(0, table.num_rows)
    assert table.cast(whole.schema).equals(first), f"cut at {cut}"
    return table.num_rows


def group_ends(data):
    """For each row group of a file: the number of rows up to its end, and its end's offset."""
    ends, rows = [], 0
    for group in read_footer(BufferSource(data)).metadata.row_groups:
        chunks = [chunk.meta_data for chunk in group.columns]
        rows += group.num_rows
        ends.append((rows, max(chunk.start + chunk.total_compressed_size for chunk in chunks)))
    return ends


def rows_within(ends, cut):
    """The rows of the row groups that end at or before ``cut``."""
    return max((rows for rows, end in ends if end <= cut), default=0)
