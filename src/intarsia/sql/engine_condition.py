"""SQL conditions as Expressions that are TRUE, FALSE and NULL in the same rows as in a SQL engine.

A filter pushed below an engine may only save it work: a row that the engine would keep must not be
lost. ``parse_where`` reads a condition as the user means it, and pyarrow decides. Here the engine's
meaning counts: NaN equals itself and is greater than every number, and −0.0 equals +0.0. Anything
that the two might evaluate differently is rejected: arithmetic, most casts, and case mappings
beyond ASCII.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.casts import is_json, is_moment, is_text, is_uuid, keeps_values
from intarsia.expr.constants import DECIMALS, EXACT, is_uuid_text, next_integer
from intarsia.expr.date_ranges import engine_tolerance, has_periods, periods_as_ranges
from intarsia.expr.evaluate import evaluate
from intarsia.expr.functions import is_list
from intarsia.expr.nested_types import without_dictionary
from intarsia.expr.sql_text import text_of
from intarsia.expr.tree import Node, built, to_expression
from intarsia.sql.date_functions import part_of
from intarsia.sql.durations import is_interval
from intarsia.sql.list_functions import Membership, searched_type
from intarsia.sql.literals import TYPED_TEXTS, is_constant
from intarsia.sql.long_lists import long_list_of, members_of, members_of_type
from intarsia.sql.scope import has_only
from intarsia.sql.string_functions import TextSearch, matches_like, regex_problem
from intarsia.sql.values import is_of_item
from intarsia.sql.where_clause import MIRRORED, Translator, inverted, is_plainly_wanted, is_true

_SUPERSET_COMPARISONS = (
    exp.EQ,
    exp.NullSafeEQ,
    exp.LT,
    exp.GT,
    exp.LTE,
    exp.GTE,
    exp.Between,
    exp.In,
)
"""Comparisons for which the scan may find too many rows; the engine filters again.

For the others in ``_ALL_COMPARISONS`` it must find exactly the right rows.
"""
_ALL_COMPARISONS = (*_SUPERSET_COMPARISONS, exp.NEQ, exp.NullSafeNEQ)
_ORDER_COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LTE, exp.GTE: exp.LT}
_CASE_FUNCTIONS = (exp.Lower, exp.Upper)
_MAX_FLOAT_DIGITS = {32: 6, 64: 15}
"""The decimal digits that a float always holds, by its width in bits.

With more digits, an engine may convert a decimal to a neighbouring float.
"""


def exact_condition(node: exp.Expr, schema: pa.Schema, like_escape: str = "") -> pc.Expression:
    """Returns a condition over ``schema``'s fields as an Expression with an engine's NaN and NULL.

    The engine's time zone is UTC. ``like_escape`` is the escape character of LIKE without ESCAPE:
    none in DuckDB, a backslash in Spark. Raises ``PredicateError`` for a condition that might mean
    something else to pyarrow.
    """
    translator = _Exact(schema, like_escape)
    try:
        condition = translator.condition(node)
    except RecursionError as error:
        raise PredicateError("the condition nests too deeply") from error
    if translator.has_periods:
        condition = periods_as_ranges(condition, schema, loosely=True)
        if has_periods(condition, schema):  # for example, years outside of 1 to 9999
            raise _rejection(node)
    return checked_condition(to_expression(condition), schema)


def checked_condition(condition: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Returns ``condition`` after evaluating it on a row of NULLs.

    Only evaluation shows that some types do not compare. Raises ``PredicateError`` in this case.
    """
    nulls = [pa.nulls(1, field.type) for field in schema]
    try:
        evaluate(condition, pa.Table.from_arrays(nulls, schema=schema))
    except pa.ArrowException as error:
        raise PredicateError(f"cannot evaluate {condition}: {error}") from error
    return condition


class _Exact(Translator):
    """Translates only conditions that certainly mean the same to pyarrow and the engine."""

    def __init__(self, schema: pa.Schema, like_escape: str) -> None:
        super().__init__(schema)
        self._like_escape = like_escape
        self.has_periods = False
        """True if the beginning of a timestamp's day, month, … or its year is compared."""

    def condition(self, node: exp.Expr) -> Node:
        match node:
            case exp.SimilarTo() | exp.RegexpFullMatch():
                return self._full_match(node)
        return super().condition(node)

    def _compare(self, comparison: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> Node:
        if is_constant(left) and not is_constant(right):
            return self._compare(MIRRORED[comparison], right, left)
        if not is_constant(right):
            self._check_fields(left, right)
            return super()._compare(comparison, left, right)
        self._check_constants(left, [right], ordered=comparison in _ORDER_COMPARISONS)
        opposite = _OPPOSITES.get(comparison)
        if opposite is not None and pa.types.is_floating(self._kind(left)):
            return inverted(super()._compare(opposite, left, right))  # NaN passes as well
        return super()._compare(comparison, left, right)

    def _between(self, node: exp.Between) -> Node:
        bounds = [node.args["low"], node.args["high"]]
        if not is_constant(node.this):
            self._check_constants(node.this, list(filter(is_constant, bounds)), ordered=True)
        return super()._between(node)

    def _in(self, node: exp.In) -> Node:
        kind, is_mapped = self._kind(node.this), isinstance(node.this, _CASE_FUNCTIONS)
        if is_mapped or members_of_type(long_list_of(node), kind) is None:
            members = members_of(node)
            has_null = any(isinstance(one.unnest(), exp.Null) for one in members)
            if has_null and not is_plainly_wanted(node):
                raise _rejection(node)  # ``IN [1, NULL]`` parses the same, but is FALSE, never NULL
            self._check_constants(node.this, members, ordered=False)
        return super()._in(node)

    def _same(self, node: exp.Expr) -> Node:
        """Returns IS NOT DISTINCT FROM a constant other than NULL."""
        left, right = node.args["this"], node.args["expression"]
        if is_constant(left) or not is_constant(right) or isinstance(right.unnest(), exp.Null):
            raise _rejection(node)
        return is_true(self._compare(exp.EQ, left, right))

    def _like(self, node: exp.Like | exp.ILike, escape: exp.Expr | None) -> Node:
        pattern = self._pattern(node.expression, node.this)
        value = self._text_value(node.this)
        escaping = escape.name if escape else self._like_escape
        if isinstance(node, exp.ILike):
            # pyarrow's ignore_case folds more than ASCII letters: ſ equals s.
            # DuckDB looks for the escape character after it made the pattern lower case.
            if not pattern.isascii() or (escape and escape.name.isalpha()):
                raise _rejection(node)
            value, pattern = built(pc.utf8_lower, value), pattern.lower()
        matches = built(matches_like, value, pattern, escaping)
        return inverted(matches) if node.args.get("negate") else matches

    def _membership(self, node: exp.Expr, membership: Membership, kind: pa.DataType) -> Node:
        element = searched_type(kind, membership)
        if not membership.of_several and isinstance(membership.constants[0].unnest(), exp.Null):
            raise _rejection(node)  # for empty lists: NULL in DuckDB 2.0.0, FALSE in later versions
        for constant in membership.constants:
            if (
                element is None
                or not is_constant(constant)
                or not _is_same_in_engines(constant.unnest(), element)
            ):
                raise _rejection(constant)
            if next_integer(
                self._scalar(constant, element), element
            ):  # pyarrow compares it differently
                raise _rejection(constant)
        return super()._membership(node, membership, kind)

    def _search(self, search: TextSearch) -> Node:
        self._pattern(search.pattern, search.subject)
        if search.name == "regexp_matches":
            _regex(search.pattern, search.flags or "")
        return super()._search(search)

    def _full_match(self, node: exp.Expr) -> Node:
        """Returns a search with a regular expression that must match the whole string."""
        if not has_only(node, ("this", "expression")):
            raise _rejection(node)
        subject, pattern_node = node.args["this"], node.args["expression"]
        self._pattern(pattern_node, subject)
        pattern = rf"\A(?:{_regex(pattern_node)})\z"
        return built(pc.match_substring_regex, self._text_value(subject), pattern)

    def _pattern(self, node: exp.Expr, subject: exp.Expr) -> str:
        if not (isinstance(node, exp.Literal) and node.is_string):
            raise _rejection(node)
        if isinstance(subject, _CASE_FUNCTIONS) and not node.this.isascii():
            raise _rejection(subject)
        return str(node.this)

    def _value(self, node: exp.Expr) -> Node:
        """Returns a field, or a function of a field that pyarrow and the engine compute alike."""
        if is_of_item(node):
            return super()._value(node)  # of a column, or of another item
        match node:
            case exp.Paren(this=inner):
                return self._value(inner)
            case exp.Column() | exp.Dot():
                return super()._value(node)
            case (
                exp.Lower(this=exp.Column() | exp.Dot()) | exp.Upper(this=exp.Column() | exp.Dot())
            ):
                return super()._value(node)
            case exp.Length(this=exp.Column() | exp.Dot() as inner) if self._has_length(inner):
                return super()._value(node)
            case exp.Cast(this=exp.Column() | exp.Dot() as inner) if self._widens(node):
                return built(pc.Expression.cast, super()._value(inner), self._kind(node))
            case exp.JSONExtractScalar(
                this=exp.Column() | exp.Dot() as inner, expression=exp.Literal()
            ) if is_text(without_dictionary(self._type_of(inner) or pa.null())):
                return super()._value(node)
            case exp.Bracket(this=exp.Column() | exp.Dot()):
                return super()._value(node)  # of a map; other uses of brackets are rejected
        if self._is_period(node):
            self.has_periods = True
            return super()._value(node)
        raise _rejection(node)

    def _is_period(self, node: exp.Expr) -> bool:
        """True if ``node`` is the beginning of a day, month, … or the year, and a range is enough.

        DuckDB has no year for infinite timestamps, and rounds nanoseconds. For timestamps with a
        time zone before year 1, it gives the year without its era.
        """
        part = part_of(node)
        if part is not None and (part.is_beginning or part.name == "year"):
            subject = part.subject
        elif type(node) is exp.Cast and node.to.this is exp.DataType.Type.DATE:
            subject = node.this
        else:
            return False
        kind = self._type_of(subject) if isinstance(subject, exp.Column | exp.Dot) else None
        if kind is None or not is_moment(kind):
            return False
        result_type = pa.date32() if part is None else part.type(kind)
        return _is_compared(
            node,
            _SUPERSET_COMPARISONS if any(engine_tolerance(kind, result_type)) else _ALL_COMPARISONS,
        )

    def _widens(self, node: exp.Cast) -> bool:
        """True if a cast keeps every value."""
        kind, target = self._type_of(node.this), self._type_of(node)
        known = kind is not None and target is not None and not isinstance(node, exp.TryCast)
        return known and keeps_values(kind, target)

    def _has_length(self, node: exp.Expr) -> bool:
        kind = self._kind(node)
        return is_text(kind) or is_list(kind)

    def _kind(self, node: exp.Expr) -> pa.DataType:
        """Returns the type of a value; for a dictionary, the type of its values."""
        if isinstance(node, exp.Length):
            return pa.int32()
        kind = self._type_of(node)
        if kind is None or self._is_json(node):
            raise _rejection(node)
        return without_dictionary(kind)

    def _is_json(self, node: exp.Expr) -> bool:
        """True if ``node`` is a JSON field. The engine fails to compare it with anything else."""
        node = node.unnest()
        if isinstance(node, exp.Dot) and is_of_item(node):
            return is_json(self._item_field(node).type)
        return isinstance(node, exp.Column | exp.Dot) and is_json(self._resolve(node)[1])

    def _check_fields(self, left: exp.Expr, right: exp.Expr) -> None:
        """Raises ``PredicateError`` unless two fields have one type that has no NaN."""
        one, other = self._kind(left), self._kind(right)
        type_checks = (
            pa.types.is_integer,
            pa.types.is_string,
            pa.types.is_date32,
            pa.types.is_boolean,
        )
        if one != other or not any(check(one) for check in type_checks):
            raise _rejection(left)

    def _check_constants(
        self, subject: exp.Expr, constants: Sequence[exp.Expr], *, ordered: bool
    ) -> None:
        """Raises ``PredicateError`` unless the engine compares ``constants`` in the same way."""
        kind = self._kind(subject)
        are_doubles = pa.types.is_integer(kind) and any(map(_is_double, constants))
        if are_doubles and not all(map(_is_exact_double, constants)):
            raise _rejection(subject)
        for constant in constants:
            if not is_constant(constant) or not _is_same_in_engines(constant.unnest(), kind):
                raise _rejection(constant)
            if isinstance(subject, _CASE_FUNCTIONS) and (ordered or not constant.name.isascii()):
                raise _rejection(subject)


def _regex(node: exp.Expr, flags: str = "") -> str:
    """Returns a pattern that is valid on its own and does not depend on a version of Unicode.

    Raises ``PredicateError`` for other patterns.
    """
    pattern = node.name
    depends_on_unicode = re.search(r"\\[pP]", pattern) or (flags and not pattern.isascii())
    if depends_on_unicode or regex_problem(pattern):
        raise _rejection(node)
    return pattern


def _rejection(node: exp.Expr) -> PredicateError:
    return PredicateError(f"{text_of(node)!r} may mean something else to pyarrow")


def _is_compared(value: exp.Expr, comparisons: tuple[type[exp.Expr], ...]) -> bool:
    """True if ``value`` is an operand of one of ``comparisons`` that is not negated.

    ``value`` may be in parentheses.
    """
    parent = value.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent is not None and isinstance(parent, comparisons) and is_plainly_wanted(parent)


def _is_same_in_engines(constant: exp.Expr, kind: pa.DataType) -> bool:
    """True if ``constant``, compared with values of ``kind``, means the same to every engine."""
    if pa.types.is_duration(kind):
        return _is_same_interval(constant, kind)
    match constant:
        case exp.Null():
            return not pa.types.is_floating(kind)
        case exp.Boolean():
            return bool(pa.types.is_boolean(kind))
        case exp.Cast(this=exp.Literal(is_string=True, this=str(text)), to=target):
            if isinstance(constant, exp.TryCast):
                return False
            if target.this is exp.DataType.Type.UUID:
                return is_uuid(kind) and is_uuid_text(text)
            if target.this is exp.DataType.Type.DOUBLE:
                return _is_same_double(text, kind)
            return (
                target.this in TYPED_TEXTS
                and is_moment(kind)
                and _fraction_digits(text) <= DECIMALS["us"]
            )
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return _is_same_number(f"-{number.this}", kind)
        case exp.Literal(is_string=True, this=str(text)):
            return _is_same_string(text, kind)
        case exp.Literal(this=str(number)):
            return _is_same_number(number, kind)
    return False


def _is_double(constant: exp.Expr) -> bool:
    """True if ``constant`` is a DOUBLE: engines convert integers to compare with it."""
    bare = constant.unnest()
    return isinstance(bare, exp.Cast) and bare.to.this is exp.DataType.Type.DOUBLE


def _is_exact_double(constant: exp.Expr) -> bool:
    """True if a constant is so small that doubles tell it from every integer."""
    bare = constant.unnest()
    text = bare.this.name if isinstance(bare, exp.Cast) else bare.name
    try:
        return isinstance(bare, exp.Null) or abs(float(text)) < EXACT
    except ValueError:
        return False


def _is_same_string(text: str, kind: pa.DataType) -> bool:
    if is_uuid(kind):
        return is_uuid_text(text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return text.isascii() and "\\" not in text  # DuckDB reads \xAA as one byte
    if pa.types.is_floating(kind):
        try:
            return not math.isnan(float(text)) and _is_same_float(text, kind)
        except ValueError:
            return False
    if pa.types.is_timestamp(kind) and _fraction_digits(text) > DECIMALS[kind.unit]:
        return False  # engines round the constant
    comparable = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_time64,
    )
    return is_moment(kind) or any(check(kind) for check in comparable)


def _is_same_interval(constant: exp.Expr, kind: pa.DataType) -> bool:
    """True if ``constant`` is an interval that compares with ``kind``.

    Engines have microseconds: they cut off nanoseconds.
    """
    if isinstance(constant, exp.Null):
        return True
    is_text = isinstance(constant, exp.Literal) and constant.is_string
    return bool(kind.unit != "ns" and (is_text or is_interval(constant)))


def _fraction_digits(text: str) -> int:
    """Returns how many digits follow the point in a timestamp's seconds, without trailing zeros."""
    match = re.search(r"\.(\d+)", text)
    return len(match.group(1).rstrip("0")) if match else 0


def _is_same_double(text: str, kind: pa.DataType) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    if pa.types.is_integer(kind):  # below this, doubles hold all integers
        return abs(value) < EXACT
    return kind == pa.float64() and math.isfinite(value)


def _is_same_number(number: str, kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        if not number.lstrip("-").isdigit():
            return _is_same_float(number, pa.float64())
        low, high = _integer_range(kind)
        return low <= int(number) < high
    if pa.types.is_decimal(kind):
        digits = number.lstrip("-").replace(".", "")
        return digits.isdigit() and len(digits) + kind.precision <= 38
    return bool(pa.types.is_floating(kind)) and _is_same_float(number, kind)


def _integer_range(kind: pa.DataType) -> tuple[int, int]:
    """Returns the range of integers, end excluded, that compare with ``kind`` without an error."""
    return -(2**63), 2**64 if kind == pa.uint64() else 2**63


def _is_same_float(number: str, kind: pa.DataType) -> bool:
    digits = number.lstrip("-").replace(".", "")
    return digits.isdigit() and len(digits) <= _MAX_FLOAT_DIGITS.get(kind.bit_width, 0)
