"""From an expression's tree to ANDs and ORs over simple tests: all that pruning needs.

A filter keeps the rows for which it is TRUE; NULL drops a row as FALSE does. So the question asked
here is always "for which rows can this be TRUE", and NOT is pushed down by asking "for which rows
can this be FALSE" instead. Both questions distribute over AND and OR in three-valued logic, so no
negation is left in the result. What is not understood becomes ``Maybe``: every row might match. A
result may let through too many rows, never too few.

NaN and NULL are told apart from ordinary values because they behave in their own way: ``NOT (x <
5)`` holds where x is NaN, but not where it is NULL.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.predicate.expression import Call, FieldRef, Literal, Node


class Op(Enum):
    """What a test asks of a value that is neither NULL nor NaN."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "IN"
    NOT_IN = "NOT IN"
    ANY = "ANY"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class Test:
    """One field against constants. ``nulls`` and ``nans`` say whether those rows pass as well."""

    field: tuple[str, ...]
    op: Op
    values: tuple[pa.Scalar, ...] = ()
    nulls: bool = False
    nans: bool = False

    def __str__(self) -> str:
        name = ".".join(self.field)
        if self.op is Op.NONE:
            wanted = [word for word, asked in (("NULL", self.nulls), ("NAN", self.nans)) if asked]
            return f"{name} IS {' OR '.join(wanted)}" if wanted else f"never {name}"
        if self.op is Op.ANY:
            return f"{name} IS NOT NULL"
        if self.op in (Op.IN, Op.NOT_IN):
            shown = ", ".join(str(value) for value in self.values[:3])
            more = f", … {len(self.values)} values" if len(self.values) > 3 else ""
            return f"{name} {self.op.value} ({shown}{more})"
        return f"{name} {self.op.value} {self.values[0]}"


@dataclass(frozen=True, slots=True)
class And:
    """Rows that pass every part."""

    parts: tuple[Pruning, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Rows that pass any part."""

    parts: tuple[Pruning, ...]


@dataclass(frozen=True, slots=True)
class Maybe:
    """Not understood: any row might match."""


@dataclass(frozen=True, slots=True)
class Never:
    """No row can match."""


Pruning = Test | And | Or | Maybe | Never

_NEGATED = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}
_MIRRORED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
COMPARISONS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
_MATCH_NULLS = 0
"""``SetLookupOptions.null_matching_behavior``: a NULL in the set matches a NULL value."""


def pruning_of(node: Node) -> Pruning:
    """Which rows can be TRUE under ``node``, a filter's tree."""
    try:
        return _possible(node, True)
    except RecursionError:
        return Maybe()


def escapes_of(node: Node) -> Pruning:
    """Which rows can be other than TRUE under ``node``: FALSE, or NULL."""
    try:
        return _other_than(node, True)
    except RecursionError:
        return Maybe()


def tests_of(pruning: Pruning) -> list[Test]:
    """The distinct tests of a pruning tree, in order of appearance."""
    match pruning:
        case Test():
            return [pruning]
        case And(parts) | Or(parts):
            return list(dict.fromkeys(test for part in parts for test in tests_of(part)))
        case _:
            return []


def _possible(node: Node, outcome: bool) -> Pruning:
    """Which rows can have ``outcome`` under ``node``."""
    match node:
        case Literal(value):
            return _constant(value, outcome)
        case FieldRef(path):
            return Test(path, Op.EQ, (pa.scalar(outcome),))
        case Call("invert", (argument,)):
            return _possible(argument, not outcome)
        case Call("and_kleene" | "and" | "or_kleene" | "or" as function):
            parts = [_possible(operand, outcome) for operand in _operands(node, function)]
            all_needed = function.startswith("and") == outcome
            return _all_of(*parts) if all_needed else _any_of(*parts)
        case Call("if_else", (condition, then, otherwise)):
            return _any_of(
                _all_of(_possible(condition, True), _possible(then, outcome)),
                _all_of(_possible(condition, False), _possible(otherwise, outcome)),
            )
        case Call(function, (left, right)) if function in COMPARISONS:
            return _comparison(COMPARISONS[function], left, right, outcome)
        case Call("is_null", (argument,), options):
            return _null_test(argument, outcome, nan_is_null=_flag(options, "nan_is_null"))
        case Call("is_valid", (argument,)):
            return _null_test(argument, not outcome, nan_is_null=False)
        case Call("is_nan", (FieldRef(path),)):
            return Test(path, Op.NONE, nans=True) if outcome else Test(path, Op.ANY)
        case Call("coalesce", (argument, Literal(value))):
            return _possible(argument, outcome) if _is_not(value, outcome) else Maybe()
        case Call("starts_with" | "match_like", (FieldRef(path),), options) if outcome:
            return _prefix_test(path, _prefix_of(node.function, options))
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
            parts = [_other_than(operand, outcome) for operand in _operands(node, function)]
            any_suffices = (function == "and_kleene") == outcome
            return _any_of(*parts) if any_suffices else _all_of(*parts)
        case Call("is_null" | "is_valid"):
            return _possible(node, not outcome)
        case Call(function, (_, _)) if function in COMPARISONS:
            return _or_null(_possible(node, not outcome))
        case Call("is_in"):
            return _or_null(_possible(node, not outcome))
        case _:
            return Maybe()


def _or_null(pruning: Pruning) -> Pruning:
    """A test, and NULLs as well; what no test tells may be NULL anywhere."""
    return replace(pruning, nulls=True) if isinstance(pruning, Test) else Maybe()


def _constant(value: pa.Scalar, outcome: bool) -> Pruning:
    if not value.is_valid:
        return Never()
    if not pa.types.is_boolean(value.type):
        return Maybe()
    return Maybe() if value.as_py() is outcome else Never()


def _is_not(value: pa.Scalar, outcome: bool) -> bool:
    """Is ``value`` the other truth value?"""
    return bool(pa.types.is_boolean(value.type)) and value.as_py() is (not outcome)


def _operands(node: Node, function: str) -> list[Node]:
    """What a chain of one function joins: ``a``, ``b``, ``c`` of ``(a | b) | c``."""
    found: list[Node] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Call) and current.function == function:
            pending += reversed(current.arguments)
        else:
            found.append(current)
    return found


def _all_of(*parts: Pruning) -> Pruning:
    if any(isinstance(part, Never) for part in parts):
        return Never()
    flat = [p for part in parts for p in (part.parts if isinstance(part, And) else (part,))]
    kept = tuple(part for part in flat if not isinstance(part, Maybe))
    return And(kept) if len(kept) > 1 else kept[0] if kept else Maybe()


def _any_of(*parts: Pruning) -> Pruning:
    if any(isinstance(part, Maybe) for part in parts):
        return Maybe()
    flat = [p for part in parts for p in (part.parts if isinstance(part, Or) else (part,))]
    kept = tuple(part for part in flat if not isinstance(part, Never))
    return Or(kept) if len(kept) > 1 else kept[0] if kept else Never()


def _comparison(op: Op, left: Node, right: Node, outcome: bool) -> Pruning:
    if isinstance(_uncast(left), Literal):
        left, right, op = right, left, _MIRRORED.get(op, op)
    field, literal = _uncast(left), _uncast(right)
    if not isinstance(field, FieldRef) or not isinstance(literal, Literal):
        return Maybe()
    value = literal.value
    if not value.is_valid:
        return Never()
    if _is_nan(value):
        return Maybe()
    # NaN passes <> and, negated, everything that is not <>.
    nans = (op is Op.NE) == outcome
    return Test(field.path, op if outcome else _NEGATED[op], (value,), nans=nans)


def _null_test(argument: Node, is_null: bool, *, nan_is_null: bool) -> Pruning:
    cast, argument = argument, _uncast(argument)
    if not isinstance(argument, FieldRef) or (nan_is_null and argument is not cast):
        return Maybe()
    if is_null:
        return Test(argument.path, Op.NONE, nulls=True, nans=nan_is_null)
    return Test(argument.path, Op.ANY, nans=not nan_is_null)


def _prefix_of(function: str, options: dict[str, Any]) -> str:
    """What every text that matches begins with."""
    pattern = options["pattern"].as_py()
    if _flag(options, "ignore_case"):
        return ""
    if isinstance(pattern, bytes):
        pattern = pattern.decode()
    return pattern if function == "starts_with" else re.split(r"[%_\\]", pattern, maxsplit=1)[0]


def _prefix_test(path: tuple[str, ...], prefix: str) -> Pruning:
    """Texts that begin with ``prefix`` lie between it and the next text that does not.

    There are none after U+D7FF but surrogates, so such a bound is given up.
    """
    above = Test(path, Op.GE, (pa.scalar(prefix),))
    if not prefix:
        return Test(path, Op.ANY)
    if prefix[-1] in ("\ud7ff", "\U0010ffff"):
        return above
    return And((above, Test(path, Op.LT, (pa.scalar(prefix[:-1] + chr(ord(prefix[-1]) + 1)),))))


def _membership(argument: Node, options: dict[str, Any], outcome: bool) -> Pruning:
    cast, argument = argument, _uncast(argument)
    members = options.get("value_set")
    if not isinstance(argument, FieldRef) or not isinstance(members, pa.ListScalar):
        return Maybe()
    values = members.values
    if values is None:
        return Maybe()
    has_null = values.null_count > 0
    behavior = options["null_matching_behavior"].as_py()
    valid = values.drop_null()
    has_nan = pa.types.is_floating(valid.type) and bool(pc.any(pc.is_nan(valid)).as_py())
    # A NULL value is in the set, outside it, or neither, by the behaviour asked for.
    null_is_in = has_null and behavior == _MATCH_NULLS
    if outcome:
        nulls, nans = null_is_in, has_nan
    else:
        nulls, nans = not null_is_in, not has_nan
    kept = tuple(value for value in valid if not _is_nan(value))
    if has_nan and (argument is not cast or not kept):
        return Maybe()  # what is NaN, or is made of it, depends on the type it is cast to
    if not outcome and pa.types.is_floating(valid.type):
        # Unlike =, membership tells −0.0 from +0.0, which bounds do not.
        kept = tuple(value for value in kept if value.as_py() != 0)
    op = Op.IN if outcome else Op.NOT_IN
    if outcome and not kept:
        op = Op.NONE
    return Test(argument.path, op, kept, nulls=nulls, nans=nans)


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


def _is_nan(value: pa.Scalar) -> bool:
    return bool(pa.types.is_floating(value.type)) and value.is_valid and math.isnan(value.as_py())


def _flag(options: dict[str, Any], name: str) -> bool:
    scalar = options.get(name)
    return bool(scalar.as_py()) if scalar is not None else False
