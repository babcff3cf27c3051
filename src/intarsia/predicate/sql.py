"""SQL conditions → ``pyarrow.compute.Expression``.

sqlglot parses; this module maps what it understands onto expressions of a given schema and refuses
the rest by name. Text literals take the type of the field they are compared with, as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from intarsia.errors import PredicateError, instead
from intarsia.predicate.casts import cast_type
from intarsia.predicate.constants import (
    cast_scalar,
    exactly,
    number_scalar,
    text_scalar,
    whole_around,
)
from intarsia.predicate.decimals import Typed, computed
from intarsia.predicate.folding import Now, folded, utc_now
from intarsia.predicate.functions import contains_words, is_list
from intarsia.predicate.literals import is_constant
from intarsia.predicate.members import is_member
from intarsia.predicate.membership import Membership, call_of, held_type, membership_of
from intarsia.predicate.moments import in_utc, part_of
from intarsia.predicate.spans import odd_span
from intarsia.predicate.taken import columns_taken
from intarsia.predicate.text_search import (
    SEARCHES,
    TextSearch,
    matches_like,
    regex_problem,
    text_search_of,
)
from intarsia.predicate.views import VIEWED

_COMPARE: dict[type[exp.Expr], Callable[[Any, Any], pc.Expression]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
}
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
"""What holds of the sides of each when they are changed about."""
_ARITHMETIC: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_FUNCTIONS: dict[type[exp.Expr], Callable[[Any], pc.Expression]] = {
    exp.Lower: pc.utf8_lower,
    exp.Upper: pc.utf8_upper,
    exp.Abs: pc.abs,
}


ODD = (sqlglot.errors.SqlglotError, AttributeError, LookupError, TypeError, ValueError)
"""What comes of SQL that sqlglot cannot parse: its own errors, and others by mistake, also of trees
that lack a part."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_TOO_DEEP = "the condition nests too deeply; write long lists of alternatives with IN"


def parse_where(text: str, schema: pa.Schema, now: Now | None = utc_now) -> pc.Expression:
    """The Expression of a SQL condition over ``schema``'s fields.

    What it computes of constants alone is worked out first, as DuckDB does in UTC: ``now() -
    INTERVAL '1 hour'``, ``date_trunc('month', current_date)``, ``7 * 86400``. Without ``now``, the
    current moment is not known.

    Raises ``PredicateError`` for text that is no condition, an unknown field, a literal that does
    not fit the field it is compared with, or SQL beyond comparisons, BETWEEN, IN, LIKE, ILIKE, IS
    NULL, IS TRUE, IS DISTINCT FROM, AND, OR, NOT, +, -, *, CAST, lower, upper, length, abs, isnan,
    coalesce, date_trunc, year, month, extract and the like, starts_with, ends_with, contains,
    regexp_matches, list_contains, list_has_any, list_has_all, map_contains (by any of DuckDB's
    names for them), ``= ANY`` of a list and contains_words.
    """
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb", into=exp.Condition)
    except ODD as error:
        reason = [*str(error).splitlines(), ""][0].split(" into <class")[0]
        raise PredicateError(f"cannot parse the condition {text!r}: {reason}") from error
    except RecursionError as error:
        raise PredicateError(_TOO_DEEP) from error
    odd = odd_span(text, "duckdb")
    if odd is not None:
        raise PredicateError(f"{text!r}: the span {odd!r} is not understood")
    if "~" in _QUOTED.sub("", text) and tree.find(exp.RegexpLike):  # the two parse alike
        raise PredicateError(f"{text!r}: ~ is not understood; regexp_matches is, and finds parts")
    for name in sorted(columns_taken(tree, [schema], text, "duckdb")):
        raise PredicateError(
            f'{text!r}: a column is called {name}; write "{name}" for it, and () after functions'
        )
    try:
        return Translator(schema).condition(folded(tree, now))
    except PredicateError:
        raise
    except RecursionError as error:
        raise PredicateError(_TOO_DEEP) from error
    except ODD as error:
        raise PredicateError(f"cannot understand the condition {text!r}") from error


class Translator:
    """Translates one condition; knows the schema its fields come from."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._known: dict[int, tuple[exp.Expr, Typed]] = {}
        """What arithmetic gives, by nodes, which are kept so that no other has the same number."""

    def condition(self, node: exp.Expr) -> pc.Expression:
        search = text_search_of(node)
        if search is not None and not self._holds_several(search.subject):
            return self._search(search)
        asked = membership_of(node)
        if asked is not None and isinstance(asked.subject, exp.Column | exp.Dot):
            kind = self._type_of(asked.subject)
            if kind is not None and held_type(kind, asked) is not None:
                return self._membership(node, asked, kind)
            raise PredicateError(f"{_text(node)!r}: {_text(asked.subject)} is {kind}")
        match node:
            case exp.Paren(this=inner):
                return self.condition(inner)
            case exp.And():
                return self.condition(node.left) & self.condition(node.right)
            case exp.Or():
                return self.condition(node.left) | self.condition(node.right)
            case exp.Not(this=inner):
                return ~self.condition(inner)
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node)
            case exp.Is():
                return self._is(node)
            case exp.Like() | exp.ILike():
                return self._like(node, None)
            case exp.Escape(this=exp.Like() | exp.ILike() as inner, expression=escape):
                return self._like(inner, escape)
            case exp.Boolean():
                return pc.scalar(bool(node.this))
            case exp.Anonymous(this=str(name), expressions=[subject, words]) if (
                name.lower() == "contains_words"
            ):
                return self._words(node, subject, words)
            case exp.Column():
                return self._boolean_column(node)
            case exp.IsNan(this=inner):
                return self._is_nan(node, inner)
            case exp.NullSafeEQ():
                return self._same(node)
            case exp.NullSafeNEQ():
                return ~self._same(node)
        if type(node) in _COMPARE:
            sides = node.args["this"], node.args["expression"]
            return self._compare(type(node), *sides)
        raise PredicateError(f"{_text(node)!r} is not a condition this understands")

    def _compare(
        self,
        comparison: type[exp.Expr],
        left: exp.Expr,
        right: exp.Expr,
    ) -> pc.Expression:
        op = _COMPARE[comparison]
        is_turned = is_constant(left) and not is_constant(right)
        if not is_turned and not is_constant(right):
            return op(self._value(left), self._value(right))
        node, constant = (right, left) if is_turned else (left, right)
        value, scalar = self._value(node), self._beside(node, constant)
        around = whole_around(scalar, self._type_of(node))
        if around is not None:
            return _with_fraction(_TURNED[comparison] if is_turned else comparison, value, *around)
        # Views are read as large ones, but NULLs stay.
        kind = scalar.type if scalar.is_valid else VIEWED.get(scalar.type, scalar.type)
        if kind != scalar.type:
            value, scalar = value.cast(kind), pa.scalar(None, kind)
        return op(pc.scalar(scalar), value) if is_turned else op(value, pc.scalar(scalar))

    def _between(self, node: exp.Between) -> pc.Expression:
        if node.args.get("symmetric"):
            raise PredicateError(f"{_text(node)!r}: SYMMETRIC is not understood")
        low, high = node.args["low"], node.args["high"]
        above = self._compare(exp.GTE, node.this, low)
        return above & self._compare(exp.LTE, node.this, high)

    def _in(self, node: exp.In) -> pc.Expression:
        members = node.expressions
        if not members:
            raise PredicateError(f"{_text(node)!r}: only IN with a list of constants is understood")
        kind = self._type_of(node.this)
        scalars = [self._beside(node.this, member) for member in members]
        known = [scalar for scalar in scalars if scalar.is_valid]
        subject = self._value(node.this)
        # SQL: NULL IN (…) is NULL, and a NULL in the list can turn FALSE into NULL, never into
        # TRUE.
        unknown = pc.scalar(pa.scalar(None, pa.bool_()))
        found = is_member(subject, [one for one in known if not whole_around(one, kind)], kind)
        if len(known) < len(scalars):
            found = pc.if_else(found, found, unknown)
        return pc.if_else(subject.is_valid(), found, unknown)

    def _membership(self, node: exp.Expr, asked: Membership, kind: pa.DataType) -> pc.Expression:
        if not asked.is_certain and not is_plainly_wanted(node):
            raise PredicateError(f"{_text(node)!r} is understood where it is wanted, not under NOT")
        held = held_type(kind, asked)
        constants = [self._scalar(constant, held) for constant in asked.constants]
        return call_of(asked, self._value(asked.subject), kind, constants)

    def _is(self, node: exp.Is) -> pc.Expression:
        operand = node.expression
        if isinstance(operand, exp.Null):
            return self._value(node.this).is_null()
        if isinstance(operand, exp.Boolean):
            subject, wanted = self.condition(node.this), bool(operand.this)
            truth = subject if wanted else ~subject
            return pc.coalesce(truth, pc.scalar(False))
        raise PredicateError(f"{_text(node)!r} is not a condition this understands")

    def _like(self, node: exp.Like | exp.ILike, escape: exp.Expr | None) -> pc.Expression:
        pattern = node.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise PredicateError(f"{_text(node)!r}: LIKE needs a text constant as its pattern")
        value, escaping = self._text_value(node.this), escape.name if escape else ""
        ignore_case = isinstance(node, exp.ILike)
        found = matches_like(value, pattern.this, escaping, ignore_case=ignore_case)
        return ~found if node.args.get("negate") else found

    def _search(self, search: TextSearch) -> pc.Expression:
        wanted, flags = search.wanted, search.flags
        asked = f"{_text(search.node)!r}: {search.name}"
        if not (isinstance(wanted, exp.Literal) and wanted.is_string):
            raise PredicateError(f"{asked} needs a text constant")
        if flags is None:
            raise PredicateError(f"{asked} needs no other options than i and s")
        problem = regex_problem(wanted.this) if search.name == "regexp_matches" else None
        if problem:
            raise PredicateError(f"{_text(search.node)!r}: {problem}")
        value = self._text_value(search.subject, search.name)
        return SEARCHES[search.name](value, flags + wanted.this)

    def _holds_several(self, subject: exp.Expr) -> bool:
        kind = self._type_of(subject)
        return kind is not None and bool(pa.types.is_nested(kind))

    def _words(self, node: exp.Expr, subject: exp.Expr, words: exp.Expr) -> pc.Expression:
        if not (isinstance(words, exp.Literal) and words.is_string):
            raise PredicateError(f"{_text(node)!r}: contains_words needs a text constant of words")
        return contains_words(self._text_value(subject, "contains_words"), words.this)

    def _text_value(self, node: exp.Expr, asking: str = "LIKE") -> pc.Expression:
        """A value that has to be text."""
        kind = self._type_of(node)
        if kind is not None and not (
            pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_text_view(kind)
        ):
            raise PredicateError(f"{asking} needs text, and {_text(node)} is {kind}")
        return self._undictionaried(node)

    def _undictionaried(self, node: exp.Expr) -> pc.Expression:
        """A value without Arrow's dictionary, which pyarrow's functions do not take."""
        value, kind = self._value(node), self._type_of(node)
        if kind is not None and pa.types.is_dictionary(kind):
            return value.cast(kind.value_type)
        return value

    def _length(self, node: exp.Expr) -> pc.Expression:
        kind = self._type_of(node)
        if kind is not None and is_list(kind):
            return pc.list_value_length(self._value(node))
        return pc.utf8_length(self._text_value(node, "length"))

    def _cast(self, node: exp.Expr, target: pa.DataType) -> pc.Expression:
        value, kind = self._value(node), self._type_of(node)
        if kind is not None and pa.types.is_date(target):
            value = in_utc(value, kind)
        return value.cast(target)

    def _same(self, node: exp.Expr) -> pc.Expression:
        """IS NOT DISTINCT FROM a constant."""
        left, right = node.args["this"], node.args["expression"]
        if is_constant(left):
            left, right = right, left
        if not is_constant(right):
            raise PredicateError(f"{_text(node)!r} is understood of a constant")
        if isinstance(right.unnest(), exp.Null):
            return self._value(left).is_null()
        return pc.coalesce(self._compare(exp.EQ, left, right), pc.scalar(False))

    def _is_nan(self, node: exp.Expr, subject: exp.Expr) -> pc.Expression:
        kind = self._type_of(subject)
        if kind is not None and not pa.types.is_floating(kind):
            raise PredicateError(f"{_text(node)!r}: {_text(subject)} is {kind}, which has no NaN")
        return pc.is_nan(self._value(subject))

    def _boolean_column(self, node: exp.Column) -> pc.Expression:
        kind = self._type_of(node)
        if kind is None or not pa.types.is_boolean(kind):
            raise PredicateError(f"{_text(node)!r} is {kind}, not a condition")
        return self._value(node)

    def _value(self, node: exp.Expr) -> pc.Expression:
        match node:
            case exp.Paren(this=inner):
                return self._value(inner)
            case exp.Column() | exp.Dot():
                return pc.field(*self._resolve(node)[0])
            case exp.Neg(this=inner) if not is_constant(inner):
                return pc.negate_checked(self._value(inner))
            case exp.Coalesce(this=inner, expressions=others):
                kind = self._type_of(inner)
                return pc.coalesce(self._value(inner), *(self._of_type(o, kind) for o in others))
            case exp.TryCast():
                raise PredicateError(f"{_text(node)!r}: TRY_CAST is not understood")
            case exp.Cast(this=inner, to=target) if not is_constant(node):
                return self._cast(inner, cast_type(target))
        if is_constant(node):
            return pc.scalar(self._scalar(node, None))
        if type(node) in _ARITHMETIC:
            return self._computed(node)[0]
        if isinstance(node, exp.Length):
            return self._length(node.this)
        part = part_of(node)
        if part is not None:
            return part.of(self._value(part.subject), self._type_of(part.subject))
        if type(node) in _FUNCTIONS:
            return _FUNCTIONS[type(node)](self._undictionaried(node.this))
        raise PredicateError(f"{_text(node)!r} is not a value this understands")

    def _computed(self, node: exp.Expr) -> Typed:
        """What arithmetic gives. A constant beside a decimal is one, too."""
        if id(node) not in self._known:
            sides = [node.args["this"], node.args["expression"]]
            kinds = [None if is_constant(side) else self._type_of(side) for side in sides]
            values = []
            for number, side in enumerate(sides):
                beside = kinds[1 - number]
                if is_constant(side) and beside is not None and pa.types.is_decimal(beside):
                    scalar = self._beside(sides[1 - number], side)
                    values.append(pc.scalar(scalar))
                    kinds[number] = scalar.type
                else:
                    values.append(self._value(side))
            one, other = zip(values, kinds, strict=True)
            self._known[id(node)] = node, computed(_ARITHMETIC[type(node)], one, other)
        return self._known[id(node)][1]

    def _of_type(self, node: exp.Expr, kind: pa.DataType | None) -> pc.Expression:
        """A value that has to be of that type: pyarrow takes one unit's moments for another's."""
        try:
            if kind is not None and is_constant(node):
                return pc.scalar(exactly(self._scalar(node, kind), kind))
        except pa.ArrowException as error:
            raise PredicateError(f"{_text(node)} is no {kind}") from error
        if kind is None or self._type_of(node) != kind:
            raise PredicateError(f"{_text(node)} and what it stands for are not of one type")
        return self._value(node)

    def _beside(self, subject: exp.Expr, constant: exp.Expr) -> pa.Scalar:
        """A constant that ``subject`` is compared with."""
        kind = self._type_of(subject)
        try:
            return self._scalar(constant, kind)
        except PredicateError as error:
            raise PredicateError(f"{_text(subject)}: {error}") from error

    def _scalar(self, node: exp.Expr, kind: pa.DataType | None) -> pa.Scalar:
        """A constant as a scalar, of type ``kind`` where it would otherwise be mere text."""
        match node:
            case exp.Paren(this=inner):
                return self._scalar(inner, kind)
            case exp.Null():
                return pa.scalar(None, kind or pa.null())
            case exp.Boolean(this=value):
                return pa.scalar(bool(value))
            case exp.Neg(this=exp.Literal() as inner) if not inner.is_string:
                return number_scalar(f"-{inner.this}", kind)
            case exp.Cast(this=inner, to=target) if _is_read_once(node):
                return cast_scalar(partial(self._scalar, inner), cast_type(target), kind)
            case exp.Literal(this=text) if node.is_string:
                return text_scalar(text, kind)
            case exp.Literal(this=text):
                return number_scalar(text, kind)
        raise PredicateError(f"{_text(node)!r} is not a constant this understands")

    def _type_of(self, node: exp.Expr) -> pa.DataType | None:
        """The type of a field, cast or decimal; None where it would take evaluation to tell."""
        match node:
            case exp.Paren(this=inner):
                return self._type_of(inner)
            case exp.Column() | exp.Dot():
                return self._resolve(node)[1]
            case exp.Neg(this=inner) | exp.Coalesce(this=inner) | exp.Abs(this=inner):
                return self._type_of(inner)
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._computed(node)[1]
            case exp.Cast(to=target):
                return cast_type(target)
            case exp.Lower() | exp.Upper():
                return pa.string()
        part = part_of(node)
        return None if part is None else part.type(self._type_of(part.subject))

    def _resolve(self, node: exp.Expr) -> tuple[tuple[str, ...], pa.DataType]:
        """The path and type of a field; names match exactly first, then regardless of case."""
        path: list[str] = []
        names = [part.name for part in node.parts]  # type: ignore[attr-defined]  # Column and Dot
        children: list[pa.Field] = list(self._schema)
        kind = None
        for name in names:
            found = [f for f in children if f.name == name] or [
                f for f in children if f.name.lower() == name.lower()
            ]
            if len(found) != 1:
                known = [f.name for f in found or children]
                problem = f"is ambiguous: {', '.join(known)}" if found else "is not there"
                if not found:
                    problem += instead(name, known) if known else f": {'.'.join(path)} is {kind}"
                raise PredicateError(f"column {'.'.join(names)!r} {problem}")
            path.append(found[0].name)
            kind = found[0].type
            children = list(kind.fields) if pa.types.is_struct(kind) else []
        assert kind is not None
        return tuple(path), kind


def _text(node: exp.Expr) -> str:
    """A part of a condition as it might have been written."""
    return node.sql("duckdb")


def _with_fraction(
    comparison: type[exp.Expr], value: pc.Expression, low: pa.Scalar, high: pa.Scalar
) -> pc.Expression:
    """Integers compared with what is between ``low`` and ``high``: doubles may not tell them apart.

    None is equal, but of a NULL that is not known.
    """
    at_most, at_least = value <= pc.scalar(low), value >= pc.scalar(high)
    if comparison in (exp.LT, exp.LTE):
        return at_most
    if comparison in (exp.GT, exp.GTE):
        return at_least
    return at_most & at_least if comparison is exp.EQ else at_most | at_least


def is_plainly_wanted(node: exp.Expr) -> bool:
    """Does a condition keep rows by being TRUE alone, whether it is FALSE or NULL elsewhere?"""
    parent = node.parent
    while isinstance(parent, exp.Condition):
        if not isinstance(parent, exp.And | exp.Or | exp.Paren):
            return False
        parent = parent.parent
    return True


def _is_read_once(node: exp.Cast) -> bool:
    """Is a constant cast as it is written, and not as something else made of it?"""
    return type(node) is exp.Cast and not isinstance(node.this.unnest(), exp.Cast)


def _is_text_view(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_string_view(kind))
