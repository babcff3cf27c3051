"""Decides which conditions of a query mean the same to Spark as to ``where``.

A condition is refused if Spark, in some setting of a session, evaluates it differently from DuckDB:

- A string is compared with a number, or a timestamp is not written out in full.
- A time zone other than UTC matters.
- There is a regular expression, a change of case, or a backslash.
- A 32-bit float is compared with a decimal, or Spark lacks the type.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.casts import has_zone, is_moment, is_text
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
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?", re.ASCII)
_UTC_NAMES = {"UTC", "Etc/UTC", "GMT", "Z", "+00:00", "UTC+00:00"}
_TIME_ZONE = "spark.sql.session.timeZone"
_DOUBLE_QUOTED_NAMES = "spark.sql.ansi.doubleQuotedIdentifiers"
_QUOTED_PATTERNS = "spark.sql.parser.quotedRegexColumnNames"
_VARIABLES = "spark.sql.variable.substitute"
_COLLATION = "spark.sql.session.collation.default"
_TIMESTAMP_TYPE = "spark.sql.timestampType"
_ANSI = "spark.sql.ansi.enabled"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_MONTHS = {"MONTH": 1, "YEAR": 12}
_ZONED, _BYTES = "TIMESTAMP_LTZ", "UTF8_BINARY"
_TIMESTAMP_TYPES = (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPNTZ)


def is_as_written(spark: SparkSession, query: str) -> bool:
    """True if no setting changes how ``query``'s quotes, backticks or ``${…}`` are parsed."""
    special_marks = (
        ('"', _DOUBLE_QUOTED_NAMES, "false"),
        ("`", _QUOTED_PATTERNS, "false"),
        ("${", _VARIABLES, "true"),
    )
    return not any(
        mark in query and _setting(spark, name, default).lower() == "true"
        for mark, name, default in special_marks
    )


def condition_translator(spark: SparkSession, query: str) -> Seen:
    """Returns a function that gives a condition of ``query`` in DuckDB's meaning, or None.

    The function returns None if ``spark``, with its settings of now, may evaluate the condition
    differently. Sums of a date and days, months or years are computed.
    """

    setting = partial(_setting, spark)
    # Intarsia looks up names in SQL without regard to case.
    is_case_sensitive = setting(_CASE_SENSITIVE, "false").lower() == "true"
    is_ansi = setting(_ANSI, "true").lower() == "true"
    is_utc = setting(_TIME_ZONE, "") in _UTC_NAMES and setting(_TIMESTAMP_TYPE, _ZONED) == _ZONED
    has_plain_strings = "\\" not in query and setting(_COLLATION, _BYTES) == _BYTES

    def translated(condition: exp.Expr, schema: pa.Schema) -> exp.Expr | None:
        condition = condition.copy().transform(_simplified, copy=False)
        is_accepted = _Checker(schema, has_plain_strings, is_utc, is_ansi).accepts(condition)
        return condition if is_accepted and not is_case_sensitive else None

    return translated


def _setting(spark: SparkSession, name: str, default: str) -> str:
    return str(spark.conf.get(name, None) or default)


def _simplified(node: exp.Expr) -> exp.Expr:
    """Returns a date plus an interval as a date, and ``to_date(ts)`` as a cast."""
    match node:
        case exp.Add() | exp.Sub():
            date, interval = node.this, node.expression
        case exp.Year(this=exp.TsOrDsToDate(this=operand)):
            return exp.Year(this=operand)
        case exp.TsOrDsToDate(this=operand) if not node.args.get("format"):
            return exp.Cast(this=operand, to=exp.DataType.build("date"))
        case exp.TryCast(this=exp.Column() | exp.Dot() as operand, to=target):
            # Spark's CAST is parsed as TryCast; a cast of a timestamp to a date never fails.
            is_day = target.this == exp.DataType.Type.DATE
            return exp.Cast(this=operand, to=target) if is_day else node
        case _:
            return node
    match date, interval:
        case (
            exp.Cast(this=exp.Literal(is_string=True, this=str(text)), to=target),
            exp.Interval(this=exp.Literal(this=str(count)), unit=exp.Var(this=str(unit))),
        ) if target.this == exp.DataType.Type.DATE and _DATE.fullmatch(text) and count.isdigit():
            date_text = _shifted(text, int(count) * (1 if isinstance(node, exp.Add) else -1), unit)
            return node if date_text is None else exp.cast(exp.Literal.string(date_text), "date")
    return node


def _shifted(text: str, count: int, unit: str) -> str | None:
    """Returns a date ``count`` units later, at most the last day of the month it falls in."""
    try:
        date, unit = dt.date.fromisoformat(text), unit.upper().removesuffix("S")
        if unit == "DAY":
            return (date + dt.timedelta(days=count)).isoformat()
        return months_later(date, count * _MONTHS[unit]).isoformat() if unit in _MONTHS else None
    except (ValueError, OverflowError):
        return None


class _Checker(Translator):
    """Checks conditions against the types of a table's columns."""

    def __init__(
        self, schema: pa.Schema, has_plain_strings: bool, is_utc: bool, is_ansi: bool
    ) -> None:
        super().__init__(schema)
        self._has_plain_strings, self._is_utc, self._is_ansi = has_plain_strings, is_utc, is_ansi

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
                    return False  # timestamps may be compared as strings
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
        """Returns the type of a field, or of a timestamp's period, if Spark has an equal one."""
        while isinstance(node, exp.Paren):
            node = node.this
        part = part_of(node)
        if part is not None:
            return self._kind_of_part(part, is_timestamp=isinstance(node, exp.TimestampTrunc))
        if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
            return pa.date32() if self._is_moment(node.this) else None
        is_known = isinstance(node, exp.Column | exp.Dot) or self._is_map_value(node)
        kind = self._type_of(node) if is_known else None
        kind = None if kind is None else without_dictionary(kind)
        return kind if kind is not None and _is_spark_type(kind) else None

    def _is_map_value(self, node: exp.Expr) -> bool:
        """True if the node is the value of a map under a string key."""
        match node:
            case exp.Bracket(
                this=exp.Column() | exp.Dot() as map_field, expressions=[exp.Literal()]
            ):
                kind = self._type_of(map_field)
                return self._has_plain_strings and kind is not None and pa.types.is_map(kind)
        return False

    def _kind_of_part(self, part: Part, is_timestamp: bool) -> pa.DataType | None:
        """Returns the type of a year or a timestamp's period. Spark's ``trunc`` gives dates."""
        if not self._is_moment(part.subject):
            return None
        if not part.is_beginning:
            return pa.int32() if part.name == "year" else None
        kind = self._kind(part.subject)
        return kind if is_timestamp and pa.types.is_timestamp(kind) else None

    def _is_moment(self, node: exp.Expr) -> bool:
        """True if the node is a date, or a timestamp with the same days here and in Spark."""
        kind = self._kind(node) if isinstance(node, exp.Column | exp.Dot) else None
        return kind is not None and is_moment(kind) and (self._is_utc or not has_zone(kind))

    def _fits(self, constant: exp.Expr, kind: pa.DataType | None) -> bool:
        """True if a constant compared with ``kind`` is written so that it has only one reading."""
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
                return self._string_fits(text, kind)
            case exp.Cast(this=exp.Literal(is_string=True, this=str(text)), to=target):
                return self._cast_fits(text, target, kind)
        return False

    def _string_fits(self, text: str, kind: pa.DataType) -> bool:
        if not self._has_plain_strings:
            return False
        if pa.types.is_date32(kind):
            return _DATE.fullmatch(text) is not None
        if pa.types.is_timestamp(kind):
            return self._is_utc and _TIMESTAMP.fullmatch(text) is not None
        return is_text(kind)

    def _cast_fits(self, text: str, target: exp.DataType, kind: pa.DataType) -> bool:
        if not self._has_plain_strings:
            return False
        if target.this == exp.DataType.Type.DATE and _DATE.fullmatch(text):
            return bool(pa.types.is_date32(kind)) or (
                self._is_utc and bool(pa.types.is_timestamp(kind))
            )
        is_timestamp = pa.types.is_timestamp(kind) and _TIMESTAMP.fullmatch(text) is not None
        return is_timestamp and self._is_utc and target.this in _TIMESTAMP_TYPES


def _is_spark_type(kind: pa.DataType) -> bool:
    """True if Spark has a type with exactly the values of ``kind``, and compares them alike."""
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
