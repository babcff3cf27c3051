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

from intarsia.expr.tree import (
    ORS,
    Call,
    FieldRef,
    Literal,
    Node,
    conjuncts,
    joined,
    read_expression,
)

MIN_TERMS = 64
"""Terms of one chain on the same columns. Fewer are evaluated and planned one by one."""
_MAX_TUPLES = 2**62
"""Numbers of tuples must fit into 64 bits."""
_Terms = list[dict[str, pa.Scalar]]
"""Terms: the constant of each column by the column's name."""


def with_tuple_membership(node: Node, schema: pa.Schema) -> Node:
    """Returns a tree that is TRUE in the same rows of ``schema`` as ``node``.

    Changes each OR at the top, or within an AND at the top. ``MIN_TERMS`` terms or more become one
    search if they compare the same columns with constants by ``=``. The result may be FALSE where
    ``node`` is NULL.

    >>> terms = [pc.field("a") == number for number in range(100)]
    >>> chain = read_expression(functools.reduce(operator.or_, terms))
    >>> with_tuple_membership(chain, pa.schema({"a": pa.int64()})).function
    'is_in'
    """
    parts = conjuncts(node)
    new_parts = [_with_searches(part, schema) for part in parts]
    return node if all(map(operator.is_, new_parts, parts)) else joined("and_kleene", new_parts)


def _with_searches(node: Node, schema: pa.Schema) -> Node:
    """Returns an OR with searches in place of its long chains, or ``node`` if it has none."""
    if not isinstance(node, Call) or node.function not in ORS or len(node.arguments) < MIN_TERMS:
        return node
    terms_by_columns: dict[tuple[str, ...], _Terms] = defaultdict(list)
    nodes_by_columns: dict[tuple[str, ...], list[Node]] = defaultdict(list)
    for term in node.arguments:
        constants = _equalities(term)
        columns = tuple(sorted(constants))
        terms_by_columns[columns].append(constants)
        nodes_by_columns[columns].append(term)
    searches, others = list[Node](), list[Node]()
    for columns, terms in terms_by_columns.items():
        search = _search(columns, terms, schema)
        if search is None:
            others += nodes_by_columns[columns]
        else:
            searches.append(search)
    return joined("or_kleene", [*searches, *others]) if searches else node


def _equalities(term: Node) -> dict[str, pa.Scalar]:
    """Returns the constant of each column, or an empty dictionary for other terms."""
    constants: dict[str, pa.Scalar] = {}
    for equality in conjuncts(term):
        match equality:
            case Call("equal", (FieldRef((name,)), Literal(value))) | Call(
                "equal", (Literal(value), FieldRef((name,)))
            ) if name not in constants:
                constants[name] = value
            case _:
                return {}
    return constants


def _search(columns: tuple[str, ...], terms: _Terms, schema: pa.Schema) -> Node | None:
    """Returns the search for the tuples of ``terms``, or None if there is none or it is short."""
    if len(terms) < MIN_TERMS or not columns:
        return None
    numbers, factor, conditions = pc.scalar(0), 1, []
    numbers_of_terms = pa.scalar(0)
    for name in columns:
        position = schema.get_field_index(name)
        kind = None if position < 0 else schema.field(position).type
        values = _in_type([term[name] for term in terms], kind)
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
    return read_expression(functools.reduce(operator.and_, conditions))


def _in_type(constants: list[pa.Scalar], kind: pa.DataType | None) -> pa.Array | None:
    """Returns constants in the type of their column, or None unless they compare alike in it."""
    own = {constant.type for constant in constants}
    checks = (
        pa.types.is_integer,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    if kind is None or len(own) > 1 or not any(check(kind) for check in checks):
        return None
    values = pa.array(constants, *own)
    are_integers = pa.types.is_integer(kind) and pa.types.is_integer(values.type)
    if values.null_count or not (values.type == kind or are_integers):
        return None
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:  # a constant beyond the column's range
        return None
