"""``Dataset.lookup``: the rows of many keys, each with the position of its key."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Literal, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.dataset.record_batches import as_table
from intarsia.dataset.request_builder import Columns, check_columns, paths_of
from intarsia.errors import PredicateError
from intarsia.expr.casts import is_uuid, without_extension
from intarsia.expr.constants import uuid_scalar
from intarsia.expr.evaluate import unused
from intarsia.expr.filterable_types import filterable_type, taken
from intarsia.expr.in_list import is_member
from intarsia.expr.nested_types import type_at, without_dictionary
from intarsia.pruning.term import parse_term
from intarsia.row_ranges import Int64Array

KEY_NUMBER = "__key_number"
"""The column of each row's position in the keys."""
Order = Literal["keys", "storage"]
"""The order of the rows of a lookup."""
_VALUE_COLUMN = "__intarsia_key"
_MISFITS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, OverflowError)


class _Scan(Protocol):
    """Scans rows of a data set. Returns their schema and the tables."""

    def __call__(
        self, columns: Columns, filter_: pc.Expression | None, *, limit: int | None = None
    ) -> tuple[pa.Schema, Iterable[pa.Table]] | None: ...


def rows_of_keys(
    schema: pa.Schema,
    scan: _Scan,
    on: str | pc.Expression,
    keys: Any,
    columns: Columns,
    order: Order,
) -> pa.Table:
    """Returns the rows in which ``on``, a column or an Expression, has one of ``keys``.

    The last column is ``KEY_NUMBER``. Parameters, order and errors are those of ``Dataset.lookup``.
    """
    if order not in ("keys", "storage"):
        raise ValueError(f"order is 'keys' or 'storage', not {order!r}")
    check_columns(schema, columns)
    path = paths_of(schema, [on])[0] if isinstance(on, str) else ()
    kind = type_at(schema, path) if path else None
    names = schema.names if columns is None else columns
    numbered: Columns
    if kind is not None:
        subject = pc.field(*path)
        numbered = [*names, str(on)]
    else:
        subject = parse_term(on, schema).expression if isinstance(on, str) else on
        kind = _scanned(scan, {_VALUE_COLUMN: subject}, None).column(0).type
        numbered = {str(i): pc.field(*path) for i, path in enumerate(paths_of(schema, names))}
        numbered[_VALUE_COLUMN] = subject
    if isinstance(columns, dict):
        numbered = columns | {unused(_VALUE_COLUMN, columns): subject}
    key_array = _keys_of(keys, str(on), kind)
    encoded = key_array.dictionary_encode()
    distinct = encoded.dictionary
    condition = _is_any_of(subject, distinct, kind) if len(distinct) else None
    table = _scanned(scan, numbered, condition)
    last = table.num_columns - 1
    values = _comparable(table.column(last), distinct.type)
    rows, numbers = _pairs(pc.index_in(values, distinct), encoded.indices)
    if order == "keys":
        by_key = np.argsort(numbers, kind="stable")
        rows, numbers = rows[by_key], numbers[by_key]
    table = table.remove_column(last)
    if not table.num_columns:
        return pa.table({KEY_NUMBER: numbers})
    if not np.array_equal(rows, np.arange(table.num_rows)):
        table = taken(table, pa.array(rows))
    if not isinstance(columns, dict):
        table = table.rename_columns([path[-1] for path in paths_of(schema, names)])
    return table.append_column(KEY_NUMBER, pa.array(numbers))


def _scanned(scan: _Scan, columns: Columns, condition: pc.Expression | None) -> pa.Table:
    """Returns the rows that meet a condition; none without a condition."""
    scanned = scan(columns, condition, limit=0 if condition is None else None)
    assert scanned is not None  # pyarrow scans by itself only without a filter and a limit
    return as_table(*scanned)


def _keys_of(keys: Any, on: str, kind: pa.DataType) -> pa.Array:
    """Returns keys in the type in which they are compared, with NULL in place of NaN."""
    compared = filterable_type(without_dictionary(kind))
    if pa.types.is_nested(compared):
        raise PredicateError(f"column {on!r} has type {kind}, in which no keys are looked up")
    if pa.types.is_decimal(compared):  # pyarrow has no ``index_in`` for the narrow ones
        width = pa.decimal256 if compared.bit_width > 128 else pa.decimal128
        compared = width(compared.precision, compared.scale)
    try:
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        if not isinstance(keys, pa.Array):
            if is_uuid(kind):
                keys = [_uuid_bytes(key) for key in keys]
            if pa.types.is_integer(compared) and isinstance(keys, list | tuple):
                # pyarrow would cut fractions off.
                keys = [None if key is None else operator.index(key) for key in keys]
            keys = pa.array(keys, compared)
        return _comparable(keys, compared)
    except _MISFITS as error:
        raise PredicateError(f"keys do not fit column {on!r} of type {kind}: {error}") from error


def _uuid_bytes(key: object) -> object:
    match key:
        case UUID():
            return key.bytes
        case str():
            return uuid_scalar(key).as_py()
    return key


def _comparable(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Returns values in type ``kind``, with one zero, and NULL in place of NaN."""
    values = values.cast(without_extension(without_dictionary(values.type))).cast(kind)
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), None, pc.add(values, pa.scalar(0.0, kind)))
    return values


def _is_any_of(column: pc.Expression, distinct: pa.Array, kind: pa.DataType) -> pc.Expression:
    """Returns the condition that a column of type ``kind`` has one of ``distinct``."""
    if pa.types.is_decimal(distinct.type) and distinct.type != kind:
        return is_member(column, list(distinct), kind)
    if pa.types.is_floating(distinct.type):  # ``is_in`` tells the zeros apart
        zero = pa.scalar(0.0, distinct.type)
        if pc.index(distinct, zero).as_py() >= 0:
            distinct = pa.concat_arrays([distinct, pa.array([-0.0], distinct.type)])
    return column.isin(distinct)


def _pairs(value_codes: pa.ChunkedArray, key_codes: pa.Array) -> tuple[Int64Array, Int64Array]:
    """Returns the pairs of a row and a key with the same code, by row and then by key.

    Codes are numbers from 0; NULL equals nothing.
    """
    codes = value_codes.fill_null(-1).to_numpy()
    known = key_codes.drop_null().to_numpy()
    by_code = np.argsort(key_codes.fill_null(len(key_codes)).to_numpy(), kind="stable")
    num_keys = np.append(np.bincount(known), 0)  # a row's code −1 is the last one
    starts, counts = (np.cumsum(num_keys) - num_keys)[codes], num_keys[codes]
    rows = np.repeat(np.arange(len(codes)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, by_code[np.repeat(starts, counts) + within]
