"""Translates SQL conditions to trees.

sqlglot parses. This module maps the nodes it understands to trees over a given schema, and names
the others in an error. String literals take the type of the field they are compared with, as
in SQL.
"""

from __future__ import annotations

import contextlib
import re

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.duckdb import DuckDB

from intarsia.errors import PredicateError
from intarsia.expr.arithmetic import as_floats
from intarsia.expr.constants import next_integer
from intarsia.expr.filterable_types import VIEWED
from intarsia.expr.functions import contains_words
from intarsia.expr.in_list import is_member
from intarsia.expr.sql_text import check_characters, text_of
from intarsia.expr.tree import Call, Literal, Node, built, joined, to_expression
from intarsia.process_state import without_collection
from intarsia.sql.constant_folding import Now, fold_constants, may_be_computed, utc_now
from intarsia.sql.dialect import DUCKDB, parsed_as
from intarsia.sql.intervals import partial_interval
from intarsia.sql.list_functions import Membership, call_of, membership_of, searched_type
from intarsia.sql.literals import is_constant
from intarsia.sql.long_lists import (
    Shortened,
    long_list_of,
    members_of,
    members_of_type,
    without_long_lists,
)
from intarsia.sql.reserved_names import misread_columns
from intarsia.sql.string_functions import (
    SEARCHES,
    TextSearch,
    matches_like,
    regex_problem,
    text_search_of,
)
from intarsia.sql.values import Values

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
"""The comparison that is equivalent when its sides are swapped."""
SQL_ERRORS = (sqlglot.errors.SqlglotError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions for SQL that sqlglot cannot parse.

Besides its own errors it raises others by mistake. Trees that lack a part raise them as well.
"""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_CONDITIONS = (
    "conditions are comparisons, BETWEEN, IN, LIKE, ILIKE, IS, AND, OR, NOT, isnan, starts_with, "
    "ends_with, contains, regexp_matches, contains_words, list_contains and its like, map_contains"
)
"""The conditions that are understood, for messages."""
_UNKNOWN = pc.scalar(pa.scalar(None, pa.bool_()))
_TOO_DEEP = "the condition nests too deeply; write long lists of alternatives with IN"


def parse_where(
    text: str, schema: pa.Schema, now: Now | None = utc_now, *, knows_fractions: bool = True
) -> pc.Expression:
    """Returns the Expression of a SQL condition, as ``read_where`` reads it."""
    return to_expression(read_where(text, schema, now, knows_fractions=knows_fractions))


def read_where(
    text: str, schema: pa.Schema, now: Now | None = utc_now, *, knows_fractions: bool = True
) -> Node:
    """Returns the tree of a SQL condition over ``schema``'s fields.

    Constant parts are evaluated first, as DuckDB does in UTC: ``now() - INTERVAL '1 hour'``,
    ``date_trunc('month', current_date)``, ``7 * 86400``. Without ``now``, the current time is
    unknown. Without ``knows_fractions``, ``i * 0.1`` is a double instead of a decimal, as in
    indexes on such terms.

    Understood are comparisons, AND, OR, NOT, BETWEEN, IN, LIKE, ILIKE, IS NULL, IS TRUE and IS
    DISTINCT FROM. Values may use +, -, ``*``, CAST and ``usr['id']`` of structs and maps. The
    functions are:

    - lower, upper, length, abs, isnan, coalesce,
    - date_trunc, year, month, extract and similar ones,
    - starts_with, ends_with, contains, regexp_matches or ~, contains_words,
    - ``payload->>'$.user.id'`` and json_extract_string of JSON text,
    - list_contains, list_has_any, list_has_all, map_contains (by any of DuckDB's names for them),
      and ``= ANY`` of a list.

    Raises ``PredicateError`` for an unknown field, a literal that does not fit the field it is
    compared with, and any text that is not understood.
    """
    check_characters(text)
    shortened = without_long_lists(text)
    with without_collection:
        if shortened.lists:
            with contextlib.suppress(PredicateError):  # the whole text has the error users see
                return _parsed(shortened, schema, now, knows_fractions)
        return _parsed(Shortened(text, {}, {}), schema, now, knows_fractions)


def _parsed(
    shortened: Shortened, schema: pa.Schema, now: Now | None, knows_fractions: bool
) -> Node:
    """Returns the tree of a condition."""
    tree = parse_condition(shortened.text, schema)
    if not shortened.attach(tree):
        raise PredicateError("a list is no member of IN")
    return translated(tree, shortened.text, schema, now, knows_fractions=knows_fractions)


def parse_condition(text: str, schema: pa.Schema) -> exp.Expr:
    """Returns sqlglot's tree of a condition. Raises as ``parse_where`` does."""
    try:
        tree = sqlglot.parse_one(text, dialect=parsed_as(DUCKDB), into=exp.Condition)
    except SQL_ERRORS as error:
        # The cause has the reason in its first line.
        cause = error.__cause__ if isinstance(error, sqlglot.errors.SqlglotError) else None
        reason = re.sub(" (into|for) <class.*", "", [*str(cause or error).splitlines(), ""][0])
        hint = _keyword_hint(text, schema)
        raise PredicateError(f"cannot parse the condition {text!r}: {reason}{hint}") from error
    except RecursionError as error:
        raise PredicateError(_TOO_DEEP) from error
    interval = partial_interval(text, "duckdb")
    if interval is not None:
        raise PredicateError(f"{text!r}: the interval {interval!r} is not understood")
    if "[" in text and _is_in_list_with_null(text):
        raise PredicateError(f"{text!r}: NULL in IN […] is not understood: use IN (…)")
    for name in sorted(misread_columns(tree, [schema], text, "duckdb")):
        raise PredicateError(
            f'{text!r}: a column is called {name}; write "{name}" for it, and () after functions'
        )
    return tree


def translated(
    tree: exp.Expr,
    text: str,
    schema: pa.Schema,
    now: Now | None = utc_now,
    *,
    knows_fractions: bool = True,
) -> Node:
    """Returns the tree of a condition, given as sqlglot's tree, which it may change.

    ``text`` is the condition, for messages. Raises as ``parse_where`` does.
    """
    try:
        translator = Translator(schema, knows_fractions=knows_fractions)
        kinds = {type(node) for node in tree.walk()}
        folded = fold_constants(tree, now) if may_be_computed(kinds) else tree
        return translator.condition(
            translator.with_fields(folded) if exp.Bracket in kinds else folded
        )
    except PredicateError:
        raise
    except RecursionError as error:
        raise PredicateError(_TOO_DEEP) from error
    except SQL_ERRORS as error:
        raise PredicateError(f"cannot understand the condition {text!r}") from error


def _is_in_list_with_null(text: str) -> bool:
    """True if ``text`` has ``IN [1, NULL]``, which is FALSE where ``IN (1, NULL)`` is NULL."""
    depth, before = 0, None
    for token in sqlglot.tokenize(text, read="duckdb"):
        kind = token.token_type
        if kind is TokenType.L_BRACKET and (depth or before is TokenType.IN):
            depth += 1
        elif kind is TokenType.R_BRACKET and depth:
            depth -= 1
        elif kind is TokenType.NULL and depth:
            return True
        before = kind
    return False


def _keyword_hint(text: str, schema: pa.Schema) -> str:
    """Returns a hint at columns named like SQL keywords that ``text`` has without quotes."""
    words = {word.lower() for word in re.findall(r"\w+", _QUOTED.sub("", text))}
    keywords = DuckDB.Tokenizer.KEYWORDS
    unquoted = [n for n in schema.names if n.lower() in words and n.upper() in keywords]
    return "".join(f'; a column is called {name}: write "{name}" for it' for name in unquoted)


class Translator(Values):
    """Translates one condition."""

    def with_fields(self, tree: exp.Expr) -> exp.Expr:
        """Returns ``tree`` with ``usr.id`` in place of ``usr['id']`` for structs.

        For maps, the string in brackets is a key and stays.
        """
        top = exp.Paren(this=tree)
        for node in reversed(list(tree.find_all(exp.Bracket))):  # the inner ones first
            match node:
                case exp.Bracket(
                    this=exp.Column() | exp.Dot() as subject,
                    expressions=[exp.Literal(is_string=True) as key],
                ) if pa.types.is_struct(self._type_of(subject)):
                    name = exp.to_identifier(key.name, quoted=True)
                    node.replace(exp.Dot(this=subject, expression=name))
        changed: exp.Expr = top.this
        return changed

    def condition(self, node: exp.Expr) -> Node:
        """Returns the tree of a condition.

        Raises ``PredicateError`` if it is not understood.
        """
        match node:
            case exp.Paren(this=inner):
                return self.condition(inner)
            case exp.And():
                return self._joined("and_kleene", node)
            case exp.Or():
                return self._joined("or_kleene", node)
            case exp.Binary(expression=exp.Literal() as constant) if type(node) in _COMPARISONS:
                return self._compare(type(node), node.this, constant)
        search = text_search_of(node)
        if search is not None and not self._holds_several(search.subject):
            return self._search(search)
        membership = membership_of(node)
        if membership is not None and isinstance(membership.subject, exp.Column | exp.Dot):
            kind = self._type_of(membership.subject)
            if kind is not None and searched_type(kind, membership) is not None:
                return self._membership(node, membership, kind)
            needed_type = "map" if not membership.of_lists else "list"
            raise PredicateError(
                f"{text_of(node)!r}: {text_of(membership.subject)} is {kind}, not a {needed_type}"
            )
        match node:
            case exp.Not(this=inner):
                return inverted(self.condition(inner))
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
                return Literal(pa.scalar(bool(node.this)))
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
                return inverted(self._same(node))
        if type(node) in _COMPARISONS:
            sides = node.args["this"], node.args["expression"]
            return self._compare(type(node), *sides)
        raise _not_a_condition(node)

    def _joined(self, function: str, node: exp.Connector) -> Node:
        return joined(function, [self.condition(part) for part in node.flatten(unnest=False)])

    def _compare(
        self,
        comparison: type[exp.Expr],
        left: exp.Expr,
        right: exp.Expr,
    ) -> Node:
        is_swapped = is_constant(left) and not is_constant(right)
        if not is_swapped and not is_constant(right):
            sides = ((self._value(side), self._type_of(side)) for side in (left, right))
            return Call(_COMPARISONS[comparison], as_floats(*sides))
        node, constant = (right, left) if is_swapped else (left, right)
        kind = self._type_of(node)
        (scalar,) = self._constants_of_type(kind, node, [constant])
        return self._compare_with(comparison, node, kind, scalar, is_swapped)

    def _compare_with(
        self,
        comparison: type[exp.Expr],
        node: exp.Expr,
        node_type: pa.DataType | None,
        scalar: pa.Scalar,
        is_swapped: bool = False,
    ) -> Node:
        value = self._value(node)
        above = next_integer(scalar, node_type)
        if above is not None:
            return _compare_with_fraction(
                MIRRORED[comparison] if is_swapped else comparison, value, above
            )
        # View columns are read as large types, but a NULL constant keeps its view type.
        kind = scalar.type if scalar.is_valid else VIEWED.get(scalar.type, scalar.type)
        if kind != scalar.type:
            value, scalar = built(pc.Expression.cast, value, kind), pa.scalar(None, kind)
        sides = (Literal(scalar), value) if is_swapped else (value, Literal(scalar))
        return Call(_COMPARISONS[comparison], sides)

    def _between(self, node: exp.Between) -> Node:
        if node.args.get("symmetric"):
            raise PredicateError(f"{text_of(node)!r}: SYMMETRIC is not understood")
        subject, bounds = node.this, (node.args["low"], node.args["high"])
        if is_constant(subject) or not all(map(is_constant, bounds)):
            above = self._compare(exp.GTE, subject, bounds[0])
            return joined("and_kleene", [above, self._compare(exp.LTE, subject, bounds[1])])
        low, high = self._constants_for(subject, bounds)
        kind = self._type_of(subject)
        above = self._compare_with(exp.GTE, subject, kind, low)
        return joined("and_kleene", [above, self._compare_with(exp.LTE, subject, kind, high)])

    def _in(self, node: exp.In) -> Node:
        if not node.expressions:
            raise PredicateError(
                f"{text_of(node)!r}: only IN with a list of constants is understood"
            )
        kind = self._type_of(node.this)
        subject = self._value(node.this)
        values = members_of_type(long_list_of(node), kind)
        if values is not None:
            return built(lambda value: _in_known(value, value.isin(values)), subject)
        scalars = self._constants_for(node.this, members_of(node))
        known = [scalar for scalar in scalars if scalar.is_valid]
        # In SQL, NULL IN (…) is NULL. A NULL in the list turns FALSE into NULL.
        members = [one for one in known if not next_integer(one, kind)]

        def condition(value: pc.Expression) -> pc.Expression:
            is_one = is_member(value, members, kind)
            if len(known) < len(scalars):
                is_one = pc.if_else(is_one, is_one, _UNKNOWN)
            return _in_known(value, is_one)

        return built(condition, subject)

    def _membership(self, node: exp.Expr, membership: Membership, kind: pa.DataType) -> Node:
        if not membership.is_certain and not is_plainly_wanted(node):
            raise PredicateError(
                f"{text_of(node)!r} is understood only where it must be TRUE, not under NOT"
            )
        element = searched_type(kind, membership)
        constants = [self._scalar(constant, element) for constant in membership.constants]
        subject = self._value(membership.subject)
        return built(lambda value: call_of(membership, value, kind, constants), subject)

    def _is(self, node: exp.Is) -> Node:
        operand = node.expression
        if isinstance(operand, exp.Null):
            return built(pc.Expression.is_null, self._value(node.this))
        if isinstance(operand, exp.Boolean):
            subject, outcome = self.condition(node.this), bool(operand.this)
            return is_true(subject if outcome else inverted(subject))
        raise _not_a_condition(node)

    def _like(self, node: exp.Like | exp.ILike, escape: exp.Expr | None) -> Node:
        pattern = node.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise PredicateError(f"{text_of(node)!r}: LIKE needs a text constant as its pattern")
        value, escaping = self._text_value(node.this), escape.name if escape else ""
        ignore_case = isinstance(node, exp.ILike)
        matches = built(matches_like, value, pattern.this, escaping, ignore_case=ignore_case)
        return inverted(matches) if node.args.get("negate") else matches

    def _search(self, search: TextSearch) -> Node:
        pattern, flags = search.pattern, search.flags
        call = f"{text_of(search.node)!r}: {search.name}"
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise PredicateError(f"{call} needs a text constant")
        if flags is None:
            raise PredicateError(f"{call} supports only the options i and s")
        problem = regex_problem(pattern.this) if search.name == "regexp_matches" else None
        if problem:
            raise PredicateError(f"{text_of(search.node)!r}: {problem}")
        value = self._text_value(search.subject, search.name)
        return built(SEARCHES[search.name], value, flags + pattern.this)

    def _holds_several(self, subject: exp.Expr) -> bool:
        kind = self._type_of(subject)
        return kind is not None and bool(pa.types.is_nested(kind))

    def _words(self, node: exp.Expr, subject: exp.Expr, words: exp.Expr) -> Node:
        if not (isinstance(words, exp.Literal) and words.is_string):
            raise PredicateError(
                f"{text_of(node)!r}: contains_words needs a text constant of words"
            )
        return built(contains_words, self._text_value(subject, "contains_words"), words.this)

    def _same(self, node: exp.Expr) -> Node:
        """Returns IS NOT DISTINCT FROM a constant."""
        left, right = node.args["this"], node.args["expression"]
        if is_constant(left):
            left, right = right, left
        if not is_constant(right):
            raise PredicateError(f"{text_of(node)!r} is understood only with a constant")
        if isinstance(right.unnest(), exp.Null):
            return built(pc.Expression.is_null, self._value(left))
        return is_true(self._compare(exp.EQ, left, right))

    def _is_nan(self, node: exp.Expr, subject: exp.Expr) -> Node:
        kind = self._type_of(subject)
        if kind is not None and not pa.types.is_floating(kind):
            raise PredicateError(
                f"{text_of(node)!r}: {text_of(subject)} is {kind}, which has no NaN"
            )
        return built(pc.is_nan, self._value(subject))

    def _boolean_column(self, node: exp.Column) -> Node:
        kind = self._type_of(node)
        if kind is None or not pa.types.is_boolean(kind):
            raise PredicateError(f"{text_of(node)!r} is {kind}, not a condition")
        return self._value(node)


def _compare_with_fraction(comparison: type[exp.Expr], value: Node, above: pa.Scalar) -> Node:
    """Returns a comparison of integers with a number between ``above`` and the integer before it.

    Doubles may not tell the two apart. No integer equals the number, but NULL stays NULL.
    """
    sides = value, Literal(above)
    is_less, is_greater = Call("less", sides), Call("greater_equal", sides)
    if comparison in (exp.LT, exp.LTE):
        return is_less
    if comparison in (exp.GT, exp.GTE):
        return is_greater
    return joined("and_kleene" if comparison is exp.EQ else "or_kleene", [is_less, is_greater])


def _in_known(value: pc.Expression, condition: pc.Expression) -> pc.Expression:
    """Returns ``condition``, and NULL where ``value`` is NULL."""
    return pc.if_else(value.is_valid(), condition, _UNKNOWN)


def inverted(condition: Node) -> Node:
    """Returns NOT of a condition."""
    return Call("invert", (condition,))


def is_true(condition: Node) -> Node:
    """Returns a condition with FALSE in place of NULL."""
    return Call("coalesce", (condition, Literal(pa.scalar(False))))


def is_plainly_wanted(node: exp.Expr) -> bool:
    """True if a condition keeps rows only where it is TRUE; FALSE and NULL count the same."""
    parent = node.parent
    while isinstance(parent, exp.Condition):
        if not isinstance(parent, exp.And | exp.Or | exp.Paren):
            return False
        parent = parent.parent
    return True


def _not_a_condition(node: exp.Expr) -> PredicateError:
    return PredicateError(f"{text_of(node)!r} is not a condition this understands: {_CONDITIONS}")
