"""Scanning one file: candidate rows, the filter's columns, the rows that match, the other columns.

The filter's columns of the candidate rows are read first and pyarrow evaluates the filter on them;
only then are the other columns read, and only at the rows that matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import FormatError, PredicateError, Where, unknown_column
from intarsia.format.schema import Root
from intarsia.predicate.expression import field_paths, read_expression
from intarsia.predicate.pruning import Maybe, Pruning, pruning_of
from intarsia.ranges import RowRanges
from intarsia.read.opened import OpenedFile
from intarsia.read.planner import Constants, plan_rows
from intarsia.read.projection import Projection, pruned_to_fields
from intarsia.read.rows import PageIndexMistrust, groups_of, read_rows

UNIT_ROWS = 1024 * 1024
"""Rows read and filtered at a time, unless one row group without page indexes is larger."""
_ROW = "__intarsia_row"


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter, what pruning knows of it, and the columns it needs; None where that is unknown."""

    expression: pc.Expression
    pruning: Pruning
    columns: tuple[str, ...] | None
    pruned: Projection = field(default_factory=dict)
    """Those of its columns that it needs in part only."""

    @classmethod
    def of(cls, expression: pc.Expression, schema: pa.Schema) -> Filter:
        """Check ``expression`` against ``schema``. Raises ``PredicateError``."""
        check_is_expression(expression)
        node = read_expression(expression)
        paths = field_paths(node)
        for path in paths or ():
            if path[0] not in schema.names:
                raise unknown_column(".".join(path), schema.names)
        columns = None if paths is None else tuple(dict.fromkeys(sorted(p[0] for p in paths)))
        # Some types are found not to compare only where there is a row, be it of NULLs.
        fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
        nulls = [pa.nulls(1, field.type) for field in fields] or [pa.nulls(1)]
        names = [field.name for field in fields] or [_ROW]
        evaluate(expression, pa.table(nulls, names))
        pruned = pruned_to_fields(schema, paths or ())
        return cls(expression, pruning_of(node), columns, pruned)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of every file: output columns and their types, and a filter.

    ``schema`` is the data set's; a file that lacks a column gives NULLs, one that has it in another
    type is cast.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    filter: Filter | None = None
    pruned: Projection = field(default_factory=dict)
    """Output columns that are wanted in part only."""

    @property
    def output(self) -> pa.Schema:
        return _schema_of(self.schema, self.columns, self.pruned)

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """Columns read to evaluate the filter."""
        if self.filter is None:
            return ()
        return tuple(self.schema.names) if self.filter.columns is None else self.filter.columns

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Output columns, then those only the filter needs."""
        return tuple(dict.fromkeys((*self.columns, *self.filter_columns)))

    @property
    def pruning(self) -> Pruning:
        return self.filter.pruning if self.filter else Maybe()


def check_is_expression(filter_: object) -> None:
    """Raise ``TypeError`` for text, tuples and whatever else a filter might be thought to be."""
    if filter_ is not None and not isinstance(filter_, pc.Expression):
        kind = type(filter_).__name__
        raise TypeError(f"a filter is an Expression, not {kind}; explain takes SQL text as well")


def evaluate(expression: pc.Expression, table: pa.Table) -> pa.Table:
    """The rows of ``table`` for which ``expression`` is true.

    Raises ``PredicateError`` where it cannot be evaluated: types that do not compare, say.
    """
    try:
        return table.filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError) as error:
        raise PredicateError(f"cannot evaluate {expression}: {error}") from error


def roots_of(
    file: OpenedFile, columns: Sequence[str], pruned: Projection | None = None
) -> list[Root]:
    """Those of ``columns`` that the file has, with the leaves that are wanted of them."""
    part = pruned or {}
    roots = (file.schema.root(name) for name in columns)
    return [
        part[root.name].root_in(file.schema, root) if root.name in part else root
        for root in roots
        if root is not None
    ]


def scan_file(
    file: OpenedFile,
    request: Request,
    constants: Constants,
    rows: RowRanges | None = None,
    planned: RowRanges | None = None,
) -> Iterator[pa.Table]:
    """The matching rows of one file, in file order, as tables of the requested columns.

    ``rows`` restricts the scan to these. ``planned`` are the candidates where they are known
    already, as ``plan_rows`` would find them; they are found again if pages belie the index they
    came from.
    """
    given = 0  # rows before this one have been given: another attempt goes on from there
    while True:
        trusted = file.distrusted
        try:
            candidates = planned
            if candidates is None:
                pruned = plan_rows(file, request.pruning, constants, request.schema)
                candidates = pruned.rows
            if rows is not None:
                candidates = candidates & rows
            for unit in _units(file, candidates.clip(given, max(file.num_rows, given)), request):
                table = _scan_unit(file, request, constants, unit)
                if file.distrusted != trusted:  # found by another scan of the same file
                    raise PageIndexMistrust
                given = int(unit.stops[-1])
                if table.num_rows:
                    yield table
            return
        except PageIndexMistrust:
            planned = None


def _scan_unit(
    file: OpenedFile, request: Request, constants: Constants, rows: RowRanges
) -> pa.Table:
    if request.filter is None:
        return read_columns(file, request.schema, request.columns, constants, rows, request.pruned)
    have = request.filter.pruned
    found = read_columns(file, request.schema, request.filter_columns, constants, rows, have)
    numbers = _ROW
    while numbers in found.column_names:
        numbers += "_"
    found = found.append_column(numbers, pa.array(rows.rows()))
    found = evaluate(request.filter.expression, found)
    matching = RowRanges.from_rows(found.column(numbers).to_numpy())
    kept = {n for n in request.filter_columns if have.get(n) == request.pruned.get(n)}
    rest = [name for name in dict.fromkeys(request.columns) if name not in kept]
    if not matching:
        return without_rows(request.output)
    other = read_columns(file, request.schema, rest, constants, matching, request.pruned)
    parts = [other.column(name) if name in rest else found.column(name) for name in request.columns]
    if not parts:
        return without_columns(matching.num_rows)
    return pa.Table.from_arrays(parts, schema=request.output)


def read_columns(
    file: OpenedFile,
    schema: pa.Schema,
    columns: Sequence[str],
    constants: Constants,
    rows: RowRanges,
    pruned: Projection,
) -> pa.Table:
    """``columns`` of ``file`` at ``rows``, in the types of ``schema``, some of them ``pruned``."""
    wanted = [name for name in columns if name not in constants]
    roots = roots_of(file, wanted, pruned)
    output = _schema_of(schema, columns, pruned)
    decoded = dict(zip((root.name for root in roots), read_rows(file, roots, rows), strict=True))
    arrays = [
        _typed(file, field, decoded.get(field.name), constants.get(field.name), rows.num_rows)
        for field in output
    ]
    if not arrays:
        return without_columns(rows.num_rows)
    return pa.Table.from_arrays(arrays, schema=output)


def _schema_of(schema: pa.Schema, columns: Sequence[str], pruned: Projection) -> pa.Schema:
    fields = [schema.field(name) for name in columns]
    return pa.schema([f.with_type(pruned[f.name].type) if f.name in pruned else f for f in fields])


def _typed(
    file: OpenedFile,
    field: pa.Field,
    values: pa.ChunkedArray | None,
    constant: pa.Scalar | None,
    count: int,
) -> pa.ChunkedArray:
    if constant is not None:
        return pa.chunked_array([pa.repeat(constant, count)])
    if values is None:
        return pa.chunked_array([pa.nulls(count, field.type)])
    if values.type == field.type:
        return values
    try:
        return values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        where = Where(file.name, column=field.name)
        message = f"{values.type} cannot be read as {field.type}: {error}"
        raise FormatError(message, where) from error


def without_columns(num_rows: int) -> pa.Table:
    """A table that has rows and no columns, as counting needs it."""
    return pa.table({_ROW: pa.nulls(num_rows)}).select([])


def without_rows(schema: pa.Schema) -> pa.Table:
    """A table of no rows; ``Schema.empty_table`` knows no extensions within structs or lists."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _units(file: OpenedFile, rows: RowRanges, request: Request) -> Iterator[RowRanges]:
    """``rows`` in portions of at most ``UNIT_ROWS``; row groups without page indexes stay whole."""
    pending: list[RowRanges] = []
    count = 0
    for group in groups_of(file, rows):
        start, stop = file.row_group_starts[group : group + 2].tolist()
        step = UNIT_ROWS if _is_paged(file, group, request) else stop - start
        for low in range(start, stop, step):
            part = rows.clip(low, min(low + step, stop))
            if pending and count + part.num_rows > UNIT_ROWS:
                yield RowRanges.union(pending)
                pending, count = [], 0
            if part:
                pending.append(part)
                count += part.num_rows
    if pending:
        yield RowRanges.union(pending)


def _is_paged(file: OpenedFile, group: int, request: Request) -> bool:
    """Can every column be read in parts of this row group?"""
    num_rows = int(file.row_group_starts[group + 1] - file.row_group_starts[group])
    if num_rows <= UNIT_ROWS:
        return False
    leaves = [leaf for root in roots_of(file, request.all_columns) for leaf in root.leaves]
    file.load_page_indexes([(group, leaf) for leaf in leaves], [])
    return all(file.offset_index(group, leaf) is not None for leaf in leaves)
