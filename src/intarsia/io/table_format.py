"""Detects table formats whose log decides which files and rows count, such as Delta Lake.

A folder that contains such a log is a table. Its Parquet files alone do not give the rows of the
table: they include deleted rows, old versions and files of deletes. This module only inspects
listings; ``tables.data_files`` makes requests to storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.fs as pafs


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A table format. A folder is a table if it contains a folder named ``log``."""

    name: str
    """The name with its article, for messages."""
    log: str
    how: str
    """Advice for messages: how to read the table correctly."""
    file: re.Pattern[str] | None = None
    """Name of a file that the log folder must contain. None if the folder alone is enough."""


STREAM_LOG = "_spark_metadata"
"""The log of Spark's own streams. Spark reads only files in the log, and so skips uncommitted
batches.
"""
ICEBERG = TableFormat(
    "an Iceberg table",
    "metadata",
    "open it with ia.iceberg(table), or as iceberg:METADATA_JSON in a command",
    re.compile(r"[^/]*\.metadata\.json(\.gz)?"),
)
FORMATS = (
    TableFormat(
        "a Delta table", "_delta_log", "open it with ia.delta(path), or as delta:PATH in a command"
    ),
    TableFormat("a Hudi table", ".hoodie", "read it with Hudi's own reader"),
    TableFormat(
        "a folder that a stream of Spark's writes to",
        STREAM_LOG,
        "give the list of files of spark.read.parquet(path).inputFiles()",
    ),
    ICEBERG,
)
"""If a folder is a table of several formats (UniForm), the last one applies: its log is not
hidden.
"""
Tables = dict[str, TableFormat]
"""Table formats by folder."""
_DELETION_VECTOR = re.compile(r"deletion_vector_[^/]*\.bin|[^/]*\.puffin")


def is_deletion_vector(path: str) -> bool:
    """True if a file's name is that of a deletion vector of Delta Lake or Iceberg (Puffin)."""
    name = path.rpartition("/")[2]
    return name.endswith((".bin", ".puffin")) and _DELETION_VECTOR.fullmatch(name) is not None


def tables_in(infos: Iterable[pafs.FileInfo]) -> Tables:
    """Returns the tables in a listing of everything below a folder."""
    tables: Tables = {}
    for info in infos:
        for kind in FORMATS:
            if kind.log not in info.path:  # fast check for the usual case
                continue
            root = _table_folder(kind, info)
            if root is not None and tables.get(root) is not ICEBERG:
                tables[root] = kind
    return tables


def makes_table(kind: TableFormat, info: pafs.FileInfo, rest: str) -> bool:
    """True if the entry ``rest`` in the log folder makes its parent a table of this format."""
    if kind.file is None:
        return True
    return info.type == pafs.FileType.File and kind.file.fullmatch(rest) is not None


def _table_folder(kind: TableFormat, info: pafs.FileInfo) -> str | None:
    """Returns the folder that ``info`` proves to be a table, or None. The root folder is ""."""
    path = info.path if info.type == pafs.FileType.File else f"{info.path}/"
    above, log, rest = f"/{path}".rpartition(f"/{kind.log}/")
    return above[1:] if log and makes_table(kind, info, rest) else None
