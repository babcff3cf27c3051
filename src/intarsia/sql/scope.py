"""The sources and the outputs of each part of a SQL query: names, expressions, types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

_KNOWN_SIDES = {"", "LEFT", "RIGHT", "FULL"}
_KNOWN_KINDS = {"", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"}
_KNOWN_METHODS = {"", "NATURAL"}
UNUSUAL = ("laterals", "pivots", "match", "connect", "prewhere", "sample", "into")
"""Clauses with which FROM and WHERE alone do not determine the rows."""
_MULTI_COLUMN_FUNCTIONS = {
    "stack",
    "json_tuple",
    "inline",
    "inline_outer",
    "unnest",
    "variant_explode",
}
"""Functions that return several columns, besides those that sqlglot knows."""
PLAIN_TABLE = ("this", "alias", "joins")
"""The parts of a table node that leave its rows unchanged.

It has joins if the query begins with FROM.
"""
Sources = Mapping[str, "Source"]
Origin = tuple[int, str]
"""The ``id`` of a table's node and the name of one of its columns, in lower case."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source of a SELECT: a table, a common table expression or a subquery.

    ``is_preserved`` is False if a join may return rows without a row of this source. It is also
    False on the right side of a SEMI or ANTI join. ``is_shown`` is False if ``*`` leaves out its
    columns.
    """

    node: exp.Expr
    names: tuple[str, ...] | None
    is_preserved: bool
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A common table expression, and how often the query refers to it."""

    body: exp.Query
    uses: int


class Scopes:
    """The sources and outputs of a query's parts.

    ``tables`` has the schema of each ``exp.Table`` of interest in the tree, by ``id``. A table is
    ignored if the names of two columns differ only in case. A common table expression whose name,
    in lower case, is in ``taken`` is ignored as well.
    """

    def __init__(
        self, tree: exp.Expr, tables: Mapping[int, pa.Schema], taken: Collection[str] = ()
    ) -> None:
        self._tables = {
            key: {field.name.lower(): field.type for field in schema}
            for key, schema in tables.items()
            if len({name.lower() for name in schema.names}) == len(schema.names)
        }
        common_tables = _common_tables(tree)
        self.common_tables = {
            name: table for name, table in common_tables.items() if name not in taken
        }
        self._sources: dict[int, Sources | None] = {}
        self._origins: dict[tuple[int, int], tuple[Origin, ...]] = {}

    def is_table(self, node: exp.Expr) -> bool:
        """True if ``node`` is one of the tables with a known schema."""
        return id(node) in self._tables

    def common_table(self, node: exp.Expr) -> CommonTable | None:
        """Returns the common table expression that ``node`` refers to, or None."""
        return self.common_tables.get(node.name.lower()) if isinstance(node, exp.Table) else None

    def body_of(self, node: exp.Expr) -> exp.Query | None:
        """Returns the SELECT or set operation that a source or an operand stands for, or None."""
        common = self.common_table(node)
        if common is not None:
            if not has_only(node, PLAIN_TABLE):
                return None
            node = common.body
        while isinstance(node, exp.Subquery):
            if not has_only(node, ("this", "alias")):
                return None
            node = node.this
        return node if isinstance(node, exp.Select | exp.SetOperation) else None

    def sources(self, select: exp.Select) -> Sources | None:
        """Returns the sources of ``select`` by alias, or None if they are not certain."""
        if id(select) not in self._sources:
            self._sources[id(select)] = None  # a source may refer to itself
            self._sources[id(select)] = self._compute_sources(select)
        return self._sources[id(select)]

    def _compute_sources(self, select: exp.Select) -> Sources | None:
        first, joins = select.args.get("from_"), joins_of(select)
        if first is None or any(select.args.get(name) for name in UNUSUAL):
            return None
        if select.args.get("joins") and first.this.args.get("joins"):
            return None
        if not all(_is_understood(join) for join in joins) or _has_partial_using(joins):
            return None
        sources: dict[str, Source] = {}
        for position, node in enumerate([first.this, *(join.this for join in joins)]):
            alias = node.alias_or_name.lower() or f" {position}"  # no column has this name
            if alias in sources:
                return None
            is_shown = not position or joins[position - 1].kind not in ("SEMI", "ANTI")
            sources[alias] = Source(
                node, self._names_of(node), _is_preserved(position, joins), is_shown
            )
        return sources

    def _names_of(self, node: exp.Expr) -> tuple[str, ...] | None:
        """Returns the names of a source's columns in lower case, or None if they are unknown."""
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            return None
        if id(node) in self._tables:
            return tuple(self._tables[id(node)])
        body = self.body_of(node)
        return None if body is None else self.names(body)

    def names(self, body: exp.Query) -> tuple[str, ...] | None:
        """Returns the names of ``body``'s outputs, or None if they are unknown or not distinct."""
        while isinstance(body, exp.SetOperation):
            inner = self.body_of(body.this)
            if inner is None or not is_positional(body):
                return None
            body = inner
        outputs = self.outputs(body) if isinstance(body, exp.Select) else None
        if outputs is None:
            return None
        names = tuple(_name_of(output, position) for position, output in enumerate(outputs))
        return names if len(set(names)) == len(names) else None

    def outputs(self, select: exp.Select) -> list[exp.Expr] | None:
        """Returns the outputs of a SELECT with ``*`` spelled out, or None if they are unknown."""
        columns: list[exp.Expr] = []
        for column in select.expressions:
            if not isinstance(column, exp.Star):
                if column.is_star or _may_have_several_columns(column):
                    return None
                columns.append(column)
                continue
            sources = self.sources(select)
            if sources is None or any(column.args.values()):
                return None  # EXCLUDE, REPLACE, RENAME
            if any(map(_merges_columns, joins_of(select))):
                return None  # a column of two sources is one output
            for source in sources.values():
                if source.names is None:
                    return None
                names = source.names if source.is_shown else ()
                columns += [exp.column(exp.to_identifier(name, quoted=True)) for name in names]
        return columns

    def origins_of(self, column: exp.Column, sources: Sources) -> tuple[Origin, ...]:
        """Returns the tables' columns that hold all of a column's values except NULL, unchanged.

        Returns an empty tuple if they are unknown.
        """
        place = own_place(column, sources)
        if place is None:
            return ()
        owner, name = place
        node = sources[owner].node
        if id(node) in self._tables:
            return ((id(node), name),)
        body, names = self.body_of(node), sources[owner].names
        return () if body is None or names is None else self.output_origins(body, names.index(name))

    def output_origins(self, body: exp.Query, place: int) -> tuple[Origin, ...]:
        """Returns the origins, as in ``origins_of``, of output number ``place`` of ``body``.

        For a set operation these are the origins on both sides. Returns an empty tuple if their
        types differ, as the engine casts them then.
        """
        key = id(body), place
        if key not in self._origins:
            self._origins[key] = ()  # a source may refer to itself
            self._origins[key] = self._compute_origins(body, place)
        return self._origins[key]

    def _compute_origins(self, body: exp.Query, place: int) -> tuple[Origin, ...]:
        if isinstance(body, exp.SetOperation):
            sides = [self.body_of(body.this), self.body_of(body.expression)]
            origins_by_side = [
                () if side is None else self.output_origins(side, place) for side in sides
            ]
            both = tuple(dict.fromkeys((*origins_by_side[0], *origins_by_side[1])))
            return both if all(origins_by_side) and self.common_type(both) is not None else ()
        if not isinstance(body, exp.Select):
            return ()
        outputs, sources = self.outputs(body), self.sources(body)
        if outputs is None or sources is None or place >= len(outputs):
            return ()
        column = outputs[place].unalias()
        return self.origins_of(column, sources) if isinstance(column, exp.Column) else ()

    def common_type(self, origins: Sequence[Origin]) -> pa.DataType | None:
        """Returns the type of some columns of tables, or None if there is not exactly one type."""
        first, *rest = [self._tables[table][name] for table, name in origins] or [None]
        return first if all(kind == first for kind in rest) else None

    def type_of(self, column: exp.Column, sources: Sources) -> pa.DataType | None:
        """Returns the type of a column that comes from a table unchanged, else None."""
        return self.common_type(self.origins_of(column, sources))


def joins_of(select: exp.Select) -> list[exp.Join]:
    """Returns the joins of ``select``.

    If the query begins with FROM, sqlglot attaches them to the first table.
    """
    first = select.args.get("from_")
    own = select.args.get("joins")
    if own or first is None or not isinstance(first.this, exp.Table):
        return own or []
    return first.this.args.get("joins") or []


def _name_of(output: exp.Expr, place: int) -> str:
    """Returns the name of an output; a name that nothing else has if the engine makes it up."""
    output = output.unnest()
    is_named = isinstance(output, exp.Alias | exp.Column)
    return output.alias_or_name.lower() if is_named else f" {place}"


def _may_have_several_columns(output: exp.Expr) -> bool:
    """True if an expression in a SELECT may return several columns."""
    calls = output.find_all(exp.Anonymous)
    generates = any(call.name.lower() in _MULTI_COLUMN_FUNCTIONS for call in calls)
    return generates or output.find(exp.Columns, exp.UDTF) is not None


def _merges_columns(join: exp.Join) -> bool:
    """True if columns of one name become one column."""
    is_shown = join.kind not in ("SEMI", "ANTI")
    return is_shown and bool(join.args.get("using") or join.method)


def _has_partial_using(joins: Sequence[exp.Join]) -> bool:
    """True if a USING may not see some sources before it, because they are listed with commas."""
    commas = [join for join in joins if has_only(join, ("this",))]
    return bool(commas) and any(join.args.get("using") for join in joins)


def is_positional(operation: exp.SetOperation) -> bool:
    """True if a set operation matches columns by position and does nothing else."""
    return has_only(operation, ("this", "expression", "distinct", "order", "with_"))


def has_only(node: exp.Expr, parts: Collection[str]) -> bool:
    """True if all parts that a node has are among ``parts``, by sqlglot's names."""
    return all(name in parts for name, value in node.args.items() if value)


def _common_tables(tree: exp.Expr) -> dict[str, CommonTable]:
    """Returns the common table expressions by name, without those whose name is ambiguous."""
    ctes = list(tree.find_all(exp.CTE))
    names = Counter(cte.alias.lower() for cte in ctes)
    uses = Counter(table.name.lower() for table in tree.find_all(exp.Table))
    return {
        name: CommonTable(cte.this, uses[name])
        for cte in ctes
        if names[name := cte.alias.lower()] == 1
        and isinstance(cte.this, exp.Query)
        and not cte.parent.args.get("recursive")  # type: ignore[union-attr]  # it has one
        and not cte.args["alias"].args.get("columns")
    }


def _is_understood(join: exp.Join) -> bool:
    return join.method in _KNOWN_METHODS and join.side in _KNOWN_SIDES and join.kind in _KNOWN_KINDS


def _is_preserved(place: int, joins: Sequence[exp.Join]) -> bool:
    """True if no join returns rows without a row of the source at ``place``.

    False on the right side of a SEMI or ANTI join.
    """
    own = joins[place - 1] if place else None
    if own is not None and (own.side in ("LEFT", "FULL") or own.kind in ("SEMI", "ANTI")):
        return False
    return not any(join.side in ("RIGHT", "FULL") for join in joins[place:])


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yields the operands of the ANDs at the top of a condition."""
    pending = [] if condition is None else [condition]
    while pending:
        match pending.pop():
            case exp.And(this=left, expression=right):
                pending += [right, left]
            case exp.Paren(this=inner):
                pending.append(inner)
            case other:
                yield other


def wheres(select: exp.Select) -> Iterator[exp.Expr]:
    """Yields the conditions that WHERE joins by AND."""
    where = select.args.get("where")
    return conjuncts(where.this if where else None)


def owner_of(column: exp.Column, sources: Sources) -> str | None:
    """Returns the alias of the source of ``column``, or None if it is not certain.

    The first part of ``column`` is an alias or the name of a column.
    """
    if any(source.names is None for source in sources.values()):
        return None
    first, *rest = (part.name.lower() for part in column.parts)
    holders = [alias for alias, source in sources.items() if first in (source.names or ())]
    if first in sources and rest:
        return first if not holders and rest[0] in (sources[first].names or ()) else None
    return holders[0] if len(holders) == 1 else None


def own_place(column: exp.Column, sources: Sources) -> tuple[str, str] | None:
    """Returns the source of ``column`` and its name there, or None.

    None is for a field of a struct, or an unknown source.
    """
    owner, parts = owner_of(column, sources), [part.name.lower() for part in column.parts]
    if len(parts) == 2 and parts[0] == owner:
        parts = parts[1:]
    return (owner, parts[0]) if owner is not None and len(parts) == 1 else None
