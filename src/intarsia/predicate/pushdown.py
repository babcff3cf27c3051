"""Which conditions of a SQL query hold for every row of a table that the query needs.

A condition goes from a WHERE or ON to the one table it is about, through subqueries and common
table expressions that merely select. It does not go to the side of an outer join that may be
missing, nor through DISTINCT, GROUP BY, windows, LIMIT, set operations or recursion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

_SIDES = {"", "LEFT", "RIGHT", "FULL"}
_KINDS = {"", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"}
_METHODS = {"", "NATURAL"}
# Clauses after which FROM and WHERE no longer say which rows there are.
_UNUSUAL = ("laterals", "pivots", "match", "connect", "prewhere", "sample", "into")
# Clauses that see more rows than they give.
_CLOSED = ("distinct", "group", "having", "qualify", "limit", "offset", "windows")


@dataclass(frozen=True, slots=True)
class _Source:
    """Something selected from. ``kept``: no join gives rows in which it is missing, and none of
    its rows is left out for others.
    """

    node: exp.Expr
    names: frozenset[str] | None
    kept: bool


def conditions_of(
    tree: exp.Expr, tables: Mapping[int, Sequence[str]]
) -> dict[int, tuple[exp.Expr, ...]]:
    """For each table, the conditions on it, in terms of its columns.

    ``tables`` has the columns of each ``exp.Table`` of ``tree`` that matters, by ``id``.
    """
    pushdown = _Pushdown(tree, tables)
    for select in tree.find_all(exp.Select):
        pushdown.visit(select)
    return {key: tuple(found) for key, found in pushdown.found.items()}


def columns_used(table: exp.Table, names: Sequence[str]) -> Iterator[str]:
    """Those of ``names`` that the query may ask of this occurrence of a table."""
    scope = table.find_ancestor(exp.Select)
    alias = table.alias_or_name.lower()
    lower = {name.lower() for name in names}
    if scope is None or _may_need_all(scope, table, alias):
        yield from names
        return
    mentioned: set[str] = set()
    for column in scope.find_all(exp.Column):
        parts = [part.name.lower() for part in column.parts]
        if alias in parts or len(parts) == 1 or parts[0] in lower:
            mentioned.update(parts)
    for join in scope.find_all(exp.Join):
        mentioned |= {name.name.lower() for name in join.args.get("using") or ()}
    yield from (name for name in names if name.lower() in mentioned)


def _may_need_all(scope: exp.Select, table: exp.Table, alias: str) -> bool:
    columns = list(scope.find_all(exp.Column))
    alias_node = table.args.get("alias")
    return (
        any(not isinstance(star.parent, exp.Count) for star in scope.find_all(exp.Star))
        or any(scope.find_all(exp.Columns))
        or any(join.method for join in scope.find_all(exp.Join))
        or any(column.name.lower() == alias for column in columns)
        or any(scope.args.get(name) for name in _UNUSUAL)
        or bool(alias_node and alias_node.args.get("columns"))
    )


class _Pushdown:
    """Collects conditions by the ``id`` of the table they are about."""

    def __init__(self, tree: exp.Expr, tables: Mapping[int, Sequence[str]]) -> None:
        self.found: dict[int, list[exp.Expr]] = {}
        self._columns = {
            key: {name.lower() for name in names}
            for key, names in tables.items()
            if len({name.lower() for name in names}) == len(names)
        }
        self._once = _used_once(tree)

    def visit(self, select: exp.Select) -> None:
        """Push what ``select``'s own WHERE and ON say."""
        sources = self._sources(select)
        if sources is None:
            return
        where = select.args.get("where")
        for condition in _conjuncts(where.this if where else None):
            self._push(sources, condition)
        for place, join in enumerate(select.args.get("joins") or (), start=1):
            for condition in _conjuncts(join.args.get("on")):
                self._push_on(sources, join, place, condition)

    def _push(self, sources: Mapping[str, _Source], condition: exp.Expr) -> None:
        owner = _owner(sources, condition)
        if owner is not None and sources[owner].kept:
            self._hand_down(sources[owner], owner, condition)

    def _push_on(
        self, sources: Mapping[str, _Source], join: exp.Join, place: int, condition: exp.Expr
    ) -> None:
        """A row of the joined table that fails its ON never matches. An inner join drops others."""
        owner = _owner(sources, condition)
        if owner is None or join.side not in ("", "LEFT"):
            return
        position = list(sources).index(owner)
        inner = not join.side and join.kind in ("", "INNER")
        if position == place or (inner and position < place and sources[owner].kept):
            self._hand_down(sources[owner], owner, condition)

    def _hand_down(self, source: _Source, alias: str, condition: exp.Expr) -> None:
        """From a select to one of its sources."""
        condition = _unqualified(condition, alias, source.names or frozenset())
        if id(source.node) in self._columns:
            self.found.setdefault(id(source.node), []).append(condition)
            return
        inner = self._select_of(source.node)
        if inner is None or any(inner.args.get(name) for name in _CLOSED):
            return
        if any(inner.find_all(exp.Window)):
            return
        sources = self._sources(inner)
        replaced = None if sources is None else _substituted(condition, inner, sources)
        if sources is not None and replaced is not None:
            self._push(sources, replaced)

    def _select_of(self, node: exp.Expr) -> exp.Select | None:
        """The SELECT a source stands for, where no other source stands for the same."""
        if isinstance(node, exp.Table):
            node = self._once.get(node.name.lower(), node)
        plain = all(name in ("this", "alias") for name, value in node.args.items() if value)
        inner = node.this if isinstance(node, exp.Subquery) and plain else node
        return inner if isinstance(inner, exp.Select) else None

    def _sources(self, select: exp.Select) -> dict[str, _Source] | None:
        """What ``select`` selects from, by alias; None where that cannot be told for certain."""
        first, joins = select.args.get("from_"), select.args.get("joins") or []
        if first is None or any(select.args.get(name) for name in _UNUSUAL):
            return None
        if not all(_is_understood(join) for join in joins):
            return None
        found: dict[str, _Source] = {}
        for place, node in enumerate([first.this, *(join.this for join in joins)]):
            alias = node.alias_or_name.lower() or f" {place}"  # a name that no column is given
            if alias in found:
                return None
            found[alias] = _Source(node, self._names(node), _is_kept(place, joins))
        return found

    def _names(self, node: exp.Expr) -> frozenset[str] | None:
        """The names of a source's columns in lower case; None where they are not known."""
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            return None
        if id(node) in self._columns:
            return frozenset(self._columns[id(node)])
        inner = self._select_of(node)
        sources = None if inner is None else self._sources(inner)
        if inner is None or sources is None:
            return None
        return _output_names(inner, sources)


def _used_once(tree: exp.Expr) -> dict[str, exp.Expr]:
    """Common table expressions that one table refers to, by name."""
    ctes = list(tree.find_all(exp.CTE))
    names = Counter(cte.alias.lower() for cte in ctes)
    uses = Counter(table.name.lower() for table in tree.find_all(exp.Table))
    return {
        name: cte.this
        for cte in ctes
        if names[name := cte.alias.lower()] == uses[name] == 1
        and not cte.parent.args.get("recursive")  # type: ignore[union-attr]  # it has one
        and not cte.args["alias"].args.get("columns")
    }


def _is_understood(join: exp.Join) -> bool:
    return join.method in _METHODS and join.side in _SIDES and join.kind in _KINDS


def _is_kept(place: int, joins: Sequence[exp.Join]) -> bool:
    """Is every row of the source at ``place`` there, and it alone, as far as joins go?"""
    own = joins[place - 1] if place else None
    if own is not None and (own.side in ("LEFT", "FULL") or own.kind in ("SEMI", "ANTI")):
        return False
    return not any(join.side in ("RIGHT", "FULL") for join in joins[place:])


def _conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    pending = [] if condition is None else [condition]
    while pending:
        match pending.pop():
            case exp.And(this=left, expression=right):
                pending += [right, left]
            case exp.Paren(this=inner):
                pending.append(inner)
            case other:
                yield other


def _owner(sources: Mapping[str, _Source], condition: exp.Expr) -> str | None:
    """The one source that all columns of ``condition`` belong to."""
    if condition.find(exp.Query, exp.Lambda):
        return None
    owners = {_owner_of(column, sources) for column in condition.find_all(exp.Column)}
    return owners.pop() if len(owners) == 1 else None


def _owner_of(column: exp.Column, sources: Mapping[str, _Source]) -> str | None:
    """The source of ``column``, whose first part is a source's alias or a column's name."""
    if any(source.names is None for source in sources.values()):
        return None
    first, *rest = (part.name.lower() for part in column.parts)
    holders = [alias for alias, source in sources.items() if first in (source.names or ())]
    if first in sources and rest:
        return first if not holders and rest[0] in (sources[first].names or ()) else None
    return holders[0] if len(holders) == 1 else None


def _unqualified(condition: exp.Expr, alias: str, names: frozenset[str]) -> exp.Expr:
    """``condition`` with its columns' names alone."""

    def strip(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or len(node.parts) == 1:
            return node
        first, *rest = node.parts
        return _column(rest) if first.name.lower() == alias and alias not in names else node

    return condition.copy().transform(strip)


def _column(parts: Sequence[exp.Expr]) -> exp.Column:
    """A column of up to four parts."""
    names = ("this", "table", "db", "catalog")
    return exp.Column(**dict(zip(names, reversed([part.copy() for part in parts]), strict=False)))


def _projections(select: exp.Select) -> dict[str, exp.Expr]:
    """What a SELECT's columns are called, and what they are; ``*`` among them."""
    return {column.alias_or_name.lower(): column.unalias() for column in select.expressions}


def _output_names(select: exp.Select, sources: Mapping[str, _Source]) -> frozenset[str] | None:
    """The names of a SELECT's columns; None where they are not known, or not distinct."""
    names: list[str] = []
    for column in select.expressions:
        if not isinstance(column, exp.Star):
            if column.is_star or not column.alias_or_name or column.find(exp.Columns):
                return None
            names.append(column.alias_or_name.lower())
            continue
        if any(column.args.values()):
            return None  # EXCLUDE, REPLACE, RENAME
        for source in sources.values():
            if source.names is None:
                return None
            names += source.names
    return frozenset(names) if len(set(names)) == len(names) else None


def _substituted(
    condition: exp.Expr, select: exp.Select, sources: Mapping[str, _Source]
) -> exp.Expr | None:
    """A condition on what ``select`` gives, in terms of what it selects from."""
    given = _projections(select)
    possible = True

    def replace(node: exp.Expr) -> exp.Expr:
        nonlocal possible
        if not isinstance(node, exp.Column):
            return node
        first, *rest = node.parts
        inner = given.get(first.name.lower(), exp.Column(this=first.copy()))
        if not isinstance(inner, exp.Column):
            possible = possible and not rest
            return inner.copy()
        parts = [*inner.parts, *rest]
        possible = possible and len(parts) <= 4 and _owner_of(inner, sources) is not None
        return _column(parts[:4])

    replaced = condition.copy().transform(replace, copy=False)
    return replaced if possible else None
