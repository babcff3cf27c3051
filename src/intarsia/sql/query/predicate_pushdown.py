"""Which conditions of a SQL query hold for every row of a table that the query needs.

A condition moves from a WHERE, HAVING or ON to the one table that it is about. It passes subqueries
and common table expressions, and goes to all sides of a set operation. It passes DISTINCT, GROUP BY
and windows if ``pushdown_barriers`` allows it. If inner joins make two columns equal, it goes to
both. A condition on several tables goes to each as the part that it implies there
(``or_implication``). No condition passes LIMIT or recursion, nor goes to the side of an outer join
that may be missing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from intarsia.sql.query.equivalence import Place, column_at, equal_columns, is_inner, place_of
from intarsia.sql.query.join_keys import join_keys, member_keys
from intarsia.sql.query.or_implication import implied, joined
from intarsia.sql.query.pushdown_barriers import cannot_fail, group_keys, is_key, passes
from intarsia.sql.scope import (
    Scopes,
    Source,
    Sources,
    conjuncts,
    is_positional,
    joins_of,
    owner_of,
    wheres,
)

_MAX_EXTRA_COLUMNS = 100
"""Conditions on a common table expression may mention this many more columns than the query."""


def conditions_of(tree: exp.Expr, scopes: Scopes) -> dict[int, tuple[exp.Expr, ...]]:
    """Returns the conditions on each table of ``scopes``, by ``id``, in terms of its columns."""
    pushdown = _Pushdown(scopes)
    for select in tree.find_all(exp.Select):
        pushdown.visit(select)
    pushdown.finish(_MAX_EXTRA_COLUMNS + _column_count(tree))
    return {key: tuple(conditions) for key, conditions in pushdown.conditions.items()}


class _Pushdown:
    """Collects conditions by the ``id`` of the table they are about."""

    def __init__(self, scopes: Scopes) -> None:
        self.conditions: dict[int, list[exp.Expr]] = {}
        self._scopes = scopes
        self._equal_by_select: dict[int, list[set[Place]]] = {}
        self._conditions_by_reference: dict[str, dict[int, list[exp.Expr]]] = {}

    def visit(self, select: exp.Select) -> None:
        """Pushes the conditions of ``select``'s own WHERE, HAVING, ON and joins."""
        sources = self._scopes.sources(select)
        if sources is None:
            return
        having = select.args.get("having")
        for condition in wheres(select):
            self._push(select, sources, condition)
        for condition in conjuncts(having.this if having else None):
            self._push_having(select, sources, condition)
        for position, join in enumerate(joins_of(select), start=1):
            for condition in conjuncts(join.args.get("on")):
                self._push_on(select, sources, position, condition)
        for alias, condition in join_keys(self._scopes, select, sources):
            self._push_to_source(sources[alias], alias, condition)
        for condition in member_keys(self._scopes, select, sources):
            self._push(select, sources, condition)

    def finish(self, max_columns: int) -> None:
        """Pushes into each common table expression the OR of the conditions of its references.

        It goes from the last to the first, as each refers to earlier ones only. The conditions may
        double in size at each step. They are dropped if they mention more than ``max_columns``
        columns.
        """
        for name, common in reversed(self._scopes.common_tables.items()):
            conditions_by_reference = self._conditions_by_reference.get(name, {})
            names = self._scopes.names(common.body)
            if (
                conditions_by_reference
                and len(conditions_by_reference) == common.uses
                and names is not None
            ):
                each = [
                    joined(exp.And, conditions) for conditions in conditions_by_reference.values()
                ]
                distinct = list(dict.fromkeys(each))
                if sum(map(_column_count, distinct)) > max_columns:
                    continue
                self._push_into(common.body, joined(exp.Or, distinct), names)

    def _push(self, select: exp.Select, sources: Sources, condition: exp.Expr) -> None:
        for part in _with_implied(sources, condition):
            for variant in self._variants(select, sources, part):
                owner = _owner(sources, variant)
                if owner is not None and sources[owner].is_preserved:
                    self._push_to_source(sources[owner], owner, variant)

    def _push_having(self, select: exp.Select, sources: Sources, condition: exp.Expr) -> None:
        """Pushes a condition on grouping keys, which drops whole groups."""
        outputs = self._scopes.outputs(select)
        if outputs is None or not cannot_fail(select):
            return
        keys = group_keys(select, outputs, sources)

        def is_about_keys(part: exp.Expr) -> bool:
            columns = _columns_in(part)
            are_keys = all(is_key(column, keys, outputs, sources) for column in columns)
            return bool(columns) and are_keys and not part.find(exp.Query)

        about_keys = implied(condition, is_about_keys)
        if about_keys is not None:
            self._push(select, sources, about_keys)

    def _push_on(
        self, select: exp.Select, sources: Sources, join_position: int, condition: exp.Expr
    ) -> None:
        """Pushes a condition of ON to the joined table, or to both sides of an inner join.

        A row of the joined table that fails it never matches. An inner join drops other rows, too.
        """
        join = joins_of(select)[join_position - 1]
        if join.side not in ("", "LEFT"):
            return
        is_inner_join = not join.side and join.kind in ("", "INNER")
        for part in _with_implied(sources, condition):
            owner = _owner(sources, part)
            if owner is None:
                continue
            position = list(sources).index(owner)
            if is_inner_join and position <= join_position and sources[owner].is_preserved:
                self._push(select, sources, part)
            elif position == join_position:
                self._push_to_source(sources[owner], owner, part)

    def _push_to_source(self, source: Source, alias: str, condition: exp.Expr) -> None:
        """Pushes a condition of a SELECT to one of its sources."""
        condition = unqualified(condition, alias, source.names or ())
        if self._scopes.is_table(source.node):
            self.conditions.setdefault(id(source.node), []).append(condition)
            return
        common = self._scopes.common_table(source.node)
        if common is not None and common.uses > 1:
            waiting = self._conditions_by_reference.setdefault(source.node.name.lower(), {})
            waiting.setdefault(id(source.node), []).append(condition)
            return
        body = self._scopes.body_of(source.node)
        if body is not None and source.names is not None:
            self._push_into(body, condition, source.names)

    def _push_into(self, body: exp.Query, condition: exp.Expr, names: Sequence[str]) -> None:
        """Pushes a condition on the outputs of ``body``, called ``names``, to its sources."""
        if isinstance(body, exp.SetOperation):
            self._push_into_both(body, condition, names)
            return
        if not isinstance(body, exp.Select):
            return
        outputs, sources = self._scopes.outputs(body), self._scopes.sources(body)
        if outputs is None or sources is None or len(outputs) != len(names):
            return
        output_by_name = dict(zip(names, outputs, strict=True))

        def may_pass(part: exp.Expr) -> bool:
            used_outputs = [
                output_by_name[name] for name in _names_in(part) if name in output_by_name
            ]
            return bool(used_outputs) and passes(body, used_outputs, outputs, sources)

        passing = implied(condition, may_pass)
        rewritten = None if passing is None else _substituted(passing, output_by_name, sources)
        if rewritten is not None:
            self._push(body, sources, rewritten)

    def _push_into_both(
        self, operation: exp.SetOperation, condition: exp.Expr, names: Sequence[str]
    ) -> None:
        """Pushes a condition into both sides of a set operation, which treat rows alike."""
        sides = [self._scopes.body_of(operation.this), self._scopes.body_of(operation.expression)]
        positions = [names.index(name) for name in _names_in(condition) if name in names]
        if not is_positional(operation) or not all(
            self._scopes.output_origins(operation, position) for position in positions
        ):
            return
        for side in sides:
            if isinstance(side, exp.SetOperation) or (
                isinstance(side, exp.Select) and cannot_fail(side)
            ):
                self._push_into(side, condition, names)

    # --- columns that joins make equal ----------------------------------------------------------

    def _variants(
        self, select: exp.Select, sources: Sources, condition: exp.Expr
    ) -> Iterator[exp.Expr]:
        """Yields ``condition``. If it is on a single column, yields it for every equal column."""
        columns = _columns_in(condition)
        merged = {
            name.name.lower(): alias
            for join in joins_of(select)
            if is_inner(join)
            for name in join.args.get("using") or ()
            for alias in [next(iter(sources))]
        }
        places = {place_of(column, sources, merged) for column in columns}
        place = places.pop() if len(places) == 1 else None
        equal = self._equal_by_select.get(id(select))
        if equal is None:
            equal = equal_columns(self._scopes, select, sources, _is_one_type)
            self._equal_by_select[id(select)] = equal
        same = [group for group in equal if place in group]
        if not same or condition.find(exp.Query, exp.Lambda):
            yield condition
            return
        for alias, name in sorted(same[0]):
            yield _replaced(condition, functools.partial(_column_instead, column_at((alias, name))))


def _is_one_type(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    """True if conditions mean the same for both types.

    Floats are left out: 0.0 and -0.0 are equal, but some functions differ for them.
    """
    return bool(one is not None and one == other and not pa.types.is_floating(one))


def _column_count(tree: exp.Expr) -> int:
    """Returns how often a tree mentions columns."""
    return sum(1 for _ in tree.find_all(exp.Column))


def _column_instead(column: exp.Column, _: exp.Column) -> exp.Column:
    return column.copy()


def _columns_in(condition: exp.Expr) -> list[exp.Column]:
    return list(condition.find_all(exp.Column))


def _names_in(condition: exp.Expr) -> set[str]:
    """Returns the first part of the names of a condition's columns."""
    return {column.parts[0].name.lower() for column in _columns_in(condition)}


def _with_implied(sources: Sources, condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yields ``condition``. If it is on several sources, also yields what it implies about each."""
    yield condition
    if isinstance(condition.unnest(), exp.And | exp.Or) and _owner(sources, condition) is None:
        parts = (implied(condition, functools.partial(_is_on, sources, a)) for a in sources)
        yield from (part for part in parts if part is not None)


def _is_on(sources: Sources, alias: str, condition: exp.Expr) -> bool:
    return _owner(sources, condition) == alias


def _owner(sources: Sources, condition: exp.Expr) -> str | None:
    """Returns the one source that all columns of ``condition`` belong to, or None."""
    if condition.find(exp.Query, exp.Lambda):
        return None
    owners = {owner_of(column, sources) for column in _columns_in(condition)}
    return owners.pop() if len(owners) == 1 else None


def unqualified(condition: exp.Expr, alias: str, names: Iterable[str]) -> exp.Expr:
    """Returns ``condition`` with the alias removed from its columns."""

    def strip(node: exp.Column) -> exp.Expr:
        if len(node.parts) == 1:
            return node
        first, *rest = node.parts
        return _column(rest) if first.name.lower() == alias and alias not in names else node

    return _replaced(condition, strip)


def _replaced(condition: exp.Expr, change: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """Returns a copy of ``condition`` with columns replaced by ``change``."""

    def replace(node: exp.Expr) -> exp.Expr:
        return change(node) if isinstance(node, exp.Column) else node

    return condition.copy().transform(replace, copy=False)


def _column(parts: Sequence[exp.Expr]) -> exp.Column:
    """Returns a column of up to four parts."""
    names = ("this", "table", "db", "catalog")
    return exp.Column(**dict(zip(names, reversed([part.copy() for part in parts]), strict=False)))


def _substituted(
    condition: exp.Expr, output_by_name: Mapping[str, exp.Expr], sources: Sources
) -> exp.Expr | None:
    """Returns a condition on the outputs of a SELECT, by name, in terms of its sources' columns.

    Returns None if that is not possible.
    """
    is_possible = True

    def replace(node: exp.Column) -> exp.Expr:
        nonlocal is_possible
        first, *rest = node.parts
        output = output_by_name.get(first.name.lower())
        if output is None:
            is_possible = False
            return node
        inner = output.unalias()
        if not isinstance(inner, exp.Column):
            is_possible = is_possible and not rest
            return inner.copy()
        parts = [*inner.parts, *rest]
        is_possible = is_possible and len(parts) <= 4 and owner_of(inner, sources) is not None
        return _column(parts[:4])

    replaced = _replaced(condition, replace)
    return replaced if is_possible else None
