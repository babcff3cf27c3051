"""Samples row groups of a file as a file of their own, to which indexes are added in memory.

::

    PAR1 … row groups … footer │ footer of some row groups │ sections, directory, footer │ …
    └────── as it is ────────┘   └───────────────────── in memory ─────────────────────┘

Pages, page indexes and bloom filters are those of the file. Plans are therefore the same.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from intarsia.dataset.request_builder import request_of
from intarsia.file.chunk_reader import Chunk
from intarsia.file.open_file import OpenedFile, as_current_version
from intarsia.index.registry import IndexSpec
from intarsia.indexing.file_layout import compose
from intarsia.io.external_sort import Workspace
from intarsia.io.file_parts import Part
from intarsia.io.source import BufferSource, ByteRange, Source, check_range
from intarsia.parquet.footer import framed, with_key_values
from intarsia.parquet.footer_cache import FOOTER_KEY
from intarsia.parquet.metadata import FileMetaData
from intarsia.parquet.page_header import num_values
from intarsia.parquet.thrift import amended, decode, encode
from intarsia.plan.plan import ScanPlan
from intarsia.row_ranges import RowRanges
from intarsia.scan.request import Request, without_rows
from intarsia.scan.scan import Part as ScanPart
from intarsia.scan.scan import scan
from intarsia.writer.defaults import INDEXED_PAGE_ROWS
from intarsia.writer.dictionary_choice import dictionary_settings
from intarsia.writer.parquet_writer import DEFAULTS


class ExtendedSource:
    """A source followed by bytes in memory."""

    def __init__(self, inner: Source, parts: Sequence[bytes | memoryview]) -> None:
        self._inner, self._parts = inner, list(parts)
        self._starts = [
            inner.size,
            *(inner.size + n for n in itertools.accumulate(map(len, parts))),
        ]

    @property
    def size(self) -> int:
        return self._starts[-1]

    def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        for range_ in ranges:
            check_range(range_, self.size)
        inner_size = self._inner.size
        heads = [
            (o, min(length, inner_size - o)) if o < inner_size else (0, 0) for o, length in ranges
        ]
        source_parts = self._inner.read([head for head in heads if head[1]])
        fetched = iter(source_parts)
        results = []
        for (offset, length), head in zip(ranges, heads, strict=True):
            pieces = [next(fetched)] if head[1] else []
            pieces += self._appended(offset + head[1], offset + length)
            results.append(pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)))
        return results

    def _appended(self, start: int, stop: int) -> list[memoryview]:
        pieces = []
        while start < stop:
            at = bisect.bisect_right(self._starts, start) - 1
            low, high = self._starts[at], self._starts[at + 1]
            pieces.append(memoryview(self._parts[at])[start - low : min(stop, high) - low])
            start = min(stop, high)
        return pieces


def sample_of(file: OpenedFile, groups: Sequence[int]) -> OpenedFile:
    """Returns the row groups of these numbers as a file without embedded indexes."""
    metadata, _ = decode(FileMetaData, file.footer)
    sampled_groups = [metadata.row_groups[group] for group in groups]
    rows = sum(group.num_rows for group in sampled_groups)
    raw = encode(amended(metadata, row_groups=sampled_groups, num_rows=rows))
    footer = framed(with_key_values(raw, {FOOTER_KEY: None}))
    return OpenedFile(ExtendedSource(file.source, [footer]), file.name, view=file.view.names)


def with_short_pages(file: OpenedFile, requests: Sequence[Request], num_rows: int) -> OpenedFile:
    """Returns the first ``num_rows`` rows of the filters' columns, written with short pages."""
    schema = file.schema_arrow
    names = {name for request in requests for name in request.filter_columns}
    request = request_of(schema, [name for name in schema.names if name in names], None)
    rows = RowRanges.of((0, min(num_rows, file.num_rows)))
    # A scan remembers pages, which estimates would count.
    anew = OpenedFile(file.source, file.name, view=file.view.names)
    tables = scan([ScanPart(partial(as_current_version, anew), {}, rows, ScanPlan(rows))], request)
    table = pa.concat_tables([without_rows(request.output), *tables])

    def written(**settings: Any) -> OpenedFile:
        sink = pa.BufferOutputStream()
        pq.write_table(
            table, sink, **{**DEFAULTS, "max_rows_per_page": INDEXED_PAGE_ROWS, **settings}
        )
        return OpenedFile(BufferSource(sink.getvalue()), file.name)

    return written(**dictionary_settings(table, written, INDEXED_PAGE_ROWS, {}))


def page_rows(file: OpenedFile, leaves: Collection[int]) -> int:
    """Returns the average rows of a page of these leaves in the first row group."""
    pages = [page for leaf in leaves for page in Chunk(file, 0, leaf).pages()]
    count = sum(num_values(page.header) is not None for page in pages)
    return round(file.num_rows_in(0) * len(leaves) / max(count, 1))


def indexed(file: OpenedFile, indexes: Sequence[IndexSpec], work: Workspace) -> OpenedFile:
    """Returns a sample with ``indexes``, which are in memory. Raises as ``add_indexes`` does."""
    parts: list[Part] = list(compose(file, indexes, (), work).parts)
    new = [part for part in parts if not isinstance(part, tuple)]
    return OpenedFile(ExtendedSource(file.source, new), file.name, view=file.view.names)
