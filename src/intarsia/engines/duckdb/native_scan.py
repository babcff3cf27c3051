"""Files that DuckDB reads by itself, as SQL over ``read_parquet``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from intarsia.dataset.engine_hand_over import HandOver
from intarsia.file.portable_columns import plain_type

_KEY_TYPES = {
    pa.string(): "VARCHAR",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
}
_CALLED = re.compile(r"((?<![\w$])[\w$]++|[^\s\w(,=<>+*%|-])\s*+\(")
"""A word, or a sign that is no operator, before a parenthesis. Takes linear time."""
_GIVES_NO_BOUNDS = re.compile(
    r"and|as|between|by|case|cast|count|decimal|distinct|else|except|exists|extract|from|having|in|"
    r"intersect|is|isnan|join|like|limit|not|on|or|over|select|sum|then|using|values|varchar|when|"
    r"where|with|avg|abs|ceil|coalesce|contains|contains_words|date_trunc|floor|length|lower|nullif|"
    r"rank|regexp_matches|round|row_number|starts_with|strftime|substr|substring|try_cast|upper",
    re.IGNORECASE,
)
"""Words before a parenthesis that do not ask for a minimum or a maximum."""


def create_view(name: str, handed: HandOver) -> str:
    """Returns the statement that makes a temporary view of ``handed``."""
    return f"CREATE OR REPLACE TEMPORARY VIEW {_name(name)} AS {query_of(handed)}"


def drop_views(names: Iterable[str]) -> str:
    """Returns the statements that drop views of these names."""
    return "; ".join(f"DROP VIEW {_name(name)}" for name in names)


def with_files(query: str, handed: Mapping[str, HandOver]) -> str:
    """Returns ``query`` with subqueries for those of its scans that are ``handed`` over, by name.

    DuckDB opens the files once for a subquery, and three times for a view that is made and dropped.
    """
    if not handed:
        return query
    names, hides_bounds = "|".join(map(re.escape, handed)), _may_give_bounds(query)

    def files(name: re.Match[str]) -> str:
        return f"({query_of(handed[name[0]], hides_bounds=hides_bounds)})"

    return re.sub(rf"\b({names})\b", files, query)


def _may_give_bounds(query: str) -> bool:
    """True if DuckDB may answer ``query`` by bounds of floats: max(x), x >= ALL (SELECT …).

    An unknown word before a parenthesis, or before a comment, may be a macro that does this.
    """
    has_comments = "--" in query or "/*" in query
    return has_comments or not all(map(_GIVES_NO_BOUNDS.fullmatch, _CALLED.findall(query)))


def query_of(handed: HandOver, *, hides_bounds: bool = True) -> str:
    """Returns the query that gives the rows and columns of ``handed``, in the order of its files.

    Files of which only some rows are read have a SELECT each. With ``hides_bounds``, DuckDB cannot
    take the maximum of floats from statistics that may leave out NaN.
    """
    selects = []
    for has_rows, group in itertools.groupby(handed.files, handed.rows.__contains__):
        files = list(group)
        parts = [[file] for file in files] if has_rows else [files]
        selects += [_select(handed, part, hides_bounds) for part in parts]
    return " UNION ALL ".join(selects)


def _select(handed: HandOver, files: Sequence[str], hides_bounds: bool) -> str:
    hidden = handed.with_hidden_nan if hides_bounds else ()
    columns = ", ".join(_column(name, name in hidden) for name in handed.schema.names) or "NULL"
    options = [f"hive_partitioning = {bool(handed.folder_keys)}"]
    if handed.folder_keys:
        types = ", ".join(_key_type(handed.schema.field(name)) for name in handed.folder_keys)
        options += ["hive_types_autocast = false", f"hive_types = {{{types}}}"]
    if handed.with_hidden_nan:
        options.append("can_have_nan = true")
    where = ""
    if files[0] in handed.rows:
        rows = handed.rows[files[0]]
        options.append("file_row_number = true")
        where = " WHERE " + (" OR ".join(map(_between, rows.starts, rows.stops)) or "false")
    listed = ", ".join(map(_text, files))
    return f"SELECT {columns} FROM read_parquet([{listed}], {', '.join(options)}){where}"


def _between(start: int, stop: int) -> str:
    return f"file_row_number BETWEEN {start} AND {stop - 1}"


def _column(name: str, is_hidden: bool) -> str:
    """Returns a column, within a CASE if DuckDB must not use its statistics.

    With ``can_have_nan`` alone, DuckDB 2.0 takes NaN for the maximum of any column with statistics.
    A CASE has no statistics, so DuckDB does not skip row groups by them either.
    """
    own = _name(name)
    return f"CASE WHEN {own} IS NULL THEN NULL ELSE {own} END AS {own}" if is_hidden else own


def _key_type(field: pa.Field) -> str:
    return f"{_text(field.name)}: {_KEY_TYPES[plain_type(field.type)]}"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
