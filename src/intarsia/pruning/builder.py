"""From an expression's tree to ANDs and ORs over tests and matches: all that pruning needs.

A filter keeps the rows for which it is TRUE; NULL drops a row as FALSE does. So the question asked
here is always "for which rows can this be TRUE", and NOT is pushed down by asking "for which rows
can this be FALSE" instead. Both questions distribute over AND and OR in three-valued logic, so no
negation is left in the result. What is not understood becomes ``Maybe``: every row might match. A
result may let through too many rows, never too few.

NaN and NULL are told apart from ordinary values because they behave in their own way: ``NOT (x <
5)`` holds where x is NaN, but not where it is NULL.
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
from intarsia.expr.tree import Call, FieldRef, Literal, Node, is_deep, operands
from intarsia.pruning.predicate_tree import And, Maybe, Never, Or, Pruning, all_of, any_of
from intarsia.pruning.predicates import How, Match, Test, seeks_values
from intarsia.pruning.term import Term, field_term, term_of

_NEGATED = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}
_MATCHES = {
    "match_like": How.LIKE,
    "match_substring": How.SUBSTRING,
    "starts_with": How.STARTS_WITH,
    "ends_with": How.ENDS_WITH,
    "match_substring_regex": How.REGEX,
}
_CALLED = {
    "ia.contains_words": How.WORDS,
    "ia.list_contains": How.LIST_ANY,
    "ia.list_contains_any": How.LIST_ANY,
    "ia.list_contains_all": How.LIST_ALL,
    "ia.map_contains": How.MAP_ANY,
}
"""Functions of our own: of a term and a constant, NULL where either is."""
_CASES = ("utf8_lower", "utf8_upper")
_MATCH_NULLS = 0
"""``SetLookupOptions.null_matching_behavior``: a NULL in the set matches a NULL value."""


def pruning_of(node: Node) -> Pruning:
    """Which rows can be TRUE under ``node``, a filter's tree."""
    return Maybe() if is_deep(node) else _with_keys(_possible(node, True))


def escapes_of(node: Node) -> Pruning:
    """Which rows can be other than TRUE under ``node``: FALSE, or NULL."""
    return Maybe() if is_deep(node) else _other_than(node, True)


def _possible(node: Node, outcome: bool) -> Pruning:
    """Which rows can have ``outcome`` under ``node``."""
    match node:
        case Literal(value):
            return _constant(value, outcome)
        case FieldRef(path):
            return Test(field_term(*path), Op.EQ, pa.array([outcome]))
        case Call("invert", (argument,)):
            return _possible(argument, not outcome)
        case Call("and_kleene" | "and" | "or_kleene" | "or" as function):
            parts = [_possible(operand, outcome) for operand in operands(node, function)]
            all_needed = function.startswith("and") == outcome
            return all_of(*parts) if all_needed else any_of(*parts)
        case Call("if_else", (condition, then, otherwise)):
            return any_of(
                all_of(_possible(condition, True), _possible(then, outcome)),
                all_of(_possible(condition, False), _possible(otherwise, outcome)),
            )
        case Call(function, (left, right)) if function in COMPARISONS:
            return _comparison(COMPARISONS[function], left, right, outcome)
        case Call("is_null", (argument,), options):
            return _null_test(argument, outcome, nan_is_null=_flag(options, "nan_is_null"))
        case Call("is_valid", (argument,)):
            return _null_test(argument, not outcome, nan_is_null=False)
        case Call("is_nan", (argument,)):
            op = Op.NONE if outcome else Op.ANY
            return _about([term_of(argument)], lambda term: Test(term, op, nans=outcome))
        case Call("coalesce", (argument, Literal(value))):
            return _possible(argument, outcome) if _is_not(value, outcome) else Maybe()
        case Call(function, (argument,), options) if function in _MATCHES:
            return _text_match(function, argument, options, outcome)
        case Call(function, (argument, Literal(value))) if function in _CALLED:
            return _own_match(_CALLED[function], argument, value, outcome)
        case Call("is_in", (argument,), options):
            return _membership(argument, options, outcome)
        case _:
            return Maybe()


def _other_than(node: Node, outcome: bool) -> Pruning:
    """Which rows can be NULL, or the opposite of ``outcome``, under ``node``."""
    match node:
        case Literal(value):
            return _constant(value, not outcome) if value.is_valid else Maybe()
        case FieldRef():
            return _or_null(_possible(node, not outcome))
        case Call("invert", (argument,)):
            return _other_than(argument, not outcome)
        case Call("and_kleene" | "or_kleene" as function):
            parts = [_other_than(operand, outcome) for operand in operands(node, function)]
            any_suffices = (function == "and_kleene") == outcome
            return any_of(*parts) if any_suffices else all_of(*parts)
        case Call("is_null" | "is_valid"):
            return _possible(node, not outcome)
        case Call(function, (_, _)) if function in COMPARISONS:
            return _or_null(_possible(node, not outcome))
        case Call(function) if function in ("is_in", *_MATCHES, *_CALLED):
            return _or_null(_possible(node, not outcome))
        case _:
            return Maybe()


def _or_null(pruning: Pruning) -> Pruning:
    """A test, and NULLs as well; what no test tells may be NULL anywhere."""
    match pruning:
        case Test() | Match():
            return replace(pruning, nulls=True)
        case And(parts):  # which say the same of one term, each in its way
            return And(tuple(_or_null(part) for part in parts))
        case _:
            return Maybe()


def _with_keys(pruning: Pruning) -> Pruning:
    """With what a map has to hold for the value of a key to pass, as NULL does not: the key, and of
    a few values one.
    """
    match pruning:
        case And(parts):
            return all_of(*map(_with_keys, parts))
        case Or(parts):
            return any_of(*map(_with_keys, parts))
        case Test(term=term, nulls=False) | Match(term=term, nulls=False):
            held = _map_value(term.node)
            if held is not None and isinstance(held.arguments[0], FieldRef):
                keys = plain_values(pa.repeat(held.options["query_key"], 1))
                of = field_term(*held.arguments[0].path)
                has_key = Match(of, How.MAP_ANY, values=keys)
                if not seeks_values(pruning) or held is not term.node:
                    return all_of(pruning, has_key)
                has_value = Match(of, How.MAP_VALUE, values=pruning.values, key=keys[0])
                return all_of(pruning, has_key, has_value)
    return pruning


def _map_value(node: Node) -> Call | None:
    """The value of a map's key that ``node`` is, or a function of it, which is NULL where it is."""
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
    """Is ``value`` the other truth value?"""
    return bool(pa.types.is_boolean(value.type)) and value.as_py() is (not outcome)


def _about(terms: list[Term | None], asked: Callable[[Term], Pruning]) -> Pruning:
    """The same question asked of terms that stand for one another."""
    distinct = dict.fromkeys(term for term in terms if term is not None)
    return all_of(*(asked(term) for term in distinct))


def _terms_of(node: Node) -> list[Term | None]:
    """The term that ``node`` is, and the one without a cast that keeps every value."""
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
    asked = op if outcome else _NEGATED[op]
    return _about(terms, lambda term: Test(term, asked, values, nans=nans))


def _null_test(argument: Node, is_null: bool, *, nan_is_null: bool) -> Pruning:
    uncast = _uncast(argument)
    if nan_is_null and uncast is not argument:
        return Maybe()
    if is_null:
        test = partial(Test, op=Op.NONE, nulls=True, nans=nan_is_null)
    else:
        test = partial(Test, op=Op.ANY, nans=not nan_is_null)
    return _about([term_of(uncast)], test)


def _text_match(function: str, argument: Node, options: dict[str, Any], outcome: bool) -> Pruning:
    """A search in a text: as such, and for what the text begins with as a range."""
    pattern, ignore_case = options["pattern"].as_py(), _flag(options, "ignore_case")
    prefix = _prefix_of(function, options) if function in ("starts_with", "match_like") else ""
    if prefix and function == "match_like" and pattern in (f"{prefix}%", f"{prefix}%".encode()):
        function, pattern = "starts_with", pattern[:-1]

    def match(term: Term, through: str = "") -> Match:
        how = _MATCHES[function]
        return Match(term, how, pattern, ignore_case, through=through, negated=not outcome)

    subject = _as_text(argument)
    terms = [term_of(subject), term_of(argument)]
    found = _about(terms, match)
    if isinstance(subject, Call) and subject.function in _CASES:
        inner = term_of(_as_text(subject.arguments[0]))
        found = all_of(found, _about([inner], partial(match, through=subject.function)))
    if outcome and function in ("starts_with", "match_like"):
        found = all_of(_about(terms, lambda term: _prefix_test(term, prefix)), found)
    return found


def _own_match(how: How, argument: Node, value: pa.Scalar, outcome: bool) -> Pruning:
    """One of our own functions of a term and a constant."""
    if not value.is_valid:
        is_one = how is not How.WORDS and not isinstance(value, pa.ListScalar)
        return Maybe() if is_one and not outcome else Never()  # empty lists do not hold NULL
    if how is How.WORDS:
        words = value.as_py()
        return _about([term_of(argument)], lambda t: Match(t, how, words, negated=not outcome))
    values = value.values if isinstance(value, pa.ListScalar) else pa.repeat(value, 1)
    kept = plain_values(values).drop_null()
    return _about([term_of(argument)], lambda t: Match(t, how, values=kept, negated=not outcome))


def _prefix_of(function: str, options: dict[str, Any]) -> str:
    """What every text that matches begins with."""
    pattern = options["pattern"].as_py()
    if _flag(options, "ignore_case"):
        return ""
    if isinstance(pattern, bytes):
        pattern = pattern.decode()
    return pattern if function == "starts_with" else re.split(r"[%_\\]", pattern, maxsplit=1)[0]


def _prefix_test(term: Term, prefix: str) -> Pruning:
    """Texts that begin with ``prefix`` lie between it and the next text that does not.

    There are none after U+D7FF but surrogates, so such a bound is given up.
    """
    if not prefix:
        return Test(term, Op.ANY)
    above = Test(term, Op.GE, pa.array([prefix]))
    if prefix[-1] in ("\ud7ff", "\U0010ffff"):
        return above
    return And((above, Test(term, Op.LT, pa.array([prefix[:-1] + chr(ord(prefix[-1]) + 1)]))))


def _membership(argument: Node, options: dict[str, Any], outcome: bool) -> Pruning:
    members = options.get("value_set")
    if not isinstance(members, pa.ListScalar) or members.values is None:
        return Maybe()
    values = members.values
    has_null = values.null_count > 0
    behavior = options["null_matching_behavior"].as_py()
    kept = plain_values(values).drop_null()
    has_nan = _has_nan(kept)
    # A NULL value is in the set, outside it, or neither, by the behaviour asked for. A NaN may be
    # outside whatever the set holds: membership tells NaNs of other bits apart.
    null_is_in = has_null and behavior == _MATCH_NULLS
    nulls, nans = (null_is_in, has_nan) if outcome else (not null_is_in, True)
    if has_nan:
        kept = kept.filter(pc.invert(pc.is_nan(kept)))
        if _uncast(argument) is not argument or not len(kept):
            return Maybe()  # what is NaN, or is made of it, depends on the type it is cast to
    if not outcome and pa.types.is_floating(kept.type):
        # Unlike =, membership tells −0.0 from +0.0, which bounds do not.
        kept = kept.filter(pc.not_equal(kept, pa.scalar(0, kept.type)))
    op = Op.IN if outcome else Op.NOT_IN
    if outcome and not len(kept):
        op = Op.NONE
    return _about(_terms_of(argument), lambda term: Test(term, op, kept, nulls=nulls, nans=nans))


def _uncast(node: Node) -> Node:
    """``node`` without a cast that keeps every value, or fails.

    A safe cast does, except to dates (which drop the time of day) and to narrow floats (which
    round). Where it leaves the column's kind of value, text to number say, no literal compares with
    the column's own values, and the test is not used.
    """
    if not isinstance(node, Call) or node.function != "cast" or len(node.arguments) != 1:
        return node
    target = node.options.get("to_type")
    if target is None or any(_flag(node.options, n) for n in node.options if n.startswith("allow")):
        return node
    kind = target.type
    rounding = (
        pa.types.is_date,
        pa.types.is_float16,
        pa.types.is_float32,
        pa.types.is_decimal,
    )
    return node if any(check(kind) for check in rounding) else node.arguments[0]


def _as_text(node: Node) -> Node:
    """``node`` without a cast to text: it has no other characters where it is text already."""
    target = node.options.get("to_type") if isinstance(node, Call) else None
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return _uncast(node) if target is not None and any(c(target.type) for c in checks) else node


def _has_nan(values: pa.Array) -> bool:
    return bool(pa.types.is_floating(values.type)) and bool(pc.any(pc.is_nan(values)).as_py())


def _flag(options: dict[str, Any], name: str) -> bool:
    scalar = options.get(name)
    return bool(scalar.as_py()) if scalar is not None else False
