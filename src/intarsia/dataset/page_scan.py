"""Scans by our own reader, which skips pages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.request_builder import (
    Columns,
    computes_with_other_types,
    expressions_of,
    request_of,
)
from intarsia.dataset.row_count_check import num_rows
from intarsia.dataset.row_numbers import parts_at
from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.evaluate import needs_evaluation
from intarsia.row_ranges import RowRanges
from intarsia.scan.request import ROW_NUMBER, Request
from intarsia.scan.scan import Part, scan


def needs_page_reader(columns: Columns, schema: pa.Schema) -> bool:
    """True if pyarrow cannot give ``columns``: row numbers, or what it has no functions for."""
    return (
        ROW_NUMBER in (columns or ())
        or any(map(needs_evaluation, expressions_of(columns)))
        or computes_with_other_types(columns, schema)
    )


def scan_pages(
    source: ScanSource,
    request: Request,
    project: Callable[[pa.Table], pa.Table],
    *,
    parts: Iterable[Part] | None = None,
    limit: int | None = None,
    use_threads: bool = True,
) -> Generator[pa.Table]:
    """Returns the matching rows as tables, each changed by ``project``.

    By default ``parts`` are all files in which rows may match. After the last table, what was
    noticed about the files is warned of.
    """
    if source.cache.is_profiled:
        source.cache.requests.append(request)
    tables = scan(
        source.parts(request, use_threads=use_threads) if parts is None else parts,
        request,
        limit=limit,
        use_threads=use_threads,
        is_far=not source.cache.is_local,
    )
    return _then(tables, project, source.cache.health.tell)


def parts_from(
    source: ScanSource,
    first_row: int,
    fragments: Iterable[pads.ParquetFileFragment],
    *,
    use_threads: bool,
) -> Iterator[Part]:
    """Returns the parts of a scan of all rows from ``first_row`` on, counted over all files.

    ``fragments`` are pyarrow's; it has read their footers if ``first_row`` is not 0.
    """
    if not first_row:
        return source.parts(request_of(source.schema, [], None), use_threads=use_threads)
    total = num_rows(fragments)
    rows = RowRanges.all(total).clip(first_row, total)
    return (part for _, part in parts_at(source.cache, source.files, rows))


def _then(
    tables: Generator[pa.Table], change: Callable[[pa.Table], pa.Table], action: Callable[[], None]
) -> Generator[pa.Table]:
    """Yields each of ``tables``, changed; calls ``action`` once all of them were taken."""
    with contextlib.closing(tables):  # at once, where a change fails
        yield from map(change, tables)
    action()
