"""SQL conditions → Expressions that are TRUE, FALSE and NULL where a SQL engine finds them so.

A filter pushed below an engine may only save it work: a row that the engine would keep must not be
lost. ``parse_where`` asks for the user's meaning and lets pyarrow decide; here the engine's meaning
counts, for which NaN equals itself and is greater than every number, −0.0 equals +0.0, and whatever
the two might see differently (arithmetic, most casts, case mappings beyond ASCII) is refused.
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
from intarsia.expr.constants import DECIMALS, EXACT, is_uuid_text, whole_above
from intarsia.expr.date_ranges import has_periods, looseness, without_periods
from intarsia.expr.evaluate import evaluate
from intarsia.expr.functions import is_list
from intarsia.expr.nested_types import without_dictionary
from intarsia.expr.sql_text import text_of
from intarsia.expr.tree import read_expression
from intarsia.sql.date_functions import part_of
from intarsia.sql.durations import is_span
from intarsia.sql.list_functions import Membership, held_type
from intarsia.sql.literals import TYPED_TEXTS, is_constant
from intarsia.sql.scope import has_only
from intarsia.sql.string_functions import TextSearch, matches_like, regex_problem
from intarsia.sql.where_clause import Translator, is_plainly_wanted

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}
_WANTING = (exp.EQ, exp.NullSafeEQ, exp.LT, exp.GT, exp.LTE, exp.GTE, exp.Between, exp.In)
"""Of which more rows may be found than there are; of what ``_COMPARING`` has besides, none."""
_COMPARING = (*_WANTING, exp.NEQ, exp.NullSafeNEQ)
_ORDERED = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_OPPOSITES: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LTE, exp.GTE: exp.LT}
_MAPPED = (exp.Lower, exp.Upper)
# As many digits as a float of 4 and of 8 bytes holds of any literal: more, and the engine's way
# from a decimal to a float may end at a neighbour.
_DIGITS = {32: 6, 64: 15}


def exact_condition(node: exp.Expr, schema: pa.Schema, like_escape: str = "") -> pc.Expression:
    """The Expression of a condition over ``schema``'s fields, with an engine's NaN and NULL.

    The engine's time zone is UTC. ``like_escape`` is the character that escapes in LIKE where
    nothing says so: none in DuckDB, a backslash in Spark. Raises ``PredicateError`` for whatever
    might mean something else to pyarrow.
    """
    translator = _Exact(schema, like_escape)
    try:
        found = translator.condition(node)
    except RecursionError as error:
        raise PredicateError("the condition nests too deeply") from error
    if translator.has_periods:
        found, tree = without_periods(found, read_expression(found), schema, loosely=True)
        if has_periods(tree, schema):  # of years that no calendar here has
            raise _refusal(node)
    return checked_condition(found, schema)


def checked_condition(condition: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """``condition``, tried on a row of NULLs. Some types are found not to compare only then.

    Raises ``PredicateError``.
    """
    nulls = [pa.nulls(1, field.type) for field in schema]
    try:
        evaluate(condition, pa.Table.from_arrays(nulls, schema=schema))
    except pa.ArrowException as error:
        raise PredicateError(f"cannot evaluate {condition}: {error}") from error
    return condition


class _Exact(Translator):
    """Translates what is certain to mean the same."""

    def __init__(self, schema: pa.Schema, like_escape: str) -> None:
        super().__init__(schema)
        self._like_escape = like_escape
        self.has_periods = False
        """Is the day, the month … that a moment is in compared?"""

    def condition(self, node: exp.Expr) -> pc.Expression:
        match node:
            case exp.SimilarTo() | exp.RegexpFullMatch():
                return self._full_match(node)
        # ``~``, which has to match all of a text, parses as ``regexp_matches``, which lets more
        # through.
        if type(node) is exp.RegexpLike and not is_plainly_wanted(node):
            raise _refusal(node)
        return super().condition(node)

    def _compare(
        self, comparison: type[exp.Expr], left: exp.Expr, right: exp.Expr
    ) -> pc.Expression:
        if is_constant(left) and not is_constant(right):
            return self._compare(_MIRRORED[comparison], right, left)
        if not is_constant(right):
            self._check_alike(left, right)
            return super()._compare(comparison, left, right)
        self._check(left, [right], ordered=comparison in _ORDERED)
        opposite = _OPPOSITES.get(comparison)
        if opposite is not None and pa.types.is_floating(self._kind(left)):
            return ~super()._compare(opposite, left, right)  # which NaN passes as well
        return super()._compare(comparison, left, right)

    def _between(self, node: exp.Between) -> pc.Expression:
        bounds = [node.args["low"], node.args["high"]]
        if not is_constant(node.this):
            self._check(node.this, list(filter(is_constant, bounds)), ordered=True)
        return super()._between(node)

    def _in(self, node: exp.In) -> pc.Expression:
        has_null = any(isinstance(_bare(one), exp.Null) for one in node.expressions)
        if has_null and not is_plainly_wanted(node):
            raise _refusal(node)  # ``IN [1, NULL]``, which parses alike, is FALSE and never NULL
        self._check(node.this, node.expressions, ordered=False)
        return super()._in(node)

    def _same(self, node: exp.Expr) -> pc.Expression:
        """IS NOT DISTINCT FROM a constant other than NULL."""
        left, right = node.args["this"], node.args["expression"]
        if is_constant(left) or not is_constant(right) or isinstance(_bare(right), exp.Null):
            raise _refusal(node)
        return pc.coalesce(self._compare(exp.EQ, left, right), pc.scalar(False))

    def _like(self, node: exp.Like | exp.ILike, escape: exp.Expr | None) -> pc.Expression:
        pattern = self._pattern(node.expression, node.this)
        value = self._text_value(node.this)
        escaping = escape.name if escape else self._like_escape
        if isinstance(node, exp.ILike):
            # pyarrow's own ignore_case folds more than ASCII's letters: ſ is an s to it.
            # DuckDB looks for what escapes when the pattern is in lower case already.
            if not pattern.isascii() or (escape and escape.name.isalpha()):
                raise _refusal(node)
            value, pattern = pc.utf8_lower(value), pattern.lower()
        found = matches_like(value, pattern, escaping)
        return ~found if node.args.get("negate") else found

    def _membership(self, node: exp.Expr, asked: Membership, kind: pa.DataType) -> pc.Expression:
        held = held_type(kind, asked)
        if not asked.of_several and isinstance(_bare(asked.constants[0]), exp.Null):
            raise _refusal(node)  # of empty lists it is NULL to DuckDB 2.0.0, FALSE to later ones
        for constant in asked.constants:
            if held is None or not is_constant(constant) or not _fits(_bare(constant), held):
                raise _refusal(constant)
            if whole_above(self._scalar(constant, held), held):  # which pyarrow compares otherwise
                raise _refusal(constant)
        return super()._membership(node, asked, kind)

    def _search(self, search: TextSearch) -> pc.Expression:
        self._pattern(search.wanted, search.subject)
        if search.name == "regexp_matches":
            _regex(search.wanted, search.flags or "")
        return super()._search(search)

    def _full_match(self, node: exp.Expr) -> pc.Expression:
        """A regular expression that all of a text has to match."""
        if not has_only(node, ("this", "expression")):
            raise _refusal(node)
        subject, wanted = node.args["this"], node.args["expression"]
        self._pattern(wanted, subject)
        pattern = rf"\A(?:{_regex(wanted)})\z"
        return pc.match_substring_regex(self._text_value(subject), pattern)

    def _pattern(self, node: exp.Expr, subject: exp.Expr) -> str:
        if not (isinstance(node, exp.Literal) and node.is_string):
            raise _refusal(node)
        if isinstance(subject, _MAPPED) and not node.this.isascii():
            raise _refusal(subject)
        return str(node.this)

    def _value(self, node: exp.Expr) -> pc.Expression:
        """A field, or a function of a field that both sides compute alike."""
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
                return super()._value(inner).cast(self._kind(node))
            case exp.Bracket(this=exp.Column() | exp.Dot()):
                return super()._value(node)  # of a map; what else there is by brackets is refused
        if self._is_period(node):
            self.has_periods = True
            return super()._value(node)
        raise _refusal(node)

    def _is_period(self, node: exp.Expr) -> bool:
        """Is it the day, the month … that a moment is in, compared so that a range will do?

        DuckDB knows no year of what it calls infinite, rounds nanoseconds, and of moments with a
        zone before year 1 tells the year without its era.
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
        asked = pa.date32() if part is None else part.type(kind)
        return _is_compared(node, _WANTING if any(looseness(kind, asked)) else _COMPARING)

    def _widens(self, node: exp.Cast) -> bool:
        """Does a cast keep every value?"""
        kind, target = self._type_of(node.this), self._type_of(node)
        known = kind is not None and target is not None and not isinstance(node, exp.TryCast)
        return known and keeps_values(kind, target)

    def _has_length(self, node: exp.Expr) -> bool:
        kind = self._kind(node)
        return is_text(kind) or is_list(kind)

    def _kind(self, node: exp.Expr) -> pa.DataType:
        """The type of a value; of a dictionary, its values'."""
        if isinstance(node, exp.Length):
            return pa.int32()
        kind = self._type_of(node)
        if kind is None or self._is_json(node):
            raise _refusal(node)
        return without_dictionary(kind)

    def _is_json(self, node: exp.Expr) -> bool:
        """Is it a column of JSON? What it is compared with fails where it is no JSON."""
        node = _bare(node)
        is_column = isinstance(node, exp.Column | exp.Dot)
        return is_column and is_json(self._resolve(node)[1])

    def _check_alike(self, left: exp.Expr, right: exp.Expr) -> None:
        """Raise unless two fields have one type that has no NaN."""
        one, other = self._kind(left), self._kind(right)
        simple = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_boolean)
        if one != other or not any(check(one) for check in simple):
            raise _refusal(left)

    def _check(self, subject: exp.Expr, constants: Sequence[exp.Expr], *, ordered: bool) -> None:
        """Raise unless ``subject`` compares with ``constants`` as it does in the engine."""
        kind = self._kind(subject)
        are_doubles = pa.types.is_integer(kind) and any(map(_is_double, constants))
        if are_doubles and not all(map(_is_told_apart, constants)):
            raise _refusal(subject)
        for constant in constants:
            if not is_constant(constant) or not _fits(_bare(constant), kind):
                raise _refusal(constant)
            if isinstance(subject, _MAPPED) and (ordered or not constant.name.isascii()):
                raise _refusal(subject)


def _regex(node: exp.Expr, flags: str = "") -> str:
    """A pattern that is one by itself, and does not depend on a version of Unicode.

    Raises ``PredicateError``.
    """
    pattern = node.name
    is_of_unicode = re.search(r"\\[pP]", pattern) or (flags and not pattern.isascii())
    if is_of_unicode or regex_problem(pattern):
        raise _refusal(node)
    return pattern


def _refusal(node: exp.Expr) -> PredicateError:
    return PredicateError(f"{text_of(node)!r} may mean something else to pyarrow")


def _is_compared(value: exp.Expr, comparisons: tuple[type[exp.Expr], ...]) -> bool:
    """Is ``value``, in parentheses perhaps, part of one of these that is plainly wanted?"""
    parent = value.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent is not None and isinstance(parent, comparisons) and is_plainly_wanted(parent)


def _bare(constant: exp.Expr) -> exp.Expr:
    while isinstance(constant, exp.Paren):
        constant = constant.this
    return constant


def _fits(constant: exp.Expr, kind: pa.DataType) -> bool:
    """Does ``constant`` beside a value of ``kind`` mean the same to every engine?"""
    if pa.types.is_duration(kind):
        return _span_fits(constant, kind)
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
                return _double_fits(text, kind)
            return (
                target.this in TYPED_TEXTS and is_moment(kind) and _decimals(text) <= DECIMALS["us"]
            )
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return _number_fits(f"-{number.this}", kind)
        case exp.Literal(is_string=True, this=str(text)):
            return _text_fits(text, kind)
        case exp.Literal(this=str(number)):
            return _number_fits(number, kind)
    return False


def _is_double(constant: exp.Expr) -> bool:
    """Is it one beside which an engine takes integers for doubles?"""
    bare = _bare(constant)
    return isinstance(bare, exp.Cast) and bare.to.this is exp.DataType.Type.DOUBLE


def _is_told_apart(constant: exp.Expr) -> bool:
    """Is a constant one of those that doubles tell apart from all integers?"""
    bare = _bare(constant)
    text = bare.this.name if isinstance(bare, exp.Cast) else bare.name
    try:
        return isinstance(bare, exp.Null) or abs(float(text)) < EXACT
    except ValueError:
        return False


def _text_fits(text: str, kind: pa.DataType) -> bool:
    if is_uuid(kind):
        return is_uuid_text(text)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return text.isascii() and "\\" not in text  # DuckDB reads \xAA as one byte
    if pa.types.is_floating(kind):
        try:
            return not math.isnan(float(text)) and _float_fits(text, kind)
        except ValueError:
            return False
    if pa.types.is_timestamp(kind) and _decimals(text) > DECIMALS[kind.unit]:
        return False  # engines round the constant
    alike = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_time64)
    return is_moment(kind) or any(check(kind) for check in alike)


def _span_fits(constant: exp.Expr, kind: pa.DataType) -> bool:
    """Engines have spans in microseconds: they cut nanoseconds off."""
    if isinstance(constant, exp.Null):
        return True
    is_text = isinstance(constant, exp.Literal) and constant.is_string
    return bool(kind.unit != "ns" and (is_text or is_span(constant)))


def _decimals(text: str) -> int:
    """How many decimals a moment's seconds have, but for zeros at their end."""
    found = re.search(r"\.(\d+)", text)
    return len(found.group(1).rstrip("0")) if found else 0


def _double_fits(text: str, kind: pa.DataType) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    if pa.types.is_integer(kind):  # of which a double tells those beside it apart
        return abs(value) < EXACT
    return kind == pa.float64() and math.isfinite(value)


def _number_fits(number: str, kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        if not number.lstrip("-").isdigit():
            return _float_fits(number, pa.float64())
        low, high = _limits(kind)
        return low <= int(number) < high
    if pa.types.is_decimal(kind):
        digits = number.lstrip("-").replace(".", "")
        return digits.isdigit() and len(digits) + kind.precision <= 38
    return bool(pa.types.is_floating(kind)) and _float_fits(number, kind)


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """Integers that compare with ``kind`` without a conversion that could fail."""
    return -(2**63), 2**64 if kind == pa.uint64() else 2**63


def _float_fits(number: str, kind: pa.DataType) -> bool:
    digits = number.lstrip("-").replace(".", "")
    return digits.isdigit() and len(digits) <= _DIGITS.get(kind.bit_width, 0)
