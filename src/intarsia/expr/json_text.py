"""Values in JSON text, as DuckDB's ``json_extract_string`` gives them: DuckDB itself computes them.

So numbers, escapes and repeated keys have one meaning in filters, in indexes and in ``ia.sql``.
"""

from __future__ import annotations

import re

import pyarrow as pa

from intarsia.duckdb_session import require_duckdb, session
from intarsia.errors import MissingDependencyError, PredicateError

_COLUMN = "document"


def written_path(path: str) -> str:
    """Returns the one form of a path: ``a`` and ``$.a`` are the same."""
    if path.startswith(("$", "/")) or '"' in path or not path:
        return path
    return f"$.{path}" if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", path) else f'$."{path}"'


def json_version() -> str:
    """Returns what identifies the values that ``json_text`` returns: DuckDB's major version.

    It is empty without DuckDB.
    """
    try:
        return str(require_duckdb().__version__).partition(".")[0]
    except MissingDependencyError:
        return ""


def json_text(documents: pa.Array, path: pa.Scalar) -> pa.Array:
    """Returns the value at ``path`` of each of ``n`` JSON documents, as strings.

    Strings lose their quotes; other values are JSON. NULL if the document is NULL or lacks the
    path, or the value there is ``null``.

    Raises ``PredicateError`` for a document that is not JSON, and for a path that DuckDB does not
    understand, or that leads to several values. Raises ``MissingDependencyError`` without DuckDB.
    """
    duckdb = require_duckdb()
    arguments = duckdb.ColumnExpression(_COLUMN), duckdb.ConstantExpression(path.as_py())
    with session(shared=True) as connection:
        relation = connection.from_arrow(pa.table({_COLUMN: documents}))
        value = duckdb.FunctionExpression("json_extract_string", *arguments)
        try:
            texts = relation.select(value).to_arrow_table()
        except (duckdb.InvalidInputException, duckdb.BinderException) as error:
            raise PredicateError(f"json_extract_string: {error}") from error
    if not pa.types.is_string(texts.schema.types[0]):
        raise PredicateError(f"json_extract_string: the path {path} leads to several values")
    return texts.column(0).combine_chunks()
