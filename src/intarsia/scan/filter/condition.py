"""A condition on rows, and the fastest way to evaluate it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.evaluate import evaluate, unused
from intarsia.expr.map_lookup import asks_for_values_only
from intarsia.expr.tree import ANDS, Node, joined, to_expression
from intarsia.process_state import cached_property
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import is_string_dictionary, map_entries
from intarsia.scan.filter.comparison import comparison_of, holds
from intarsia.scan.filter.required_text import required_text_of
from intarsia.scan.filter.substring import (
    SubstringSearch,
    is_text,
    rows_containing,
    substring_search_of,
)

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
