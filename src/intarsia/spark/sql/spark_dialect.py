"""Which conditions of a query Spark sees as ``predicate.exact`` does.

That gives an engine's meaning to what it takes; here is refused what Spark, in some setting of a
session, reads in another way than DuckDB: text beside numbers and moments that are not written out,
time zones other than UTC, regular expressions, case mappings, backslashes, 32-bit floats beside
decimals, and types that Spark has no equal of.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.casts import has_zone, is_moment
from intarsia.expr.constant_evaluation import months_later
from intarsia.expr.nested_types import without_dictionary
from intarsia.sql.date_functions import Part, part_of
from intarsia.sql.literals import is_constant
from intarsia.sql.query.scans import Seen
from intarsia.sql.where_clause import Translator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_SEARCHES = (exp.Like, exp.StartsWith, exp.EndsWith, exp.Contains)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?", re.ASCII)
_ZONES = {"UTC", "Etc/UTC", "GMT", "Z", "+00:00", "UTC+00:00"}
_ZONE = "spark.sql.session.timeZone"
_QUOTES = "spark.sql.ansi.doubleQuotedIdentifiers"
_PATTERNS = "spark.sql.parser.quotedRegexColumnNames"
_VARIABLES = "spark.sql.variable.substitute"
_COLLATION = "spark.sql.session.collation.default"
_MOMENT_TYPE = "spark.sql.timestampType"
_ANSI = "spark.sql.ansi.enabled"
_CASES = "spark.sql.caseSensitive"
_MONTHS = {"MONTH": 1, "YEAR": 12}
_ZONED, _BYTES = "TIMESTAMP_LTZ", "UTF8_BINARY"
_MOMENT_TYPES = (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPNTZ)


def is_as_written(spark: SparkSession, query: str) -> bool:
    """Does ``query`` say to ``spark``, as it is set now, what it seems to say?

    Not where texts in double quotes are names, names in backticks are patterns, or what is in
    ``${…}`` stands for something else.
    """
    otherwise = (('"', _QUOTES, "false"), ("`", _PATTERNS, "false"), ("${", _VARIABLES, "true"))
    return not any(
        mark in query and _setting(spark, name, default).lower() == "true"
        for mark, name, default in otherwise
    )


def seen_by(spark: SparkSession, query: str) -> Seen:
    """Gives the conditions of ``query`` that ``spark``, as it is set now, sees alike.

    Dates to which days, months or years are added are worked out.
    """

    setting = partial(_setting, spark)
    # Names are looked up here whatever their case.
    has_cases = setting(_CASES, "false").lower() == "true"
    is_ansi = setting(_ANSI, "true").lower() == "true"
    is_utc = setting(_ZONE, "") in _ZONES and setting(_MOMENT_TYPE, _ZONED) == _ZONED
    has_texts = "\\" not in query and setting(_COLLATION, _BYTES) == _BYTES

    def seen(condition: exp.Expr, schema: pa.Schema) -> exp.Expr | None:
        condition = condition.copy().transform(_worked_out, copy=False)
        is_seen = _Checker(schema, has_texts, is_utc, is_ansi).accepts(condition)
        return condition if is_seen and not has_cases else None

    return seen


def _setting(spark: SparkSession, name: str, default: str) -> str:
    return str(spark.conf.get(name, None) or default)


def _worked_out(node: exp.Expr) -> exp.Expr:
    """``DATE '1995-09-01' + INTERVAL '1' MONTH`` as the date it is; ``to_date(ts)`` as a cast."""
    match node:
        case exp.Add() | exp.Sub():
            date, interval = node.this, node.expression
        case exp.Year(this=exp.TsOrDsToDate(this=moment)):
            return exp.Year(this=moment)
        case exp.TsOrDsToDate(this=moment) if not node.args.get("format"):
            return exp.Cast(this=moment, to=exp.DataType.build("date"))
        case exp.TryCast(this=exp.Column() | exp.Dot() as moment, to=target):
            # Spark's CAST is parsed so; days of moments it does not fail of.
            is_day = target.this == exp.DataType.Type.DATE
            return exp.Cast(this=moment, to=target) if is_day else node
        case _:
            return node
    match date, interval:
        case (
            exp.Cast(this=exp.Literal(is_string=True, this=str(text)), to=target),
            exp.Interval(this=exp.Literal(this=str(count)), unit=exp.Var(this=str(unit))),
        ) if target.this == exp.DataType.Type.DATE and _DAY.fullmatch(text) and count.isdigit():
            found = _moved(text, int(count) * (1 if isinstance(node, exp.Add) else -1), unit)
            return node if found is None else exp.cast(exp.Literal.string(found), "date")
    return node


def _moved(text: str, count: int, unit: str) -> str | None:
    """A date so many units later, the last of the month where that has no such day."""
    try:
        date, unit = dt.date.fromisoformat(text), unit.upper().removesuffix("S")
        if unit == "DAY":
            return (date + dt.timedelta(days=count)).isoformat()
        return months_later(date, count * _MONTHS[unit]).isoformat() if unit in _MONTHS else None
    except (ValueError, OverflowError):
        return None


class _Checker(Translator):
    """Knows the types of the columns, by the names that a query calls them."""

    def __init__(self, schema: pa.Schema, has_texts: bool, is_utc: bool, is_ansi: bool) -> None:
        super().__init__(schema)
        self._has_texts, self._is_utc, self._is_ansi = has_texts, is_utc, is_ansi

    def accepts(self, node: exp.Expr) -> bool:
        try:
            return self._accepts(node)
        except (PredicateError, RecursionError):
            return False

    def _accepts(self, node: exp.Expr) -> bool:
        if isinstance(node, _LOGIC):
            parts = [node.this, node.args.get("expression")]
            return all(self._accepts(part) for part in parts if part is not None)
        if isinstance(node, _COMPARISONS):
            return self._are_comparable(node.args["this"], node.args["expression"])
        if isinstance(node, _SEARCHES):
            pattern = node.expression
            is_text = isinstance(pattern, exp.Literal) and pattern.is_string
            return is_text and self._fits(pattern, self._kind(node.this))
        match node:
            case exp.Between(this=subject):
                ends = node.args["low"], node.args["high"]
                return not node.args.get("symmetric") and all(
                    self._are_comparable(subject, end) for end in ends
                )
            case exp.In(this=subject, expressions=members):
                kind = self._kind(subject)
                if not self._is_ansi and kind is not None and pa.types.is_timestamp(kind):
                    return False  # moments may be compared as texts
                return bool(members) and all(self._fits(member, kind) for member in members)
            case exp.Is(this=subject, expression=exp.Null()):
                return self._kind(subject) is not None
            case exp.Boolean():
                return True
            case exp.Column():
                kind = self._kind(node)
                return kind is not None and pa.types.is_boolean(kind)
        return False

    def _are_comparable(self, left: exp.Expr, right: exp.Expr) -> bool:
        if is_constant(left):
            left, right = right, left
        if is_constant(right):
            return self._fits(right, self._kind(left))
        kind = self._kind(left)
        return kind is not None and kind == self._kind(right)

    def _kind(self, node: exp.Expr) -> pa.DataType | None:
        """The type of a field that Spark has an equal of, or of the period such a moment is in."""
        while isinstance(node, exp.Paren):
            node = node.this
        part = part_of(node)
        if part is not None:
            return self._kind_of_part(part, is_moment=isinstance(node, exp.TimestampTrunc))
        if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
            return pa.date32() if self._is_moment(node.this) else None
        is_known = isinstance(node, exp.Column | exp.Dot) or self._is_of_map(node)
        kind = self._type_of(node) if is_known else None
        kind = None if kind is None else without_dictionary(kind)
        return kind if kind is not None and _is_sparks(kind) else None

    def _is_of_map(self, node: exp.Expr) -> bool:
        """Is it the value of a map's key, which is a text?"""
        match node:
            case exp.Bracket(this=exp.Column() | exp.Dot() as held, expressions=[exp.Literal()]):
                kind = self._type_of(held)
                return self._has_texts and kind is not None and pa.types.is_map(kind)
        return False

    def _kind_of_part(self, part: Part, is_moment: bool) -> pa.DataType | None:
        """Of years, and of beginnings that are moments: Spark's ``trunc`` gives days."""
        if not self._is_moment(part.subject):
            return None
        if not part.is_beginning:
            return pa.int32() if part.name == "year" else None
        kind = self._kind(part.subject)
        return kind if is_moment and pa.types.is_timestamp(kind) else None

    def _is_moment(self, node: exp.Expr) -> bool:
        """Is it a field of days, or of moments whose days are the same here and in Spark?"""
        kind = self._kind(node) if isinstance(node, exp.Column | exp.Dot) else None
        return kind is not None and is_moment(kind) and (self._is_utc or not has_zone(kind))

    def _fits(self, constant: exp.Expr, kind: pa.DataType | None) -> bool:
        """Is a constant beside ``kind`` written so that it can be read in one way only?"""
        while isinstance(constant, exp.Paren):
            constant = constant.this
        if kind is None:
            return False
        match constant:
            case exp.Null():
                return True
            case exp.Boolean():
                return bool(pa.types.is_boolean(kind))
            case exp.Neg(this=exp.Literal(is_string=False)) | exp.Literal(is_string=False):
                numbers = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_floating)
                return any(check(kind) for check in numbers)
            case exp.Literal(this=str(text)):
                return self._text_fits(text, kind)
            case exp.Cast(this=exp.Literal(is_string=True, this=str(text)), to=target):
                return self._cast_fits(text, target, kind)
        return False

    def _text_fits(self, text: str, kind: pa.DataType) -> bool:
        if not self._has_texts:
            return False
        if pa.types.is_date32(kind):
            return _DAY.fullmatch(text) is not None
        if pa.types.is_timestamp(kind):
            return self._is_utc and _MOMENT.fullmatch(text) is not None
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def _cast_fits(self, text: str, target: exp.DataType, kind: pa.DataType) -> bool:
        if not self._has_texts:
            return False
        if target.this == exp.DataType.Type.DATE and _DAY.fullmatch(text):
            return bool(pa.types.is_date32(kind)) or (
                self._is_utc and bool(pa.types.is_timestamp(kind))
            )
        is_moment = pa.types.is_timestamp(kind) and _MOMENT.fullmatch(text) is not None
        return is_moment and self._is_utc and target.this in _MOMENT_TYPES


def _is_sparks(kind: pa.DataType) -> bool:
    """Does Spark have a type with the very values of ``kind``, and compare them alike?"""
    is_a = pa.types
    if is_a.is_timestamp(kind):
        return bool(kind.unit != "ns")
    checks = (
        is_a.is_signed_integer,
        is_a.is_float64,
        is_a.is_boolean,
        is_a.is_string,
        is_a.is_large_string,
        is_a.is_date32,
        is_a.is_decimal128,
    )
    return any(check(kind) for check in checks)
