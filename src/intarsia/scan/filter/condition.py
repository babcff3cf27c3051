"""A condition on rows, and the quickest way there is to tell which rows it holds for."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.evaluate import evaluate, unused
from intarsia.expr.map_lookup import asks_for_values_only
from intarsia.expr.tree import ANDS, Call, Node
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import by_code
from intarsia.scan.filter.comparison import comparison_of
from intarsia.scan.filter.required_text import needed_text
from intarsia.scan.filter.substring import Contained, contained_of, is_text, rows_containing

_NUMBERS = "__intarsia_row"
_FEW = 0.1
"""A smaller share of a table's rows than this is picked by their positions."""
MANY = 0.25
"""Where a larger share of rows than this passes, few pages are passed over, and reading columns at
the rows that are left takes longer than reading them whole."""
_SHORT = 0.5
"""Pages are longer than this share of the average."""


@dataclass(frozen=True, slots=True)
class Condition:
    """An Expression, and what is known of it.

    ``contained`` is set where it only looks for a text in one, ``comparison`` where it only
    compares, in the column's own types: such are sure to evaluate. ``needed`` is a text that each
    value for which it holds contains. ``takes_coded_keys`` says whether maps' keys may be codes.
    """

    expression: pc.Expression
    contained: Contained | None = None
    comparison: Node | None = None
    needed: Contained | None = None
    takes_coded_keys: bool = False

    @classmethod
    def of(cls, expression: pc.Expression, node: Node, schema: pa.Schema) -> Condition:
        """``node`` is the tree of ``expression``."""
        needed = needed_text(node, schema)
        contained = contained_of(node)
        if contained is not None and not is_text(schema.field(contained.column).type):
            contained = None
        values_only = asks_for_values_only(node, schema)
        return cls(expression, contained, comparison_of(node, schema), needed, values_only)

    @classmethod
    def all_of(cls, parts: Sequence[Condition]) -> Condition:
        """What is true where all of ``parts`` are, of which there is one at least."""
        if len(parts) == 1:
            return parts[0]
        compared = [part.comparison for part in parts if part.comparison is not None]
        comparison = Call(ANDS[0], tuple(compared)) if len(compared) == len(parts) else None
        joined = functools.reduce(operator.and_, (part.expression for part in parts))
        needed = next((part.needed for part in parts if part.needed is not None), None)
        values_only = all(part.takes_coded_keys for part in parts)
        return cls(joined, None, comparison, needed, values_only)


def passing(condition: Condition, found: pa.Table, rows: RowRanges) -> tuple[pa.Table, RowRanges]:
    """Of ``found``, which holds ``rows``, what passes, and which rows that is.

    The condition is no comparison, of which ``holds`` tells.
    """
    wanted = condition.contained or condition.needed
    if wanted is not None:
        places = rows_containing(found.column(wanted.column), wanted)
        if places is not None:
            found, rows = _taken(found, pa.array(places)), rows.at(places)
            if condition.contained is not None or not found.num_rows:
                return found, rows
    numbers = unused(_NUMBERS, found.column_names)
    numbered = found.append_column(numbers, pa.array(np.arange(found.num_rows)))
    left = evaluate(condition.expression, numbered)
    kept = rows.at(left.column(numbers).to_numpy())
    return left.drop_columns([numbers]), kept


def told_by_code(condition: Condition, column: str, found: pa.Table) -> pa.ChunkedArray:
    """For each row of ``found`` whether a condition on ``column`` alone, which is coded, holds."""
    return by_code(found.column(column), functools.partial(_flags, condition.expression, column))


def _flags(expression: pc.Expression, column: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers = unused(_NUMBERS, [column])
    left = evaluate(expression, pa.table({column: texts, numbers: np.arange(len(texts))}))
    flags = np.zeros(len(texts), dtype=np.bool_)
    flags[left.column(numbers).to_numpy()] = True
    return pa.chunked_array([flags])


def picked(mask: pa.ChunkedArray, found: pa.Table, rows: RowRanges) -> tuple[pa.Table, RowRanges]:
    """Of ``found``, which holds ``rows``, what ``mask`` is TRUE of, and which rows that is."""
    return where(mask, found), rows.at(pc.indices_nonzero(mask).to_numpy())


def are_everywhere(mask: pa.ChunkedArray, page_rows: float) -> bool:
    """Are many rows TRUE, and so near to each other that hardly a page is without one?

    Pages have ``page_rows`` on average.
    """
    if num_true(mask) <= len(mask) * MANY:
        return False
    flags = mask.fill_null(False).to_numpy()
    edges = np.flatnonzero(flags[1:] != flags[:-1]) + 1
    runs = np.diff(edges, prepend=0, append=len(flags))
    return int(runs[int(flags[0]) :: 2].max(initial=0)) < page_rows * _SHORT


def num_true(mask: pa.ChunkedArray) -> int:
    """How many rows are TRUE."""
    return int(pc.sum(mask).as_py() or 0)


def where(mask: pa.ChunkedArray, found: pa.Table) -> pa.Table:
    """What of ``found`` a mask is TRUE of."""
    count = num_true(mask)
    if count == found.num_rows:
        return found
    if count < found.num_rows * _FEW:
        return _taken(found, pc.indices_nonzero(mask))
    return found.filter(mask)


def _taken(found: pa.Table, places: pa.Array) -> pa.Table:
    """``found`` at ``places``, which ascend, and hold no more bytes of text than one array can."""
    try:
        return found.take(places)
    except pa.ArrowInvalid:  # all of ``found`` holds more, which pyarrow makes one array of
        mask = np.zeros(found.num_rows, dtype=np.bool_)
        mask[places.to_numpy()] = True
        return found.filter(pa.array(mask))
