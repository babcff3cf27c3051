"""Builds the request of a scan from its columns, computed columns included, and its filter."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError, check_is_list, unknown_column
from intarsia.expr.comparison_constants import with_comparable_constants
from intarsia.expr.evaluate import compute_columns, needs_evaluation
from intarsia.expr.filterable_types import filterable_schema, filterable_type, restorer_of
from intarsia.expr.nested_types import type_at
from intarsia.expr.tree import FieldRef, field_paths, read_expression, shown, to_expression
from intarsia.scan.nested_projection import check_paths, pruned_to_fields
from intarsia.scan.request import (
    FILENAME,
    PSEUDO_COLUMNS,
    ROW_NUMBER,
    Filter,
    Request,
    pruned_schema,
)

_SCANNER_COLUMNS = ("__fragment_index", "__batch_index", "__last_in_fragment")
"""Columns that only pyarrow's scanner has, besides the name of the file."""

_MIN_WIDE_COLUMNS = 64
"""From this number of columns, a scan of few of them does not look at the others' types."""

Columns = Sequence[str] | dict[str, pc.Expression] | None
"""Names of columns or dotted paths of structs' fields; Expressions by name; or None for all."""


class ScanRequest(NamedTuple):
    """A request, and the function that makes the result's columns from those of the request."""

    request: Request
    project: Callable[[pa.Table], pa.Table]


def used_columns(
    schema: pa.Schema,
    columns: Columns,
    filter_: pc.Expression | None,
    files: Iterable[Mapping[str, Any]],
) -> pa.Schema:
    """Returns a wide schema without columns that a scan does not use.

    ``files`` have the partition values of each file, which are compared with stored columns.
    Returns ``schema`` if it is not wide, or if the used columns are not known by their names.
    """
    is_wide = len(schema) >= _MIN_WIDE_COLUMNS
    if (
        not is_wide
        or not isinstance(columns, list | tuple)
        or not all(isinstance(name, str) for name in columns)
    ):
        return schema
    paths = set() if filter_ is None else field_paths(read_expression(filter_))
    if paths is None:
        return schema
    constants = {name for constants in files for name in constants}
    names = {*columns, *(path[0] for path in paths), *constants}
    positions = [schema.get_all_field_indices(name) for name in names]
    if not all(positions):
        return schema
    fields = [schema.field(number) for number in sorted(itertools.chain(*positions))]
    return pa.schema(fields, schema.metadata)


def scan_request(schema: pa.Schema, columns: Columns, filter_: pc.Expression | None) -> ScanRequest:
    """Returns the request of a scan, whose ``columns`` passed ``check_columns``.

    A dotted path gives a column named after its last part, as in ``pyarrow.dataset``.
    """
    if isinstance(columns, dict):
        computed = {
            name: to_expression(with_comparable_constants(read_expression(expression), schema))
            for name, expression in columns.items()
        }
        restore = restorer_of(_schema_of_plain_columns(computed, schema))
        request = computed_request(schema, computed, filter_)
        return ScanRequest(request, lambda table: restore(compute_columns(computed, table)))
    names = list(schema.names if columns is None else columns)
    paths = paths_of(schema, names)
    if max(map(len, paths), default=1) == 1:
        return ScanRequest(request_of(schema, names, filter_), restorer_of(schema))
    roots = list(dict.fromkeys(path[0] for path in paths))
    request_of_roots = request_of(schema, roots, filter_)
    request = replace(request_of_roots, pruned=pruned_to_fields(request_of_roots.schema, paths))
    for field in request_of_roots.schema:
        if field.name not in schema.names:
            schema = schema.append(field)
    own = pruned_schema(schema, roots, pruned_to_fields(schema, paths))
    restore = restorer_of(own.with_metadata(schema.metadata))
    return ScanRequest(request, lambda table: fields_at(paths, own, restore(table)))


def _schema_of_plain_columns(columns: Mapping[str, pc.Expression], schema: pa.Schema) -> pa.Schema:
    """Returns the ``columns`` that are columns or fields of ``schema``, with their types in it."""
    fields = []
    for name, expression in columns.items():
        node = read_expression(expression)
        kind = type_at(schema, node.path) if isinstance(node, FieldRef) else None
        if kind is not None:
            fields.append(pa.field(name, kind))
    return pa.schema(fields, schema.metadata)


def fields_at(paths: Sequence[tuple[str, ...]], schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Returns each of ``paths`` as a column. A field of a NULL struct is NULL."""
    columns, fields = [], []
    for name, *rest in paths:
        values, field = table.column(name), schema.field(name)
        for step in rest:
            field = field.type.field(step)
        columns.append(pc.struct_field(values, rest) if rest else values)
        fields.append(field)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def paths_of(schema: pa.Schema, names: Iterable[str]) -> list[tuple[str, ...]]:
    """Returns the path of each of ``names``: of a column, or of a field of a struct.

    For an unknown name, the path is the name alone.
    """
    columns = set(schema.names)
    return [(name,) if name in columns else _path_in(schema, name) or (name,) for name in names]


def _path_in(fields: Iterable[pa.Field], name: str) -> tuple[str, ...] | None:
    for field in fields:
        if field.name == name:
            return (name,) if [f.name for f in fields].count(name) == 1 else None
        if name.startswith(f"{field.name}.") and pa.types.is_struct(field.type):
            rest = _path_in(field.type, name[len(field.name) + 1 :])
            if rest is not None:
                return (field.name, *rest)
    return None


def request_of(schema: pa.Schema, columns: Sequence[str], filter_: pc.Expression | None) -> Request:
    """Returns a request for ``columns``, which ``schema`` or ``PSEUDO_COLUMNS`` has."""
    condition = None if filter_ is None else Filter.of(filter_, schema)
    schema = schema if condition is None else condition.schema
    for field in PSEUDO_COLUMNS:
        if field.name in columns and field.name not in schema.names:
            schema = schema.append(field)
    return Request(schema, tuple(columns), condition)


def computed_request(
    schema: pa.Schema, columns: dict[str, pc.Expression], filter_: pc.Expression | None
) -> Request:
    """Returns a request for the inputs of ``columns``; for one column if there are none."""
    needed: set[tuple[str, ...]] = set()
    for expression in columns.values():
        paths = field_paths(read_expression(expression))
        needed |= {(name,) for name in schema.names} if paths is None else paths
    names = list(dict.fromkeys(path[0] for path in sorted(needed)))
    check_columns(schema, names)
    request = request_of(schema, names or schema.names[:1], filter_)
    request = replace(request, schema=filterable_schema(request.schema))
    check_paths(request.schema, sorted(needed))
    return replace(request, pruned=pruned_to_fields(request.schema, needed))


def check_columns(schema: pa.Schema, columns: Columns) -> None:
    """Raises ``PredicateError`` for a name that is no column.

    Raises ``TypeError`` for names that are no list of strings, and for columns that are computed by
    anything but an Expression.
    """
    check_is_list(columns=columns)
    if isinstance(columns, dict):
        for name, expression in columns.items():
            if not isinstance(expression, pc.Expression):
                kind = type(expression).__name__
                hint = f": pc.field({expression!r}) is one" if kind == "str" else ""
                raise TypeError(
                    f"column {name!r} is computed by an Expression, not by a {kind}{hint}"
                )
        return
    known = {*schema.names, *PSEUDO_COLUMNS.names, *_SCANNER_COLUMNS}
    for name in columns or ():
        if not isinstance(name, str):
            raise TypeError(f"columns are named by strings, not by {name!r}")
    others = [name for name in columns or () if name not in known]
    for name, path in zip(others, paths_of(schema, others), strict=True):
        if len(path) == 1:
            check_paths(schema, [tuple(name.split("."))])
            raise unknown_column(name, schema.names)


def uses_scanner_columns(columns: Any, schema: pa.Schema) -> bool:
    """True if ``columns`` use a column that only pyarrow's scanner has, and the schema has not."""
    if isinstance(columns, dict):
        paths = [field_paths(read_expression(expression)) for expression in columns.values()]
        used = {path[0] for scanner_columns in paths for path in scanner_columns or ()}
    else:
        used = {*(columns or ())}
    scanner_columns = used.intersection(_SCANNER_COLUMNS)
    return bool(scanner_columns) and not scanner_columns.issubset(schema.names)


def needs_page_reader(columns: Columns, schema: pa.Schema) -> bool:
    """True if pyarrow cannot give ``columns``: row numbers, or what it has no functions for."""
    return (
        ROW_NUMBER in (columns or ())
        or any(map(needs_evaluation, expressions_of(columns)))
        or computes_with_other_types(columns, schema)
    )


def confuses_pyarrow(schema: pa.Schema) -> bool:
    """True if a column has the name of one that pyarrow's scanners add."""
    return any(schema.get_all_field_indices(name) for name in (FILENAME, *_SCANNER_COLUMNS))


def check_scanner_columns(
    columns: Columns, filter_: pc.Expression | None, obstacle: str | None
) -> None:
    """Raises ``PredicateError`` for an Expression that pyarrow's scanner cannot evaluate.

    Raises it also if there is an ``obstacle``: something that pyarrow's scanner does not know.
    """
    if obstacle is not None:
        raise PredicateError(f"{obstacle} does not go with {', '.join(_SCANNER_COLUMNS)}")
    for expression in [*expressions_of(columns), *([] if filter_ is None else [filter_])]:
        if needs_evaluation(expression):
            raise PredicateError(
                f"{shown(expression)} does not go with {', '.join(_SCANNER_COLUMNS)}"
            )


def computes_with_other_types(columns: Columns, schema: pa.Schema) -> bool:
    """True if a column is computed from values of a type that pyarrow has no functions for."""
    for expression in expressions_of(columns):
        node = read_expression(expression)
        paths = set() if isinstance(node, FieldRef) else field_paths(node)
        names = schema.names if paths is None else {path[0] for path in paths}
        known = [field for field in schema if field.name in names]
        if any(filterable_type(field.type) != field.type for field in known):
            return True
    return False


def expressions_of(columns: Columns) -> list[pc.Expression]:
    """Returns the Expressions of computed columns."""
    return list(columns.values()) if isinstance(columns, dict) else []
