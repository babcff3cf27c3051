"""Compares the rows of pyarrow's own scans with the numbers of rows in the footers.

pyarrow's reader may stop early within a column chunk, without an error: see
``decode.empty_pages``. It reads a row group at a time, and raises an error if its columns get
different numbers of rows. If all columns get the same number, only the footer shows that rows lack.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.request_builder import Columns, expressions_of, paths_of
from intarsia.dataset.scan_source import ScanSource
from intarsia.errors import FormatError, Where
from intarsia.expr.nested_types import Path, type_at
from intarsia.expr.tree import field_paths, read_expression

MAX_HELD_FILE_BYTES = 16 * 1024 * 1024
"""Rows of larger files are passed on before pyarrow has read the whole file, to save memory."""

FAILURES = (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""The errors that pyarrow raises if it cannot read a file."""


def num_rows(fragments: Iterable[pads.ParquetFileFragment]) -> int:
    """Returns the rows of ``fragments`` by their footers, which a scan has left in memory."""
    return sum(fragment.metadata.num_rows for fragment in fragments)


def shortage(count: int, fragments: Iterable[pads.ParquetFileFragment]) -> FormatError | None:
    """Returns the error for a scan of ``count`` rows if the footers have more, else None."""
    files = list(fragments)
    expected = num_rows(files)
    if count >= expected:
        return None
    return FormatError(
        f"pyarrow's reader gave {count:,} of {expected:,} rows, as it does at pages without "
        "values; to_table, without __batch_index and the like, reads past them",
        Where(files[0].path if len(files) == 1 else f"one of {len(files):,} files"),
    )


def completed(
    batches: Iterable[pa.RecordBatch],
    fragments: Callable[[], Iterable[pads.ParquetFileFragment]],
    rest: Callable[[int], Iterable[pa.RecordBatch] | None],
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of pyarrow's scan of ``fragments``, and the rows that it leaves out.

    If the scan fails or ends early, ``rest`` gets the number of rows so far, and gives those after
    them. If it gives None, the error is raised: ``FormatError`` if the scan ended early.
    """
    given = 0
    error: Exception | None
    try:
        for batch in batches:
            given += batch.num_rows
            yield batch
        error = shortage(given, fragments())
    except FAILURES as failure:
        error = failure
    if error is None:
        return
    left = rest(given)
    if left is None:
        raise error
    yield from left


def completed_scan(
    source: ScanSource,
    scanner: pads.Scanner,
    columns: Columns,
    get_fragments: Callable[[], Iterable[pads.ParquetFileFragment]],
    rest: Callable[[int], Iterable[pa.RecordBatch] | None],
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of pyarrow's scanner of ``columns``, and the rows that it leaves out.

    ``rest`` is as for ``completed``. It is called only if the rows before are known to be right.
    """

    def rest_if_complete(given: int) -> Iterable[pa.RecordBatch] | None:
        fragments = get_fragments()
        is_complete = not given or begins_complete(fragments, source.schema, columns, given)
        return rest(given) if is_complete else None

    if may_miss_rows(source, columns) and fits_in_memory(source):
        whole = of_whole_files(scanner.scan_batches(), get_fragments())
        yield from completed(whole, get_fragments, rest)
    else:
        yield from completed(scanner.to_batches(), get_fragments, rest_if_complete)


def fits_in_memory(source: ScanSource) -> bool:
    """True if files are local and small enough to keep one in memory, and none is there twice."""
    paths = [file.path for file in source.files]
    if not source.cache.is_local or len(set(paths)) < len(paths):
        return False
    sizes = (info.size or 0 for info in source.filesystem.get_file_info(paths))
    return max(sizes, default=0) <= MAX_HELD_FILE_BYTES


@contextlib.contextmanager
def naming_damage(
    scan_by_page: Callable[[], tuple[pa.Schema, Iterable[pa.Table]] | None],
) -> Iterator[None]:
    """Runs a scan by pyarrow. If it fails, ``scan_by_page`` reads all rows and names the damage."""
    try:
        yield
    except FAILURES:
        scan = scan_by_page()
        for _ in scan[1] if scan else ():
            pass
        raise


def of_whole_files(
    batches: Iterable[pads.TaggedRecordBatch], fragments: Iterable[pads.ParquetFileFragment]
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of pyarrow's scan up to the first file that lacks rows.

    Keeps the batches of a file until it has all of its rows. No file is there twice.
    """
    by_file = groupby(batches, lambda one: one.fragment.path)
    for fragment, (path, tagged) in zip(fragments, by_file, strict=False):
        file_batches = [one.record_batch for one in tagged]
        given = sum(batch.num_rows for batch in file_batches)
        if path != fragment.path or given != fragment.metadata.num_rows:
            return
        yield from file_batches


def begins_complete(
    fragments: Iterable[pads.ParquetFileFragment], schema: pa.Schema, columns: Columns, count: int
) -> bool:
    """True if the first ``count`` rows that pyarrow gives are the first rows of ``fragments``.

    Reads their row groups once more, one at a time. pyarrow leaves out the last rows of a row
    group.
    """
    for fragment in fragments:
        if count <= 0:
            return True
        try:
            groups = fragment.row_groups
        except FAILURES:
            return False  # pyarrow gives no rows of such a file
        for group in groups:
            if count <= 0:
                return True
            alone = fragment.subset(row_group_ids=[group.id])
            try:
                num_read = alone.to_table(schema=schema, columns=columns).num_rows
            except FAILURES:
                return False  # pyarrow gives no rows of such a row group
            if num_read != group.num_rows:
                return bool(count == num_read)
            count -= group.num_rows
    return count <= 0


def has_repetition(kind: pa.DataType) -> bool:
    """True if a type is, or contains, a list or a map."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_repetition(kind.storage_type)
    if pa.types.is_struct(kind):
        return any(has_repetition(field.type) for field in kind)
    return bool(pa.types.is_nested(kind) and kind.num_fields)


def reads_repetition(schema: pa.Schema, columns: Columns) -> bool:
    """True if a scan of ``columns`` reads lists or maps."""
    return any(map(has_repetition, _types_read(schema, columns)))


def may_miss_rows(source: ScanSource, columns: Columns) -> bool:
    """True if pyarrow may leave out rows of ``columns`` without an error: if all are lists or maps.

    Only these are known to have pages without values. A column without repetition has all rows, so
    pyarrow notices if another one has fewer. Columns of folders are in no file and do not count.
    """
    constants = frozenset(name for file in source.files for name in file.constants)
    types = _types_read(source.schema, columns, constants)
    return bool(types) and all(map(has_repetition, types))


def _types_read(
    schema: pa.Schema, columns: Columns, constants: frozenset[str] = frozenset()
) -> list[pa.DataType]:
    paths = _paths_read(schema, columns)
    types = (type_at(schema, path) for path in paths if path[0] not in constants)
    return [kind for kind in types if kind is not None]


def _paths_read(schema: pa.Schema, columns: Columns) -> Sequence[Path]:
    if not isinstance(columns, dict):
        return paths_of(schema, schema.names if columns is None else columns)
    used = [field_paths(read_expression(expression)) for expression in expressions_of(columns)]
    if any(paths is None for paths in used):
        return [(name,) for name in schema.names]
    return sorted({path for paths in used for path in paths or ()})
