"""Which conditions of a SQL query hold for every row of a table that the query needs.

A condition goes from a WHERE, HAVING or ON to the one table it is about, through subqueries and
common table expressions, to all sides of a set operation, and below DISTINCT, GROUP BY and windows
where ``passing`` says so. Of two columns that inner joins hold equal, it goes to both. Of one on
several tables, to each goes what it implies (``implied``). It does not go to the side of an outer
join that may be missing, nor through LIMIT or recursion.
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

_SPARE_COLUMNS = 100
"""By so many more mentions of columns may what is asked of a common table expression be longer
than the query."""


def conditions_of(tree: exp.Expr, scopes: Scopes) -> dict[int, tuple[exp.Expr, ...]]:
    """For each table of ``scopes``, by ``id``, the conditions on it, in terms of its columns."""
    pushdown = _Pushdown(scopes)
    for select in tree.find_all(exp.Select):
        pushdown.visit(select)
    pushdown.finish(_SPARE_COLUMNS + _size(tree))
    return {key: tuple(found) for key, found in pushdown.found.items()}


class _Pushdown:
    """Collects conditions by the ``id`` of the table they are about."""

    def __init__(self, scopes: Scopes) -> None:
        self.found: dict[int, list[exp.Expr]] = {}
        self._scopes = scopes
        self._equal: dict[int, list[set[Place]]] = {}
        self._waiting: dict[str, dict[int, list[exp.Expr]]] = {}

    def visit(self, select: exp.Select) -> None:
        """Push what ``select``'s own WHERE, HAVING and ON say."""
        sources = self._scopes.sources(select)
        if sources is None:
            return
        having = select.args.get("having")
        for condition in wheres(select):
            self._push(select, sources, condition)
        for condition in conjuncts(having.this if having else None):
            self._push_having(select, sources, condition)
        for place, join in enumerate(joins_of(select), start=1):
            for condition in conjuncts(join.args.get("on")):
                self._push_on(select, sources, place, condition)
        for alias, condition in join_keys(self._scopes, select, sources):
            self._hand_down(sources[alias], alias, condition)
        for condition in member_keys(self._scopes, select, sources):
            self._push(select, sources, condition)

    def finish(self, most_columns: int) -> None:
        """Push into common table expressions that several refer to what any of these wants.

        From the last to the first: they refer to earlier ones. What each wants of the one before
        doubles at each step, and is let go of where it mentions more than ``most_columns``.
        """
        for name, common in reversed(self._scopes.common_tables.items()):
            wanted = self._waiting.get(name, {})
            names = self._scopes.names(common.body)
            if wanted and len(wanted) == common.uses and names is not None:
                each = [joined(exp.And, conditions) for conditions in wanted.values()]
                distinct = list(dict.fromkeys(each))
                if sum(map(_size, distinct)) > most_columns:
                    continue
                self._into(common.body, joined(exp.Or, distinct), names)

    def _push(self, select: exp.Select, sources: Sources, condition: exp.Expr) -> None:
        for part in _with_implied(sources, condition):
            for variant in self._variants(select, sources, part):
                owner = _owner(sources, variant)
                if owner is not None and sources[owner].kept:
                    self._hand_down(sources[owner], owner, variant)

    def _push_having(self, select: exp.Select, sources: Sources, condition: exp.Expr) -> None:
        """A condition on keys drops groups as a whole."""
        outputs = self._scopes.outputs(select)
        if outputs is None or not cannot_fail(select):
            return
        keys = group_keys(select, outputs, sources)

        def is_about_keys(part: exp.Expr) -> bool:
            found = _columns(part)
            are_keys = all(is_key(column, keys, outputs, sources) for column in found)
            return bool(found) and are_keys and not part.find(exp.Query)

        about_keys = implied(condition, is_about_keys)
        if about_keys is not None:
            self._push(select, sources, about_keys)

    def _push_on(
        self, select: exp.Select, sources: Sources, place: int, condition: exp.Expr
    ) -> None:
        """A row of the joined table that fails its ON never matches. An inner join drops others."""
        join = joins_of(select)[place - 1]
        if join.side not in ("", "LEFT"):
            return
        inner = not join.side and join.kind in ("", "INNER")
        for part in _with_implied(sources, condition):
            owner = _owner(sources, part)
            if owner is None:
                continue
            position = list(sources).index(owner)
            if inner and position <= place and sources[owner].kept:
                self._push(select, sources, part)
            elif position == place:
                self._hand_down(sources[owner], owner, part)

    def _hand_down(self, source: Source, alias: str, condition: exp.Expr) -> None:
        """From a select to one of its sources."""
        condition = unqualified(condition, alias, source.names or ())
        if self._scopes.is_table(source.node):
            self.found.setdefault(id(source.node), []).append(condition)
            return
        common = self._scopes.common_table(source.node)
        if common is not None and common.uses > 1:
            waiting = self._waiting.setdefault(source.node.name.lower(), {})
            waiting.setdefault(id(source.node), []).append(condition)
            return
        body = self._scopes.body_of(source.node)
        if body is not None and source.names is not None:
            self._into(body, condition, source.names)

    def _into(self, body: exp.Query, condition: exp.Expr, names: Sequence[str]) -> None:
        """From a condition on what ``body`` gives, under ``names``, to what it is made of."""
        if isinstance(body, exp.SetOperation):
            self._into_both(body, condition, names)
            return
        if not isinstance(body, exp.Select):
            return
        outputs, sources = self._scopes.outputs(body), self._scopes.sources(body)
        if outputs is None or sources is None or len(outputs) != len(names):
            return
        given = dict(zip(names, outputs, strict=True))

        def may_pass(part: exp.Expr) -> bool:
            used = [given[name] for name in _names_in(part) if name in given]
            return bool(used) and passes(body, used, outputs, sources)

        passing = implied(condition, may_pass)
        replaced = None if passing is None else _substituted(passing, given, sources)
        if replaced is not None:
            self._push(body, sources, replaced)

    def _into_both(
        self, operation: exp.SetOperation, condition: exp.Expr, names: Sequence[str]
    ) -> None:
        """A row is on a side of a set operation, or is not, whether others are or not."""
        sides = [self._scopes.body_of(operation.this), self._scopes.body_of(operation.expression)]
        places = [names.index(name) for name in _names_in(condition) if name in names]
        if not is_positional(operation) or not all(
            self._scopes.output_origins(operation, place) for place in places
        ):
            return
        for side in sides:
            if isinstance(side, exp.SetOperation) or (
                isinstance(side, exp.Select) and cannot_fail(side)
            ):
                self._into(side, condition, names)

    # --- what joins hold equal ------------------------------------------------------------------

    def _variants(
        self, select: exp.Select, sources: Sources, condition: exp.Expr
    ) -> Iterator[exp.Expr]:
        """``condition``; one on a single column also for every column that is equal to it."""
        columns = _columns(condition)
        merged = {
            name.name.lower(): alias
            for join in joins_of(select)
            if is_inner(join)
            for name in join.args.get("using") or ()
            for alias in [next(iter(sources))]
        }
        places = {place_of(column, sources, merged) for column in columns}
        place = places.pop() if len(places) == 1 else None
        equal = self._equal.get(id(select))
        if equal is None:
            equal = equal_columns(self._scopes, select, sources, _is_one_type)
            self._equal[id(select)] = equal
        same = [group for group in equal if place in group]
        if not same or condition.find(exp.Query, exp.Lambda):
            yield condition
            return
        for alias, name in sorted(same[0]):
            yield _replaced(condition, functools.partial(_instead, column_at((alias, name))))


def _is_one_type(one: pa.DataType | None, other: pa.DataType | None) -> bool:
    """Do conditions mean the same of both? Not of floats: 0.0 and -0.0 are equal, and differ."""
    return bool(one is not None and one == other and not pa.types.is_floating(one))


def _size(tree: exp.Expr) -> int:
    """How often it mentions columns."""
    return sum(1 for _ in tree.find_all(exp.Column))


def _instead(column: exp.Column, _: exp.Column) -> exp.Column:
    return column.copy()


def _columns(condition: exp.Expr) -> list[exp.Column]:
    return list(condition.find_all(exp.Column))


def _names_in(condition: exp.Expr) -> set[str]:
    """The first names of a condition's columns."""
    return {column.parts[0].name.lower() for column in _columns(condition)}


def _with_implied(sources: Sources, condition: exp.Expr) -> Iterator[exp.Expr]:
    """``condition``, and of one on several sources what it implies about each of them."""
    yield condition
    if isinstance(condition.unnest(), exp.And | exp.Or) and _owner(sources, condition) is None:
        parts = (implied(condition, functools.partial(_is_on, sources, a)) for a in sources)
        yield from (part for part in parts if part is not None)


def _is_on(sources: Sources, alias: str, condition: exp.Expr) -> bool:
    return _owner(sources, condition) == alias


def _owner(sources: Sources, condition: exp.Expr) -> str | None:
    """The one source that all columns of ``condition`` belong to."""
    if condition.find(exp.Query, exp.Lambda):
        return None
    owners = {owner_of(column, sources) for column in _columns(condition)}
    return owners.pop() if len(owners) == 1 else None


def unqualified(condition: exp.Expr, alias: str, names: Iterable[str]) -> exp.Expr:
    """``condition`` with its columns' names alone."""

    def strip(node: exp.Column) -> exp.Expr:
        if len(node.parts) == 1:
            return node
        first, *rest = node.parts
        return _column(rest) if first.name.lower() == alias and alias not in names else node

    return _replaced(condition, strip)


def _replaced(condition: exp.Expr, change: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """A copy of ``condition`` with other columns."""

    def replace(node: exp.Expr) -> exp.Expr:
        return change(node) if isinstance(node, exp.Column) else node

    return condition.copy().transform(replace, copy=False)


def _column(parts: Sequence[exp.Expr]) -> exp.Column:
    """A column of up to four parts."""
    names = ("this", "table", "db", "catalog")
    return exp.Column(**dict(zip(names, reversed([part.copy() for part in parts]), strict=False)))


def _substituted(
    condition: exp.Expr, given: Mapping[str, exp.Expr], sources: Sources
) -> exp.Expr | None:
    """A condition on what a SELECT gives, by name, in terms of what it selects from."""
    possible = True

    def replace(node: exp.Column) -> exp.Expr:
        nonlocal possible
        first, *rest = node.parts
        output = given.get(first.name.lower())
        if output is None:
            possible = False
            return node
        inner = output.unalias()
        if not isinstance(inner, exp.Column):
            possible = possible and not rest
            return inner.copy()
        parts = [*inner.parts, *rest]
        possible = possible and len(parts) <= 4 and owner_of(inner, sources) is not None
        return _column(parts[:4])

    replaced = _replaced(condition, replace)
    return replaced if possible else None
