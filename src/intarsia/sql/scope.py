"""What the parts of a SQL query select from, and what they give: names, expressions, types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

_SIDES = {"", "LEFT", "RIGHT", "FULL"}
_KINDS = {"", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"}
_METHODS = {"", "NATURAL"}
# Clauses after which FROM and WHERE no longer say which rows there are.
UNUSUAL = ("laterals", "pivots", "match", "connect", "prewhere", "sample", "into")
_GENERATORS = {"stack", "json_tuple", "inline", "inline_outer", "unnest", "variant_explode"}
"""Functions that give several columns, besides those that sqlglot knows."""
PLAIN_TABLE = ("this", "alias", "joins")
"""What a table comes with that gives all of its rows as they are; joins, where FROM is first."""
Sources = Mapping[str, "Source"]
Origin = tuple[int, str]
"""A table's ``id`` and the name of one of its columns, in lower case."""


@dataclass(frozen=True, slots=True)
class Source:
    """Something selected from. ``kept``: no join gives rows in which it is missing, and none of
    its rows is left out for others.
    """

    node: exp.Expr
    names: tuple[str, ...] | None
    kept: bool
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A common table expression and how often the query refers to it."""

    body: exp.Query
    uses: int


class Scopes:
    """The sources and outputs of a query's parts.

    ``tables`` has the schema of each ``exp.Table`` of the tree that matters, by ``id``; those of
    which two columns differ by case only are left alone. ``taken`` are names, in lower case, that
    mean something else where no common table expression has them.
    """

    def __init__(
        self, tree: exp.Expr, tables: Mapping[int, pa.Schema], taken: Collection[str] = ()
    ) -> None:
        self._tables = {
            key: {field.name.lower(): field.type for field in schema}
            for key, schema in tables.items()
            if len({name.lower() for name in schema.names}) == len(schema.names)
        }
        found = _common_tables(tree)
        self.common_tables = {name: table for name, table in found.items() if name not in taken}
        self._sources: dict[int, Sources | None] = {}
        self._origins: dict[tuple[int, int], tuple[Origin, ...]] = {}

    def is_table(self, node: exp.Expr) -> bool:
        return id(node) in self._tables

    def common_table(self, node: exp.Expr) -> CommonTable | None:
        """The common table expression that ``node`` refers to."""
        return self.common_tables.get(node.name.lower()) if isinstance(node, exp.Table) else None

    def body_of(self, node: exp.Expr) -> exp.Query | None:
        """The SELECT or set operation that a source, or an operand, stands for."""
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
        """What ``select`` selects from, by alias; None where that cannot be told for certain."""
        if id(select) not in self._sources:
            self._sources[id(select)] = None  # for what refers to itself
            self._sources[id(select)] = self._found_sources(select)
        return self._sources[id(select)]

    def _found_sources(self, select: exp.Select) -> Sources | None:
        first, joins = select.args.get("from_"), joins_of(select)
        if first is None or any(select.args.get(name) for name in UNUSUAL):
            return None
        if select.args.get("joins") and first.this.args.get("joins"):
            return None
        if not all(_is_understood(join) for join in joins) or _may_merge_some(joins):
            return None
        found: dict[str, Source] = {}
        for place, node in enumerate([first.this, *(join.this for join in joins)]):
            alias = node.alias_or_name.lower() or f" {place}"  # a name that no column is given
            if alias in found:
                return None
            is_shown = not place or joins[place - 1].kind not in ("SEMI", "ANTI")
            found[alias] = Source(node, self._names_of(node), _is_kept(place, joins), is_shown)
        return found

    def _names_of(self, node: exp.Expr) -> tuple[str, ...] | None:
        """The names of a source's columns in lower case; None where they are not known."""
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            return None
        if id(node) in self._tables:
            return tuple(self._tables[id(node)])
        body = self.body_of(node)
        return None if body is None else self.names(body)

    def names(self, body: exp.Query) -> tuple[str, ...] | None:
        """The names of what ``body`` gives; None where not known, or not distinct."""
        while isinstance(body, exp.SetOperation):
            inner = self.body_of(body.this)
            if inner is None or not is_positional(body):
                return None
            body = inner
        outputs = self.outputs(body) if isinstance(body, exp.Select) else None
        if outputs is None:
            return None
        names = tuple(_name_of(output, place) for place, output in enumerate(outputs))
        return names if len(set(names)) == len(names) else None

    def outputs(self, select: exp.Select) -> list[exp.Expr] | None:
        """What a SELECT gives, in order, ``*`` spelled out; None where that is not known."""
        found: list[exp.Expr] = []
        for column in select.expressions:
            if not isinstance(column, exp.Star):
                if column.is_star or _may_be_several(column):
                    return None
                found.append(column)
                continue
            sources = self.sources(select)
            if sources is None or any(column.args.values()):
                return None  # EXCLUDE, REPLACE, RENAME
            if any(map(_merges, joins_of(select))):
                return None  # one column where two sources have it
            for source in sources.values():
                if source.names is None:
                    return None
                names = source.names if source.is_shown else ()
                found += [exp.column(exp.to_identifier(name, quoted=True)) for name in names]
        return found

    def origins_of(self, column: exp.Column, sources: Sources) -> tuple[Origin, ...]:
        """The tables' columns that hold all of a column's values but NULL, as they are there.

        None where that is not known.
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
        """As ``origins_of``, of one of ``body``'s columns; of a set operation's, both sides'.

        None as well where their types differ: they are cast then.
        """
        key = id(body), place
        if key not in self._origins:
            self._origins[key] = ()  # for what refers to itself
            self._origins[key] = self._found_origins(body, place)
        return self._origins[key]

    def _found_origins(self, body: exp.Query, place: int) -> tuple[Origin, ...]:
        if isinstance(body, exp.SetOperation):
            sides = [self.body_of(body.this), self.body_of(body.expression)]
            found = [() if side is None else self.output_origins(side, place) for side in sides]
            both = tuple(dict.fromkeys((*found[0], *found[1])))
            return both if all(found) and self.common_type(both) is not None else ()
        if not isinstance(body, exp.Select):
            return ()
        outputs, sources = self.outputs(body), self.sources(body)
        if outputs is None or sources is None or place >= len(outputs):
            return ()
        column = outputs[place].unalias()
        return self.origins_of(column, sources) if isinstance(column, exp.Column) else ()

    def common_type(self, origins: Sequence[Origin]) -> pa.DataType | None:
        """The one type of some columns of tables; None where there are several, or none."""
        first, *rest = [self._tables[table][name] for table, name in origins] or [None]
        return first if all(kind == first for kind in rest) else None

    def type_of(self, column: exp.Column, sources: Sources) -> pa.DataType | None:
        """The type of a column that comes from a table as it is, by whatever way; else None."""
        return self.common_type(self.origins_of(column, sources))


def joins_of(select: exp.Select) -> list[exp.Join]:
    """What ``select`` joins; where FROM comes first, sqlglot has it with the first table."""
    first = select.args.get("from_")
    own = select.args.get("joins")
    if own or first is None or not isinstance(first.this, exp.Table):
        return own or []
    return first.this.args.get("joins") or []


def _name_of(output: exp.Expr, place: int) -> str:
    """What an output is called; where the engine makes up a name, none that anything is called."""
    output = output.unnest()
    is_named = isinstance(output, exp.Alias | exp.Column)
    return output.alias_or_name.lower() if is_named else f" {place}"


def _may_be_several(output: exp.Expr) -> bool:
    """May an expression in a SELECT give more columns than one?"""
    calls = output.find_all(exp.Anonymous)
    generates = any(call.name.lower() in _GENERATORS for call in calls)
    return generates or output.find(exp.Columns, exp.UDTF) is not None


def _merges(join: exp.Join) -> bool:
    """Do columns of one name become one?"""
    is_shown = join.kind not in ("SEMI", "ANTI")
    return is_shown and bool(join.args.get("using") or join.method)


def _may_merge_some(joins: Sequence[exp.Join]) -> bool:
    """Is there a USING that some sources before it, behind a comma, are no part of?"""
    commas = [join for join in joins if has_only(join, ("this",))]
    return bool(commas) and any(join.args.get("using") for join in joins)


def is_positional(operation: exp.SetOperation) -> bool:
    """Does a set operation match columns by position, and do nothing else?"""
    return has_only(operation, ("this", "expression", "distinct", "order", "with_"))


def has_only(node: exp.Expr, parts: Collection[str]) -> bool:
    """Are all parts that a node has among ``parts``, by sqlglot's names of them?"""
    return all(name in parts for name, value in node.args.items() if value)


def _common_tables(tree: exp.Expr) -> dict[str, CommonTable]:
    """Common table expressions whose names mean nothing else, by name."""
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
    return join.method in _METHODS and join.side in _SIDES and join.kind in _KINDS


def _is_kept(place: int, joins: Sequence[exp.Join]) -> bool:
    """Is every row of the source at ``place`` there, and it alone, as far as joins go?"""
    own = joins[place - 1] if place else None
    if own is not None and (own.side in ("LEFT", "FULL") or own.kind in ("SEMI", "ANTI")):
        return False
    return not any(join.side in ("RIGHT", "FULL") for join in joins[place:])


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The conditions that ANDs at the top join."""
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
    """The conditions of a SELECT's WHERE."""
    where = select.args.get("where")
    return conjuncts(where.this if where else None)


def owner_of(column: exp.Column, sources: Sources) -> str | None:
    """The source of ``column``, whose first part is a source's alias or a column's name."""
    if any(source.names is None for source in sources.values()):
        return None
    first, *rest = (part.name.lower() for part in column.parts)
    holders = [alias for alias, source in sources.items() if first in (source.names or ())]
    if first in sources and rest:
        return first if not holders and rest[0] in (sources[first].names or ()) else None
    return holders[0] if len(holders) == 1 else None


def own_place(column: exp.Column, sources: Sources) -> tuple[str, str] | None:
    """The source of ``column`` and its name there; None for a part of one, or where not known."""
    owner, parts = owner_of(column, sources), [part.name.lower() for part in column.parts]
    if len(parts) == 2 and parts[0] == owner:
        parts = parts[1:]
    return (owner, parts[0]) if owner is not None and len(parts) == 1 else None
