"""Turns an expression's tree into a pruning tree: ANDs and ORs over predicates.

A filter keeps the rows for which it is TRUE; NULL drops a row as FALSE does. So the question is
always "for which rows can this be TRUE". NOT turns it into "for which rows can this be FALSE". Both
questions distribute over AND and OR in three-valued logic, so no negation is left in the result. A
call that is not understood becomes ``Maybe``: every row might match. A result may let through too
many rows, never too few.

NaN and NULL are kept apart from ordinary values because they behave in their own way:
``NOT (x < 5)`` is TRUE where x is NaN, but not where x is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.comparison_operators import COMPARISONS, MIRRORED, Op
from intarsia.expr.functions import plain_values
from intarsia.expr.tree import Call, FieldRef, Literal, Node, is_deep
from intarsia.pruning.predicates import (
    And,
    Comparison,
    How,
    Maybe,
    Never,
    Or,
    Pruning,
    SearchPredicate,
    all_of,
    any_of,
    seeks_values,
)
from intarsia.pruning.term import Term, field_term, term_of

_NEGATED = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}
_SEARCHES = {
    "match_like": How.LIKE,
    "match_substring": How.SUBSTRING,
    "starts_with": How.STARTS_WITH,
    "ends_with": How.ENDS_WITH,
    "match_substring_regex": How.REGEX,
}
_OWN_FUNCTIONS = {
    "ia.contains_words": How.WORDS,
    "ia.list_contains": How.LIST_ANY,
    "ia.list_contains_any": How.LIST_ANY,
    "ia.list_contains_all": How.LIST_ALL,
    "ia.map_contains": How.MAP_ANY,
}
"""Our own functions of a term and a constant. They are NULL if either is NULL."""
_CASE_FUNCTIONS = ("utf8_lower", "utf8_upper")
_MATCH_NULLS = 0
"""``SetLookupOptions.null_matching_behavior``: a NULL in the set matches a NULL value."""


def pruning_of(node: Node) -> Pruning:
    """Returns the tree for the rows that can be TRUE under ``node``, the tree of a filter."""
    return Maybe() if is_deep(node) else _with_key_searches(_rows_with_outcome(node, True))


def complement_of(node: Node) -> Pruning:
    """Returns the tree for the rows that can be FALSE or NULL under ``node``."""
    return Maybe() if is_deep(node) else _rows_without_outcome(node, True)


def _rows_with_outcome(node: Node, outcome: bool) -> Pruning:
    """Returns the tree for the rows that can have ``outcome`` under ``node``."""
    match node:
        case Literal(value):
            return _constant(value, outcome)
        case FieldRef(path):
            return Comparison(field_term(*path), Op.EQ, pa.array([outcome]))
        case Call("invert", (argument,)):
            return _rows_with_outcome(argument, not outcome)
        case Call("and_kleene" | "and" | "or_kleene" | "or" as function, arguments):
            parts = [_rows_with_outcome(argument, outcome) for argument in arguments]
            all_needed = function.startswith("and") == outcome
            return all_of(*parts) if all_needed else any_of(*parts)
        case Call("if_else", (condition, then, otherwise)):
            return any_of(
                all_of(_rows_with_outcome(condition, True), _rows_with_outcome(then, outcome)),
                all_of(
                    _rows_with_outcome(condition, False), _rows_with_outcome(otherwise, outcome)
                ),
            )
        case Call(function, (left, right)) if function in COMPARISONS:
            return _comparison(COMPARISONS[function], left, right, outcome)
        case Call("is_null", (argument,), options):
            return _null_test(argument, outcome, nan_is_null=_flag(options, "nan_is_null"))
        case Call("is_valid", (argument,)):
            return _null_test(argument, not outcome, nan_is_null=False)
        case Call("is_nan", (argument,)):
            op = Op.NONE if outcome else Op.ANY
            return _for_each_term(
                [term_of(argument)], lambda term: Comparison(term, op, nans=outcome)
            )
        case Call("coalesce", (argument, Literal(value))):
            return _rows_with_outcome(argument, outcome) if _is_not(value, outcome) else Maybe()
        case Call(function, (argument,), options) if function in _SEARCHES:
            return _string_search(function, argument, options, outcome)
        case Call(function, (argument, Literal(value))) if function in _OWN_FUNCTIONS:
            return _own_function_search(_OWN_FUNCTIONS[function], argument, value, outcome)
        case Call("is_in", (argument,), options):
            return _in_list_test(argument, options, outcome)
        case _:
            return Maybe()


def _rows_without_outcome(node: Node, outcome: bool) -> Pruning:
    """Returns the tree for the rows that can be NULL or not ``outcome`` under ``node``."""
    match node:
        case Literal(value):
            return _constant(value, not outcome) if value.is_valid else Maybe()
        case FieldRef():
            return _or_null(_rows_with_outcome(node, not outcome))
        case Call("invert", (argument,)):
            return _rows_without_outcome(argument, not outcome)
        case Call("and_kleene" | "or_kleene" as function, arguments):
            parts = [_rows_without_outcome(argument, outcome) for argument in arguments]
            any_suffices = (function == "and_kleene") == outcome
            return any_of(*parts) if any_suffices else all_of(*parts)
        case Call("is_null" | "is_valid"):
            return _rows_with_outcome(node, not outcome)
        case Call(function, (_, _)) if function in COMPARISONS:
            return _or_null(_rows_with_outcome(node, not outcome))
        case Call(function) if function in ("is_in", *_SEARCHES, *_OWN_FUNCTIONS):
            return _or_null(_rows_with_outcome(node, not outcome))
        case _:
            return Maybe()


def _or_null(pruning: Pruning) -> Pruning:
    """Returns a predicate that NULLs pass as well.

    Returns ``Maybe`` for other trees: what they stand for may be NULL in any row.
    """
    match pruning:
        case Comparison() | SearchPredicate():
            return replace(pruning, nulls=True)
        case And(parts):  # all parts say the same about one term
            return And(tuple(_or_null(part) for part in parts))
        case _:
            return Maybe()


def _with_key_searches(pruning: Pruning) -> Pruning:
    """Returns a tree that also requires the map key whose value a predicate is about.

    NULL does not pass such a predicate, so the map must have the key. If only a few values pass,
    the map must also have one of them.
    """
    match pruning:
        case And(parts):
            return all_of(*map(_with_key_searches, parts))
        case Or(parts):
            return any_of(*map(_with_key_searches, parts))
        case Comparison(term=term, nulls=False) | SearchPredicate(term=term, nulls=False):
            lookup = _map_value(term.node)
            if lookup is not None and isinstance(lookup.arguments[0], FieldRef):
                keys = plain_values(pa.repeat(lookup.options["query_key"], 1))
                map_term = field_term(*lookup.arguments[0].path)
                has_key = SearchPredicate(map_term, How.MAP_ANY, values=keys)
                if not seeks_values(pruning) or lookup is not term.node:
                    return all_of(pruning, has_key)
                has_value = SearchPredicate(
                    map_term, How.MAP_VALUE, values=pruning.values, key=keys[0]
                )
                return all_of(pruning, has_key, has_value)
    return pruning


def _map_value(node: Node) -> Call | None:
    """Returns the lookup of a map's value that ``node`` is, or is a function of.

    The functions have one argument, so they are NULL if the value is NULL.
    """
    while isinstance(node, Call) and len(node.arguments) == 1 and node.function != "map_lookup":
        (node,) = node.arguments
    return node if isinstance(node, Call) and node.function == "map_lookup" else None


def _constant(value: pa.Scalar, outcome: bool) -> Pruning:
    if not value.is_valid:
        return Never()
    if not pa.types.is_boolean(value.type):
        return Maybe()
    return Maybe() if value.as_py() is outcome else Never()


def _is_not(value: pa.Scalar, outcome: bool) -> bool:
    """True if ``value`` is the opposite of ``outcome``."""
    return bool(pa.types.is_boolean(value.type)) and value.as_py() is (not outcome)


def _for_each_term(terms: list[Term | None], predicate_for: Callable[[Term], Pruning]) -> Pruning:
    """Returns the tree that holds for each of some equivalent terms. None among them is ignored."""
    distinct = dict.fromkeys([term for term in terms if term is not None])
    return all_of(*[predicate_for(term) for term in distinct])


def _terms_of(node: Node) -> list[Term | None]:
    """Returns the term of ``node``, and the term without a cast that keeps every value."""
    uncast = _uncast(node)
    return [term_of(uncast), *([] if uncast is node else [term_of(node)])]


def _comparison(op: Op, left: Node, right: Node, outcome: bool) -> Pruning:
    if isinstance(_uncast(left), Literal):
        left, right, op = right, left, MIRRORED.get(op, op)
    literal = _uncast(right)
    if not isinstance(literal, Literal):
        return Maybe()
    value = literal.value
    terms = _terms_of(left)
    if not value.is_valid:
        return Never() if any(terms) else Maybe()
    if pa.types.is_dictionary(value.type):
        value = value.value
    values = pa.repeat(value, 1)
    if _has_nan(values):
        return Maybe()
    # NaN passes <> and, negated, everything that is not <>.
    nans = (op is Op.NE) == outcome
    effective_op = op if outcome else _NEGATED[op]
    return _for_each_term(terms, lambda term: Comparison(term, effective_op, values, nans=nans))


def _null_test(argument: Node, is_null: bool, *, nan_is_null: bool) -> Pruning:
    uncast = _uncast(argument)
    if nan_is_null and uncast is not argument:
        return Maybe()
    if is_null:
        comparison = partial(Comparison, op=Op.NONE, nulls=True, nans=nan_is_null)
    else:
        comparison = partial(Comparison, op=Op.ANY, nans=not nan_is_null)
    return _for_each_term([term_of(uncast)], comparison)


def _string_search(
    function: str, argument: Node, options: dict[str, Any], outcome: bool
) -> Pruning:
    """Returns a search in a string, and the range of strings that have its prefix."""
    pattern, ignore_case = options["pattern"].as_py(), _flag(options, "ignore_case")
    prefix = _prefix_of(function, options) if function in ("starts_with", "match_like") else ""
    if prefix and function == "match_like" and pattern in (f"{prefix}%", f"{prefix}%".encode()):
        function, pattern = "starts_with", pattern[:-1]

    def match(term: Term, through: str = "") -> SearchPredicate:
        how = _SEARCHES[function]
        return SearchPredicate(
            term, how, pattern, ignore_case, through=through, negated=not outcome
        )

    subject = _without_string_cast(argument)
    terms = [term_of(subject), term_of(argument)]
    tree = _for_each_term(terms, match)
    if isinstance(subject, Call) and subject.function in _CASE_FUNCTIONS:
        inner = term_of(_without_string_cast(subject.arguments[0]))
        tree = all_of(tree, _for_each_term([inner], partial(match, through=subject.function)))
    if outcome and function in ("starts_with", "match_like"):
        tree = all_of(_for_each_term(terms, lambda term: _prefix_test(term, prefix)), tree)
    return tree


def _own_function_search(how: How, argument: Node, value: pa.Scalar, outcome: bool) -> Pruning:
    """Returns the predicate for one of our own functions of a term and a constant."""
    if not value.is_valid:
        is_single = how is not How.WORDS and not isinstance(value, pa.ListScalar)
        return Maybe() if is_single and not outcome else Never()  # empty lists give FALSE for NULL
    if how is How.WORDS:
        words = value.as_py()
        return _for_each_term(
            [term_of(argument)], lambda term: SearchPredicate(term, how, words, negated=not outcome)
        )
    values = value.values if isinstance(value, pa.ListScalar) else pa.repeat(value, 1)
    constants = plain_values(values).drop_null()
    return _for_each_term(
        [term_of(argument)],
        lambda term: SearchPredicate(term, how, values=constants, negated=not outcome),
    )


def _prefix_of(function: str, options: dict[str, Any]) -> str:
    """Returns the prefix of every string that matches; an empty string if it is unknown."""
    pattern = options["pattern"].as_py()
    if _flag(options, "ignore_case"):
        return ""
    if isinstance(pattern, bytes):
        pattern = pattern.decode()
    return pattern if function == "starts_with" else re.split(r"[%_\\]", pattern, maxsplit=1)[0]


def _prefix_test(term: Term, prefix: str) -> Pruning:
    """Returns the range of strings that begin with ``prefix``.

    Its end is the next string without the prefix. Only surrogates follow U+D7FF, so the range has
    no end after that character, nor after U+10FFFF.
    """
    if not prefix:
        return Comparison(term, Op.ANY)
    not_below = Comparison(term, Op.GE, pa.array([prefix]))
    if prefix[-1] in ("\ud7ff", "\U0010ffff"):
        return not_below
    return And(
        (not_below, Comparison(term, Op.LT, pa.array([prefix[:-1] + chr(ord(prefix[-1]) + 1)])))
    )


def _in_list_test(argument: Node, options: dict[str, Any], outcome: bool) -> Pruning:
    members = options.get("value_set")
    if not isinstance(members, pa.ListScalar) or members.values is None:
        return Maybe()
    values = members.values
    has_null = values.null_count > 0
    behavior = options["null_matching_behavior"].as_py()
    constants = plain_values(values).drop_null()
    has_nan = _has_nan(constants)
    # The option decides whether a NULL value is in the set, outside it, or neither. A NaN may be
    # outside any set: ``is_in`` tells NaNs with different bits apart.
    null_is_in = has_null and behavior == _MATCH_NULLS
    nulls, nans = (null_is_in, has_nan) if outcome else (not null_is_in, True)
    if has_nan:
        constants = constants.filter(pc.invert(pc.is_nan(constants)))
        if _uncast(argument) is not argument or not len(constants):
            return Maybe()  # a cast may make a value NaN, or change a NaN
    if not outcome and pa.types.is_floating(constants.type):
        # Unlike =, ``is_in`` tells −0.0 from +0.0; bounds do not.
        constants = constants.filter(pc.not_equal(constants, pa.scalar(0, constants.type)))
    op = Op.IN if outcome else Op.NOT_IN
    if outcome and not len(constants):
        op = Op.NONE
    return _for_each_term(
        _terms_of(argument), lambda term: Comparison(term, op, constants, nulls=nulls, nans=nans)
    )


def _uncast(node: Node) -> Node:
    """Returns ``node`` without a cast that keeps every value, or fails.

    A safe cast does that, except to dates (which drop the time of day) and to narrow floats and
    decimals (which round). Some casts change the kind of value, for example from string to number.
    Then no literal compares with the column's own values, and the comparison is not used.
    """
    if not isinstance(node, Call) or node.function != "cast" or len(node.arguments) != 1:
        return node
    target = node.options.get("to_type")
    if target is None or any(_flag(node.options, n) for n in node.options if n.startswith("allow")):
        return node
    kind = target.type
    rounds = (
        pa.types.is_date,
        pa.types.is_float16,
        pa.types.is_float32,
        pa.types.is_decimal,
    )
    return node if any(check(kind) for check in rounds) else node.arguments[0]


def _without_string_cast(node: Node) -> Node:
    """Returns ``node`` without a cast to string, which changes no character of a string."""
    target = node.options.get("to_type") if isinstance(node, Call) else None
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return _uncast(node) if target is not None and any(c(target.type) for c in checks) else node


def _has_nan(values: pa.Array) -> bool:
    return bool(pa.types.is_floating(values.type)) and bool(pc.any(pc.is_nan(values)).as_py())


def _flag(options: dict[str, Any], name: str) -> bool:
    scalar = options.get(name)
    return bool(scalar.as_py()) if scalar is not None else False
