"""Long chains of ``(a = 1 AND b = 2) OR …`` as one search in a list of tuples.

Each term of such a chain takes a pass over all rows, and a predicate of its own in planning. A
search numbers the distinct constants of each column. A tuple becomes the sum of its numbers, each
multiplied by the counts of the columns before it.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.tree import ANDS
from intarsia.pyarrow_internals import Nodes, Serialized, operands_of, serialized_of

MIN_TERMS = 64
"""Terms of one chain on the same columns. Fewer are evaluated and planned one by one."""
_ORS = ("or_kleene", "or")
_MAX_TUPLES = 2**62
"""Numbers of tuples must fit into 64 bits."""
_Terms = list[dict[str, int]]
"""Terms by the names of their columns, with the numbers of their constants."""


def with_tuple_membership(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Returns an Expression that is TRUE in the same rows of ``schema`` as ``expression``.

    Changes each OR at the top, or within an AND at the top. ``MIN_TERMS`` terms or more become one
    search if they compare the same columns with constants by ``=``. The result may be FALSE where
    ``expression`` is NULL.

    >>> terms = [pc.field("a") == number for number in range(100)]
    >>> chain = functools.reduce(operator.or_, terms)
    >>> str(with_tuple_membership(chain, pa.schema({"a": pa.int64()})))[:6]
    'is_in('
    """
    serialized = serialized_of(expression)
    if serialized is None or len(serialized.nodes) < 4 * MIN_TERMS:
        return expression
    conjuncts = operands_of(serialized.nodes, ANDS)
    rewritten = [_alternatives(serialized, nodes, schema) for nodes in conjuncts]
    if all(new is None for new in rewritten):
        return expression
    parts = [
        serialized.part(nodes) if new is None else new
        for nodes, new in zip(conjuncts, rewritten, strict=True)
    ]
    return functools.reduce(operator.and_, parts)


def _alternatives(serialized: Serialized, nodes: Nodes, schema: pa.Schema) -> pc.Expression | None:
    """Returns an OR with searches in place of its long chains, or None if it has none."""
    if len(nodes) < 4 * MIN_TERMS or nodes[0][1] not in _ORS:
        return None
    terms_by_columns: dict[tuple[str, ...], _Terms] = defaultdict(list)
    nodes_by_columns: dict[tuple[str, ...], list[Nodes]] = defaultdict(list)
    for term in operands_of(nodes, _ORS):
        constants = _equalities(term)
        columns = tuple(sorted(constants))
        terms_by_columns[columns].append(constants)
        nodes_by_columns[columns].append(term)
    searches = {
        columns: _search(serialized, columns, terms, schema)
        for columns, terms in terms_by_columns.items()
    }
    parts = [search for search in searches.values() if search is not None]
    if not parts:
        return None
    for columns, terms in nodes_by_columns.items():
        parts += map(serialized.part, terms) if searches[columns] is None else ()
    return functools.reduce(operator.or_, parts)


def _equalities(term: Nodes) -> dict[str, int]:
    """Returns the number of each column's constant, or an empty dictionary for other terms."""
    constants: dict[str, int] = {}
    for equality in operands_of(term, ANDS):
        match equality:
            case [("call", "equal"), ("field_ref", name), ("literal", number), ("end", _)] | [
                ("call", "equal"),
                ("literal", number),
                ("field_ref", name),
                ("end", _),
            ] if name not in constants:
                constants[name] = int(number)
            case _:
                return {}
    return constants


def _search(
    serialized: Serialized, columns: tuple[str, ...], terms: _Terms, schema: pa.Schema
) -> pc.Expression | None:
    """Returns the search for the tuples of ``terms``, or None if there is none or it is short."""
    if len(terms) < MIN_TERMS or not columns:
        return None
    literals = serialized.batch.columns
    numbers, factor, conditions = pc.scalar(0), 1, []
    numbers_of_terms = pa.scalar(0)
    for name in columns:
        position = schema.get_field_index(name)
        kind = None if position < 0 else schema.field(position).type
        values = _in_type([literals[term[name]] for term in terms], kind)
        if values is None:
            return None
        distinct = values.unique()
        of_terms = pc.multiply(pc.index_in(values, distinct).cast(pa.int64()), factor)
        numbers_of_terms = pc.add(numbers_of_terms, of_terms)
        field = pc.field(name)
        numbers += pc.multiply(pc.index_in(field, distinct).cast(pa.int64()), factor)
        conditions.append(field.isin(distinct))
        factor *= len(distinct)
        if factor > _MAX_TUPLES:
            return None
    tuples = numbers_of_terms.unique()
    if len(tuples) < factor:
        conditions.append(numbers.isin(tuples))
    return functools.reduce(operator.and_, conditions)


def _in_type(literals: list[pa.Array], kind: pa.DataType | None) -> pa.Array | None:
    """Returns constants in the type of their column, or None unless they compare alike in it."""
    own = {literal.type for literal in literals}
    checks = (
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    if kind is None or len(own) > 1 or not any(check(kind) for check in checks):
        return None
    values = pa.concat_arrays(literals)
    are_integers = pa.types.is_integer(kind) and pa.types.is_integer(values.type)
    if values.null_count or not (values.type == kind or are_integers):
        return None
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:  # a constant beyond the column's range
        return None
