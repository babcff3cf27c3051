"""Making a request of what a data set is asked: columns, computed ones among them, and a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.errors import PredicateError, check_several, unknown_column
from intarsia.expr.comparison_constants import with_comparable_constants
from intarsia.expr.evaluate import compute_columns, needs_evaluation
from intarsia.expr.filterable_types import filterable_schema, filterable_type, restorer_of
from intarsia.expr.nested_types import type_at
from intarsia.expr.tree import FieldRef, field_paths, read_expression, shown
from intarsia.scan.nested_projection import check_paths, pruned_to_fields
from intarsia.scan.request import FILENAME, PSEUDO_COLUMNS, Filter, Request, pruned_schema

_SPECIAL = ("__fragment_index", "__batch_index", "__last_in_fragment")

Columns = Sequence[str] | dict[str, pc.Expression] | None
"""Names, or dotted paths of structs' fields; or what to compute, by name; or, with None, all."""


class Asked(NamedTuple):
    """A request, and what makes the columns that were asked for of those it gives."""

    request: Request
    project: Callable[[pa.Table], pa.Table]


def asked(schema: pa.Schema, columns: Columns, filter_: pc.Expression | None) -> Asked:
    """What is asked of a data set of that schema. Errors as of ``check_columns``.

    A dotted path gives a column of its last name, as ``pyarrow.dataset`` does.
    """
    if isinstance(columns, dict):
        computed = {n: with_comparable_constants(e, schema) for n, e in columns.items()}
        restore = restorer_of(_of_columns_as_they_are(computed, schema))
        request = computed_request(schema, computed, filter_)
        return Asked(request, lambda table: restore(compute_columns(computed, table)))
    check_columns(schema, columns)
    names = list(schema.names if columns is None else columns)
    paths = paths_of(schema, names)
    if all(len(path) == 1 for path in paths):
        return Asked(request_of(schema, names, filter_), restorer_of(schema))
    roots = list(dict.fromkeys(path[0] for path in paths))
    wanted = request_of(schema, roots, filter_)
    request = replace(wanted, pruned=pruned_to_fields(wanted.schema, paths))
    for field in wanted.schema:
        if field.name not in schema.names:
            schema = schema.append(field)
    own = pruned_schema(schema, roots, pruned_to_fields(schema, paths))
    restore = restorer_of(own.with_metadata(schema.metadata))
    return Asked(request, lambda table: fields_at(paths, own, restore(table)))


def _of_columns_as_they_are(columns: Mapping[str, pc.Expression], schema: pa.Schema) -> pa.Schema:
    """Those of ``columns`` that are columns or fields of ``schema``, in their types there."""
    fields = []
    for name, expression in columns.items():
        node = read_expression(expression)
        kind = type_at(schema, node.path) if isinstance(node, FieldRef) else None
        if kind is not None:
            fields.append(pa.field(name, kind))
    return pa.schema(fields, schema.metadata)


def fields_at(paths: Sequence[tuple[str, ...]], schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Each of ``paths`` as a column; a field of a struct that is NULL is NULL."""
    columns, fields = [], []
    for name, *rest in paths:
        values, field = table.column(name), schema.field(name)
        for step in rest:
            field = field.type.field(step)
        columns.append(pc.struct_field(values, rest) if rest else values)
        fields.append(field)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def paths_of(schema: pa.Schema, names: Iterable[str]) -> list[tuple[str, ...]]:
    """Of each of ``names``, those that lead to the column, or to the field of a struct, it is of.

    A name alone where it is of neither.
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
    """A request for ``columns`` of a data set of that schema. Errors as of ``check_columns``."""
    check_columns(schema, columns)
    wanted = None if filter_ is None else Filter.of(filter_, schema)
    schema = schema if wanted is None else wanted.schema
    for field in PSEUDO_COLUMNS:
        if field.name in columns and field.name not in schema.names:
            schema = schema.append(field)
    return Request(schema, tuple(columns), wanted)


def computed_request(
    schema: pa.Schema, columns: dict[str, pc.Expression], filter_: pc.Expression | None
) -> Request:
    """A request for what ``columns`` are computed from; for one column where they need none."""
    needed: set[tuple[str, ...]] = set()
    for expression in columns.values():
        paths = field_paths(read_expression(expression))
        needed |= {(name,) for name in schema.names} if paths is None else paths
    names = list(dict.fromkeys(path[0] for path in sorted(needed)))
    request = request_of(schema, names or schema.names[:1], filter_)
    request = replace(request, schema=filterable_schema(request.schema))
    check_paths(request.schema, sorted(needed))
    return replace(request, pruned=pruned_to_fields(request.schema, needed))


def check_columns(schema: pa.Schema, columns: Columns) -> None:
    """Raise ``PredicateError`` for a name that is no column, ``TypeError`` for no list of names."""
    check_several(columns=columns)
    if isinstance(columns, dict):
        for name, expression in columns.items():
            if not isinstance(expression, pc.Expression):
                kind = type(expression).__name__
                hint = f": pc.field({expression!r}) is one" if kind == "str" else ""
                raise TypeError(
                    f"column {name!r} is computed by an Expression, not by a {kind}{hint}"
                )
        return
    known = {*schema.names, *PSEUDO_COLUMNS.names, *_SPECIAL}
    for name in columns or ():
        if not isinstance(name, str):
            raise TypeError(f"columns are named by texts, not by {name!r}")
    others = [name for name in columns or () if name not in known]
    for name, path in zip(others, paths_of(schema, others), strict=True):
        if len(path) == 1:
            check_paths(schema, [tuple(name.split("."))])
            raise unknown_column(name, schema.names)


def is_special(columns: Any, schema: pa.Schema) -> bool:
    """Are pseudo-columns asked for that only pyarrow's own scan knows, and that are no columns?"""
    if isinstance(columns, dict):
        paths = [field_paths(read_expression(expression)) for expression in columns.values()]
        asked = {path[0] for found in paths for path in found or ()}
    else:
        asked = {*(columns or ())}
    found = asked.intersection(_SPECIAL)
    return bool(found) and not found.issubset(schema.names)


def confuses_pyarrow(schema: pa.Schema) -> bool:
    """Is a column called as one that pyarrow's own scans give, so that they take it for two?"""
    return not {FILENAME, *_SPECIAL}.isdisjoint(schema.names)


def check_is_pyarrows(columns: Columns, filter_: pc.Expression | None, *, limited: bool) -> None:
    """Raise ``PredicateError`` for an Expression that pyarrow's own scan cannot evaluate.

    And where pages are ``limited``, which that scan does not know of.
    """
    if limited:
        raise PredicateError(f"page_size_limit does not go with {', '.join(_SPECIAL)}")
    for expression in [*expressions_of(columns), *([] if filter_ is None else [filter_])]:
        if needs_evaluation(expression):
            raise PredicateError(f"{shown(expression)} does not go with {', '.join(_SPECIAL)}")


def computes_with_other_types(columns: Columns, schema: pa.Schema) -> bool:
    """True if a column is computed of values of a type that pyarrow has no functions for."""
    for expression in expressions_of(columns):
        node = read_expression(expression)
        paths = set() if isinstance(node, FieldRef) else field_paths(node)
        names = schema.names if paths is None else {path[0] for path in paths}
        known = [field for field in schema if field.name in names]
        if any(filterable_type(field.type) != field.type for field in known):
            return True
    return False


def expressions_of(columns: Columns) -> list[pc.Expression]:
    """What there is to compute."""
    return list(columns.values()) if isinstance(columns, dict) else []
