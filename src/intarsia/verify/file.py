"""``verify``: checks whole files, from the first byte to the last."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from intarsia.catalog.catalog import catalog_root
from intarsia.deadline import time_limited
from intarsia.decode.synthetic_footer import ARROW_SCHEMA
from intarsia.errors import FormatError, PathError, Where, placed, public, quiet
from intarsia.file.chunk_reader import Chunk
from intarsia.file.file_footer import ColumnTypes
from intarsia.file.health import able_to_have, missing_in
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars, places_of
from intarsia.index.directory import IndexEntry, page_index_places, verify_footer
from intarsia.io.storage import PathLike
from intarsia.parquet.compact_protocol import spans
from intarsia.parquet.footer import MAGIC
from intarsia.scan.parquet_file import open_file
from intarsia.scan.small_chunks import chunks_of
from intarsia.tables.data_files import TableFormatOption, data_files
from intarsia.verify.catalog import check_catalog
from intarsia.verify.chunk_metadata import check_claims
from intarsia.verify.finding import Finding, error, finding_of, note, warning
from intarsia.verify.indexes import check_sections
from intarsia.verify.layout import overlapping
from intarsia.verify.pages import PageChecks
from intarsia.verify.sort_order import StatedOrder

Progress = Callable[[str, int, int], None]
"""Called with a file's path, how many files are done, and how many there are."""


_MAX_ORDINALS = 1 << 15
"""Row groups that can have an ordinal: the field has 16 bits, one of them for the sign."""


@public
@time_limited("verifying")
def verify(
    path: PathLike | Sequence[PathLike],
    *,
    filesystem: Any = None,
    sidecar: PathLike | None = None,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
    timeout: float | None = None,
    memory_limit: int | str | None = None,
) -> list[Finding]:
    """Checks every Parquet file under ``path``, reading all of it.

    Checks the header, the footer, and every page's header and checksum. Compares offset indexes
    with the pages. Compares column indexes, statistics, bloom filters, the stated order of rows
    and embedded indexes with the decoded values. Compares the catalog of a folder with its files.

    Parameters
    ----------
    path : path-like or sequence of path-like
        A file, a folder, a glob or a URI, or several of them.
    filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        The file system that has the files. By default the local one, or the one of the URI.
    sidecar : path-like, optional
        The folder of sidecars. By default they are looked for beside their files.
    progress : callable, optional
        Called as ``progress(path, files_done, files)`` before each file and at the end.
    table_format : str, default "auto"
        How to treat a folder managed by a table format, as for ``intarsia.dataset``.
    timeout : float, optional
        Seconds after which to give up.
    memory_limit : int or str, optional
        The most memory to take, in bytes or as in ``"2GB"``.

    Returns
    -------
    list of Finding
        Empty if all is well. A file that is not Parquet, or cannot be opened, is a finding too.
        The findings of a file come in the order of its bytes. At the end, ``Severity.NOTE``
        findings list files that lack an index that others have, followed by those of the catalog.

    Raises
    ------
    PathError
        If there is no file.
    QueryTimeoutError
        After ``timeout`` seconds.
    OutOfMemoryError
        If a page does not fit into ``memory_limit``.

    Examples
    --------
    >>> ia.verify("logs.parquet")
    []
    >>> reports = ia.add_indexes("lake/service=api/0.parquet", ["trace_id:lookup"])
    >>> print(ia.verify("lake")[0].severity.name)
    NOTE
    """
    resolved, files = data_files(path, filesystem, table_format)
    places = places_of(resolved, sidecar)
    opened: dict[str, _Indexed] = {}
    findings: list[Finding] = []
    for done, file in enumerate(files):
        if progress:
            progress(file, done, len(files))
        with quiet():  # the checks report the same problems
            findings += _of_file(file, resolved, places, opened)
    findings += _missing(opened)
    root = catalog_root(resolved, path, files)
    if root is not None:
        findings += check_catalog(resolved, root)
    if progress and files:
        progress(files[-1], len(files), len(files))
    return findings


class _Indexed(NamedTuple):
    """The column types of a file, and its indexes by their names."""

    columns: ColumnTypes
    indexes: dict[str, IndexEntry]


def _missing(opened: Mapping[str, _Indexed]) -> Iterator[Finding]:
    """Yields the files that lack an index that others have."""
    known = {name: entry for file in opened.values() for name, entry in file.indexes.items()}
    names = {path: frozenset(file.indexes) for path, file in opened.items()}
    for name, paths in missing_in(names).items():
        lacking = able_to_have(known[name], {path: opened[path].columns for path in paths})
        has = len(opened) - len(paths)
        message = f"it has no index {name}, which {has:,} of the {has + len(lacking):,} files have"
        yield from (note(Where(path), message) for path in lacking)


def _of_file(
    path: str, filesystem: Any, places: Sidecars, opened: dict[str, _Indexed]
) -> Iterator[Finding]:
    """Yields what is wrong with a file, and adds its indexes to ``opened``."""
    try:
        with placed(Where(path)):
            file = open_file(path, filesystem, sidecar=places)
            yield from findings_of(file)
        indexes = {entry.name: entry for entry in file.sections.entries}
        opened[path] = _Indexed(file.columns, indexes)
    except FormatError as problem:
        yield finding_of(problem, Where(path))
    except PathError as problem:
        yield error(Where(path), str(problem).removeprefix(f"{path}: "))


def findings_of(file: OpenedFile) -> Iterator[Finding]:
    """Yields what is wrong with an opened file."""
    try:
        yield from _of_frame(file)
        yield from _of_ordinals(file)
        yield from _of_checksums(file)
    except FormatError as problem:
        yield finding_of(problem, Where(file.name))
    overlaps = overlapping(file)
    yield from overlaps.values()
    rows = StatedOrder(file)
    groups, leaves = range(len(file.metadata.row_groups)), range(len(file.schema.leaves))
    ids = itertools.product(groups, leaves)
    chunks = chunks_of(file, ((id_, True) for id_ in ids if id_ not in overlaps))
    for group in groups:
        rows.begin(group)
        for leaf in leaves:
            if (group, leaf) not in overlaps:
                yield from _of_chunk(file, group, leaf, next(chunks), rows)
        yield from rows.findings()
    if not overlaps:
        yield from check_sections(file)
    elif file.sections.entries:
        yield warning(Where(file.name), "its indexes are not checked, as chunks share bytes")


def _of_frame(file: OpenedFile) -> Iterator[Finding]:
    """Checks the magic, the row count, and the footer's fields outside of row groups."""
    where, metadata = Where(file.name), file.metadata
    if bytes(file.source.read([(0, len(MAGIC))])[0]) != MAGIC:
        yield error(Where(file.name, offset=0), "the file does not begin with PAR1")
    if metadata.num_rows != file.num_rows:
        claim = f"the footer says {metadata.num_rows:,} rows, its row groups {file.num_rows:,}"
        yield error(where, claim)
    _, length = spans(file.footer)
    if length < len(file.footer) and metadata.encryption_algorithm is None:
        yield warning(where, f"{len(file.footer) - length:,} bytes follow the footer's last field")
    if metadata.key_value(ARROW_SCHEMA) and not file.templates.has_stored_schema:
        yield error(where, f"{ARROW_SCHEMA} cannot be decoded: readers of Arrow's refuse the file")
    if metadata.column_orders and len(metadata.column_orders) != len(file.schema.leaves):
        claim = f"{len(metadata.column_orders)} column orders for {len(file.schema.leaves)} columns"
        yield error(where, claim)


def _of_ordinals(file: OpenedFile) -> Iterator[Finding]:
    """Checks that row groups are numbered from 0 on, or not numbered at all."""
    ordinals = [group.ordinal for group in file.metadata.row_groups]
    if all(ordinal is None for ordinal in ordinals):
        return
    for group, ordinal in enumerate(ordinals):
        if ordinal != group and group < _MAX_ORDINALS:
            fault = "it has no ordinal" if ordinal is None else f"its ordinal is {ordinal}"
            yield warning(Where(file.name, group), f"{fault}; some readers refuse the file")


def _of_checksums(file: OpenedFile) -> Iterator[Finding]:
    """Checks the checksums of the page indexes. Raises ``FormatError`` if the footer's is wrong."""
    if file.directory is None:
        return  # there is none, or a stale one, which ``check_sections`` reports
    checksums = verify_footer(file.metadata, file.footer, file.source, file.footer_offset)
    places = page_index_places(file.metadata)
    if checksums is None or len(checksums.page_indexes) != len(places):
        return
    parts = file.source.read([place for _, place in places])
    for (name, place), crc32, data in zip(places, checksums.page_indexes, parts, strict=True):
        if zlib.crc32(data) != crc32:
            group, leaf, kind = name
            where = Where(file.name, group, file.schema.leaves[leaf].name, offset=place[0])
            yield error(where, f"{kind.replace('_', ' ')}: it does not match its checksum")


def _of_chunk(
    file: OpenedFile, group: int, leaf: int, chunk: Chunk | FormatError, rows: StatedOrder
) -> Iterator[Finding]:
    column = file.schema.leaves[leaf]
    if isinstance(chunk, FormatError):
        yield finding_of(chunk, Where(file.name, group, column.name))
        return
    if chunk.metadata.type != column.element.type:
        claim = f"chunk of type {chunk.metadata.type} in a column of type {column.element.type}"
        yield error(chunk.where, claim)
        return
    if tuple(chunk.metadata.path_in_schema) != column.path:
        claim = f"the chunk is of column {'.'.join(chunk.metadata.path_in_schema)!r}"
        yield error(chunk.where, claim)
    with placed(chunk.where):
        checks = PageChecks(chunk)
        yield from checks.findings
        if checks.facts is not None:
            yield from check_claims(checks.facts)
            rows.add(checks.facts)
