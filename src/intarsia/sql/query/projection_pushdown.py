"""Which columns of a table, and which fields of its structs, a SQL query may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from sqlglot import exp

from intarsia.expr.nested_types import Path
from intarsia.sql.reserved_names import as_duckdb_folds
from intarsia.sql.scope import UNUSUAL


def paths_used(table: exp.Table, schema: pa.Schema) -> Iterator[Path]:
    """Yields the paths that the query may use of this occurrence of a table with that schema.

    A struct is one path if the query uses it as a whole, or in a way that is not understood. If
    names of columns differ only in case, the query may use every column, as DuckDB renames some.
    """
    scope = table.find_ancestor(exp.Select, exp.Pivot)
    alias = table.alias_or_name.lower()
    lower = {name.lower() for name in schema.names}
    are_alike = len({as_duckdb_folds(name) for name in schema.names}) < len(schema.names)
    # PIVOT groups by all columns that it does not mention.
    if not isinstance(scope, exp.Select) or are_alike or _may_need_all(scope, alias, table):
        yield from ((name,) for name in schema.names)
        return
    named = NamedColumns(scope)
    using = [join.args.get("using") or () for join in scope.find_all(exp.Join)]
    mentioned = {name.name.lower() for names in using for name in names}
    for names in named.names:
        if alias in names or len(names) == 1 or names[0] in lower:
            mentioned.update(names)
    for field in schema:
        if field.name.lower() in mentioned:
            yield from named.paths_of(field)


class NamedColumns:
    """The names in a part of a query that may mean columns and fields of structs."""

    def __init__(self, tree: exp.Expr) -> None:
        self.names = [_names_in(column) for column in tree.find_all(exp.Column)]
        # sqlglot may not recognize the name of a column, as in ``u.id.upper()``.
        self._other_names = {
            name.name.lower()
            for name in tree.find_all(exp.Identifier)
            if not isinstance(name.parent, exp.Column)
        }

    def paths_of(self, field: pa.Field) -> list[Path]:
        """Returns the paths at or below ``field`` that the names may mean."""
        name, paths = field.name.lower(), []
        for names in self.names:
            for position, part in enumerate(names, start=1):
                if part == name:
                    paths.append(_path_in(field, names[position:]))
        if name in self._other_names or any(path is None or len(path) == 1 for path in paths):
            return [(field.name,)]
        return list(dict.fromkeys(path for path in paths if path is not None))


def _may_need_all(scope: exp.Select, alias: str, table: exp.Table) -> bool:
    columns = list(scope.find_all(exp.Column))
    alias_node = table.args.get("alias")
    return (
        any(not isinstance(star.parent, exp.Count) for star in scope.find_all(exp.Star))
        or any(scope.find_all(exp.Columns, exp.PositionalColumn))
        or any(join.method for join in scope.find_all(exp.Join))
        or any(column.name.lower() == alias for column in columns)
        or any(scope.args.get(name) for name in UNUSUAL)
        or bool(alias_node and alias_node.args.get("columns"))
    )


def _names_in(column: exp.Column) -> list[str]:
    """Returns the parts of a column's name, in lower case, and the strings in brackets after it."""
    names = [part.name.lower() for part in column.parts]
    node: exp.Expr = column
    while isinstance(node.parent, exp.Bracket) and node.arg_key == "this":
        node = node.parent
        within = node.expressions
        if len(within) != 1 or not (isinstance(within[0], exp.Literal) and within[0].is_string):
            break
        names.append(within[0].name.lower())
    return names


def _path_in(field: pa.Field, names: Sequence[str]) -> Path | None:
    """Returns the path to the struct field that ``names`` lead to, or None if it is ambiguous.

    Names after a column that is no struct are left out.
    """
    path, kind = [field.name], field.type
    for name in names:
        if not pa.types.is_struct(kind):
            break
        matches = [one for one in kind if one.name.lower() == name]
        if len(matches) != 1:
            return None
        path.append(matches[0].name)
        kind = matches[0].type
    return tuple(path)
