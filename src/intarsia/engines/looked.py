"""Rows of which DuckDB alone can tell that they are wanted, found before all columns are read.

DuckDB is given the columns of the WHERE, and where each row is; of the others, only the pages that
hold one of the rows it names are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from intarsia.data.asked import request_of
from intarsia.data.cache import FileCache
from intarsia.data.hand_over import HandOver
from intarsia.data.survey import File, each_of, unopened_left
from intarsia.engines.duckdb_files import with_files
from intarsia.engines.session import asking_first
from intarsia.engines.watched import WatchedDataset
from intarsia.errors import IntarsiaError, PathError
from intarsia.predicate.look import LOOKED_AT, FirstLook
from intarsia.predicate.parameters import Parameters, mentioned
from intarsia.ranges import RowRanges
from intarsia.read.opened import Lease, OpenedFile, lease_of
from intarsia.read.projection import root_of_type
from intarsia.read.request import ROW_NUMBER
from intarsia.read.scan import Part

if TYPE_CHECKING:
    import duckdb

_FILE = "__intarsia_file"
_MOST_FILES = 100
"""More are not opened beforehand, nor kept open."""
_LEAST_ROWS = 64 * 1024
"""Fewer than these are soon read as a whole."""
_SHARE = 20
"""One row in so many is found, at most: with more, hardly a page is passed over."""
_TIMES = 3
"""So many times the bytes of the columns that are looked at first, others take at least."""


def rows_found(
    connection: duckdb.DuckDBPyConnection,
    table: WatchedDataset,
    look: FirstLook,
    used: Sequence[str],
    parameters: Parameters,
    handed: Mapping[str, HandOver],
) -> WatchedDataset | None:
    """The rows of ``table`` for which the WHERE of a query holds that uses columns ``used``.

    All other tables of the query are registered, or ``handed`` over. Returns None where that might
    not pay, or a file cannot be opened, of which the query will tell. Raises ``NotAnsweredError``.
    """
    names = {name.lower() for name in table.schema.names}
    if {_FILE, ROW_NUMBER} & names or table._cache.options.looks_for_damage:
        return None
    cache, request = table._cache, request_of(table.schema, [], table._wanted(None))
    left = list(unopened_left(cache, table._files, request))
    if not 0 < len(left) <= _MOST_FILES:
        return None
    try:
        files = list(each_of(cache, (partial(cache.get, file.path) for file in left)))
        asked = table.of_fields(look.paths)
        most = _most_rows(table, asked, files, look, used)
        if not most:
            return None
        found = _asked(connection, _numbered(asked, left), look, parameters, handed, most)
        if found.num_rows > most:
            return None
        now = cache.get if cache.is_local else cache.as_opened  # the scan will ask what is far
        numbers = found.column(0).unique().to_pylist()
        if any(now(left[number].path) is not files[number] for number in numbers):
            return None  # another file is at the path
    except (IntarsiaError, OSError):
        return None
    return table.at(list(_parts(cache, left, files, found)))


def _most_rows(
    table: WatchedDataset,
    asked: WatchedDataset,
    files: Sequence[OpenedFile],
    look: FirstLook,
    used: Sequence[str],
) -> int:
    """How many rows may be found for it to pay, of what is ``asked`` of a data set first; 0 where
    it hardly ever does.
    """

    def size_of(data: WatchedDataset, names: Iterable[str]) -> int:
        fields = map(data.schema.field, names)
        return sum(_size(file, field) for field in fields for file in files)

    first = size_of(asked, {path[0] for path in look.paths}.intersection(used))
    others = size_of(table, used) - first
    if not others or others < _TIMES * first:
        return 0
    rows = table.plan_of_left([], None).figures.rows.selected
    return rows // _SHARE if rows >= _LEAST_ROWS else 0


def _size(file: OpenedFile, field: pa.Field) -> int:
    """Bytes that what is wanted of a column takes in a file's first row group."""
    root = file.schema.root(field.name)
    if root is None or not root.all_leaves or not file.metadata.row_groups:
        return 0
    leaves = root_of_type(file, root, field.type).leaves
    return sum(one.total_compressed_size for one in file.outlines(0, leaves))


def _asked(
    connection: duckdb.DuckDBPyConnection,
    table: WatchedDataset,
    look: FirstLook,
    parameters: Parameters,
    handed: Mapping[str, HandOver],
    most: int,
) -> pa.Table:
    """Where rows are that are found, more than ``most`` where there are: numbers of files, and of
    rows in these.
    """
    limit = most + 1 if look.limit is None else min(look.limit, most + 1)
    connection.register(look.name, table)
    query = f"{look.asked(f'{_FILE}, {ROW_NUMBER}')} LIMIT {limit}"
    given = mentioned(query, parameters, LOOKED_AT) if parameters else None
    with asking_first():
        answer = connection.sql(with_files(query, handed), params=given or None)
        return answer.to_arrow_table()


def _numbered(table: WatchedDataset, files: Sequence[File]) -> WatchedDataset:
    """The rows of ``files`` in ``table``, with columns of where each is."""
    numbers = [pa.field(_FILE, pa.int32()), pa.field(ROW_NUMBER, pa.int64())]
    made = table.read_as(pa.schema([*table.schema, *numbers]))  # which pyarrow knows nothing of
    made._files = [
        File(file.path, {**file.constants, _FILE: pa.scalar(number, pa.int32())})
        for number, file in enumerate(files)
    ]
    return made


def _parts(
    cache: FileCache, files: Sequence[File], opened: Sequence[OpenedFile], found: pa.Table
) -> Iterator[Part]:
    """What ``_asked`` found, as parts of a scan."""
    numbers, rows = (column.to_numpy() for column in found.columns)
    for number in np.unique(numbers):
        wanted = RowRanges.from_rows(np.sort(rows[numbers == number]))
        get = partial(_lease_of, cache, files[number].path, opened[number])
        yield Part(get, files[number].constants, wanted)


def _lease_of(cache: FileCache, path: str, file: OpenedFile) -> Lease:
    """The file that rows were found in. Raises ``PathError`` where it is not there any more."""
    if cache.is_local:  # it is open, and stays what it is
        return lease_of(file)
    lease = cache.lease(path)
    if lease.file is not file:
        raise PathError(f"{path}: another file took its place while it was read")
    return lease
