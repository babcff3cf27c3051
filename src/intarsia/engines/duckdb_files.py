"""Files that DuckDB reads by itself, as SQL over ``read_parquet``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from intarsia.data.hand_over import HandOver
from intarsia.read.portable import plain_type

_KEY_TYPES = {
    pa.string(): "VARCHAR",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
}


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
    names = "|".join(map(re.escape, handed))
    return re.sub(rf"\b({names})\b", lambda match: f"({query_of(handed[match[0]])})", query)


def query_of(handed: HandOver) -> str:
    """Returns the query that gives the rows and columns of ``handed``, in the order of its files.

    Files of which only some rows are read have a SELECT each.
    """
    selects = []
    for has_rows, group in itertools.groupby(handed.files, handed.rows.__contains__):
        files = list(group)
        parts = [[file] for file in files] if has_rows else [files]
        selects += [_select(handed, part) for part in parts]
    return " UNION ALL ".join(selects)


def _select(handed: HandOver, files: Sequence[str]) -> str:
    columns = ", ".join(_column(handed, name) for name in handed.schema.names) or "NULL"
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


def _column(handed: HandOver, name: str) -> str:
    """A column, with a CASE around it if DuckDB must not see its statistics.

    With ``can_have_nan`` alone DuckDB 2.0 takes NaN for the greatest value wherever there are
    statistics. It knows no statistics of a CASE.
    """
    own = _name(name)
    if name not in handed.with_hidden_nan:
        return own
    return f"CASE WHEN {own} IS NULL THEN NULL ELSE {own} END AS {own}"


def _key_type(field: pa.Field) -> str:
    return f"{_text(field.name)}: {_KEY_TYPES[plain_type(field.type)]}"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
