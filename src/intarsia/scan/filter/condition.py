"""A condition on rows, and the fastest way to evaluate it.

Most conditions are comparisons of columns with constants, joined by AND, OR and NOT. pyarrow's
kernels evaluate them without setting up its query engine; for few rows the set-up takes longer than
the evaluation.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.comparison_operators import COMPARISONS
from intarsia.expr.evaluate import evaluate, unused
from intarsia.expr.map_lookup import asks_for_values_only, first_key, first_values
from intarsia.expr.nested_types import column_at, type_at
from intarsia.expr.tree import (
    ANDS,
    CHAINS,
    Call,
    FieldRef,
    Literal,
    Node,
    is_deep,
    joined,
    to_expression,
)
from intarsia.process_state import cached_property
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import Holds, is_string_dictionary, map_entries
from intarsia.scan.filter.substring import (
    SubstringSearch,
    is_text,
    required_text_of,
    rows_containing,
    substring_search_of,
)
from intarsia.scan.filter.value_set import ValueSet

_ROW_NUMBER_COLUMN = "__intarsia_row"
_MAX_TAKE_SHARE = 0.1
"""Below this share of rows, matching rows are taken by position instead of by mask."""
MANY = 0.25
"""If a larger share of rows passes, few pages can be skipped. Reading whole columns is faster."""
_MIN_RUN_SHARE = 0.5
"""A run of failing rows shorter than this share of the average page is assumed to skip no page."""


@dataclass(frozen=True)
class Condition:
    """The tree of a condition with the facts that decide how it is evaluated.

    ``contained`` is set if the condition is only a substring search. ``comparison`` is set if it
    consists of comparisons, which never fail. ``needed`` is a string that each matching value
    contains. ``takes_dictionary_keys`` is true if keys of maps may be dictionary indices.
    """

    node: Node
    contained: SubstringSearch | None = None
    comparison: Node | None = None
    needed: SubstringSearch | None = None
    takes_dictionary_keys: bool = False

    @cached_property
    def expression(self) -> pc.Expression:
        """The condition as pyarrow evaluates it."""
        return to_expression(self.node)

    @classmethod
    def of(cls, node: Node, schema: pa.Schema) -> Condition:
        """Returns the condition whose tree is ``node``."""
        needed = required_text_of(node, schema)
        contained = substring_search_of(node)
        if contained is not None and not is_text(schema.field(contained.column).type):
            contained = None
        values_only = asks_for_values_only(node, schema)
        return cls(node, contained, comparison_of(node, schema), needed, values_only)

    @classmethod
    def all_of(cls, parts: Sequence[Condition]) -> Condition:
        """Joins ``parts``, at least one, by AND."""
        if len(parts) == 1:
            return parts[0]
        compared = [part.comparison for part in parts if part.comparison is not None]
        comparison = joined(ANDS[0], compared) if len(compared) == len(parts) else None
        node = joined(ANDS[0], [part.node for part in parts])
        needed = next((part.needed for part in parts if part.needed is not None), None)
        values_only = all(part.takes_dictionary_keys for part in parts)
        return cls(node, None, comparison, needed, values_only)


def mask_of(
    condition: Condition, columns: Sequence[str], table: pa.Table
) -> pa.ChunkedArray | None:
    """Returns whether the condition, on ``columns``, is TRUE, FALSE or NULL in each row.

    Returns None unless it is a comparison, or on one dictionary-encoded column of strings. For
    others use ``passing``.
    """
    if condition.comparison is not None:
        return holds(condition.comparison, table)
    if len(columns) == 1 and is_string_dictionary(table.column(columns[0]).type):
        return _evaluate_by_entry(condition, columns[0], table)
    return None


def passing(condition: Condition, table: pa.Table, rows: RowRanges) -> tuple[pa.Table, RowRanges]:
    """Returns the part of ``table``, which holds ``rows``, that passes, and its rows.

    If there is one, ``mask_of`` is faster.
    """
    search = condition.contained or condition.needed
    if search is not None:
        positions = rows_containing(table.column(search.column), search)
        if positions is not None:
            table, rows = _take(table, pa.array(positions)), rows.at(positions)
            if condition.contained is not None or not table.num_rows:
                return table, rows
    numbers = unused(_ROW_NUMBER_COLUMN, table.column_names)
    numbered = table.append_column(numbers, pa.array(np.arange(table.num_rows)))
    matching = evaluate(condition.expression, numbered)
    matching_rows = rows.at(matching.column(numbers).to_numpy())
    return matching.drop_columns([numbers]), matching_rows


def _evaluate_by_entry(condition: Condition, column: str, table: pa.Table) -> pa.ChunkedArray:
    """Evaluates a condition on one dictionary-encoded column; returns a mask of the rows."""
    return map_entries(
        table.column(column), functools.partial(_flags, condition.expression, column)
    )


def _flags(expression: pc.Expression, column: str, entries: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers = unused(_ROW_NUMBER_COLUMN, [column])
    matching = evaluate(expression, pa.table({column: entries, numbers: np.arange(len(entries))}))
    flags = np.zeros(len(entries), dtype=np.bool_)
    flags[matching.column(numbers).to_numpy()] = True
    return pa.chunked_array([flags])


def rows_where(
    mask: pa.ChunkedArray, table: pa.Table, rows: RowRanges
) -> tuple[pa.Table, RowRanges]:
    """Returns the part of ``table``, which holds ``rows``, where ``mask`` is true, and its rows."""
    return where(mask, table), rows.at(pc.indices_nonzero(mask).to_numpy())


def are_in_most_pages(mask: pa.ChunkedArray, page_rows: float) -> bool:
    """True if many rows are TRUE and so evenly spread that hardly any page has none.

    Pages have ``page_rows`` rows on average.
    """
    if num_true(mask) <= len(mask) * MANY:
        return False
    flags = mask.fill_null(False).to_numpy()
    edges = np.flatnonzero(flags[1:] != flags[:-1]) + 1
    runs = np.diff(edges, prepend=0, append=len(flags))
    return int(runs[int(flags[0]) :: 2].max(initial=0)) < page_rows * _MIN_RUN_SHARE


def num_true(mask: pa.ChunkedArray) -> int:
    """Returns the number of rows that are TRUE."""
    return int(pc.sum(mask).as_py() or 0)


def where(mask: pa.ChunkedArray, table: pa.Table) -> pa.Table:
    """Returns the rows of ``table`` where ``mask`` is true."""
    count = num_true(mask)
    if count == table.num_rows:
        return table
    if count < table.num_rows * _MAX_TAKE_SHARE:
        return _take(table, pc.indices_nonzero(mask))
    return table.filter(mask)


def _take(table: pa.Table, positions: pa.Array) -> pa.Table:
    """Returns the rows of ``table`` at ascending ``positions``.

    The strings of the result must fit into one array.
    """
    try:
        return table.take(positions)
    except pa.ArrowInvalid:  # pyarrow first joins all chunks, which together are too long
        mask = np.zeros(table.num_rows, dtype=np.bool_)
        mask[positions.to_numpy()] = True
        return table.filter(pa.array(mask))


_CONNECTIVES = (*CHAINS, "invert")
_SUPPORTED_IDS = {
    kind.id
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary()),
        *(pa.timestamp("s"), pa.date32(), pa.date64()),
    )
}
_MAX_EXACT_DOUBLE = 2**53
_SET = "set"
"""The option of ``is_in`` that has its ``ValueSet``."""
_NULLS_MATCH = 0
"""The default of ``is_in`` for NULLs: they compare like any other value."""


def comparison_of(node: Node, schema: pa.Schema) -> Node | None:
    """Returns ``node`` with constants in the columns' types, if it consists of comparisons.

    These may be joined by AND, OR and NOT, but not nested too deeply. Constants are cast if that
    does not change the result. Returns None for any other condition. Evaluating the returned node
    never fails.
    """
    return None if is_deep(node) else _comparison(node, schema)


def _comparison(node: Node, schema: pa.Schema) -> Node | None:
    match node:
        case Call(function, arguments) if function in _CONNECTIVES:
            parts = [_comparison(argument, schema) for argument in arguments]
            complete = tuple(part for part in parts if part is not None)
            return Call(function, complete) if len(complete) == len(parts) else None
        case Call("is_in", (subject,), options):
            constants = _constants(options, _type_of(subject, schema))
            return None if constants is None else Call("is_in", (subject,), {_SET: constants})
        case Call(function, (subject, Literal(value))):
            typed = (
                _cast_constant(value, _type_of(subject, schema))
                if function in COMPARISONS
                else None
            )
            return None if typed is None else Call(function, (subject, Literal(typed)))
        case _:
            return None


def _type_of(subject: Node, schema: pa.Schema) -> pa.DataType | None:
    """Returns the type of a column, or of a map's values looked up by key; None for others."""
    match subject:
        case FieldRef(path):
            return type_at(schema, path)
        case Call("map_lookup", (FieldRef(path),), options):
            kind = type_at(schema, path)
            if kind is not None and first_key(options, kind) is not None:
                return kind.item_type
            return None
        case _:
            return None


def _constants(options: Mapping[str, Any], kind: pa.DataType | None) -> ValueSet | None:
    """Returns the constants of an ``is_in`` cast to ``kind``; None if impossible or any is NULL."""
    values = options["value_set"].values
    if (
        values is None
        or values.null_count
        or options["null_matching_behavior"].as_py() != _NULLS_MATCH
    ):
        return None
    if kind is None or kind.id not in _SUPPORTED_IDS:
        return None
    if values.type != kind:
        if not (pa.types.is_integer(values.type) and pa.types.is_integer(kind)):
            return None
        try:
            values = values.cast(kind)
        except pa.ArrowInvalid:
            return None
    return ValueSet(values)


def _cast_constant(value: pa.Scalar, kind: pa.DataType | None) -> pa.Scalar | None:
    """Returns ``value`` cast to ``kind``; None if it would compare differently."""
    if kind is None or kind.id not in _SUPPORTED_IDS:
        return None
    if value.type == kind:
        return value
    if not pa.types.is_integer(value.type) or not value.is_valid:
        return None
    if pa.types.is_integer(kind) or (
        pa.types.is_float64(kind) and abs(value.as_py()) <= _MAX_EXACT_DOUBLE
    ):
        try:
            return value.cast(kind)
        except pa.ArrowInvalid:
            return None
    return None


def holds(node: Node, table: pa.Table) -> pa.ChunkedArray:
    """Evaluates a result of ``comparison_of``. Returns Booleans, with NULLs.

    In dictionary-encoded columns, each entry is compared once.
    """
    match node:
        case Call("is_in", (subject,), options):
            return _by_entry(_column_of(subject, table), options[_SET].contains)
        case Call(function, (subject, Literal(value))):
            return _by_entry(_column_of(subject, table), partial(_compared, function, value))
        case Call(function, arguments) if function in CHAINS:
            parts = (holds(argument, table) for argument in arguments)
            return functools.reduce(lambda a, b: pc.call_function(function, [a, b]), parts)
        case Call(function, arguments):
            return pc.call_function(function, [holds(argument, table) for argument in arguments])
        case _:
            raise TypeError(f"{node} is no comparison")


def _column_of(subject: Node, table: pa.Table) -> pa.ChunkedArray:
    match subject:
        case FieldRef(path):
            return column_at(table, path)
        case Call("map_lookup", (maps,), options):
            return first_values(_column_of(maps, table), options["query_key"])
        case _:
            raise TypeError(f"{subject} is no column")


def _compared(function: str, value: pa.Scalar, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.call_function(function, [values, value])


def _by_entry(values: pa.ChunkedArray, evaluate: Holds) -> pa.ChunkedArray:
    return (
        map_entries(values, evaluate) if pa.types.is_dictionary(values.type) else evaluate(values)
    )
