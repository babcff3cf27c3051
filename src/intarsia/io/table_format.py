"""Table formats that keep a log of which files and rows count: Delta Lake, Iceberg and others.

A folder is a table if it holds the log of one. Its Parquet files alone do not tell the rows of the
table: they hold deleted rows, files of older versions, and files of deletes. Only listings are
looked at here; ``data.table_files`` asks storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.fs as pafs


@dataclass(frozen=True, slots=True)
class TableFormat:
    """One table format: ``log`` is the name of the folder that makes a folder a table."""

    name: str
    """With an article, as messages say it."""
    log: str
    how: str
    """How the files and rows that count are found."""
    file: re.Pattern[str] | None = None
    """The name of a file that the log's folder has to hold; None if the folder alone tells."""


STREAM_LOG = "_spark_metadata"
"""The log that Spark's own streams write. Spark reads a folder by it, and so skips the files of
batches that were not committed."""
ICEBERG = TableFormat(
    "an Iceberg table",
    "metadata",
    "give the list of files of pyiceberg's plan_files()",
    re.compile(r"[^/]*\.metadata\.json(\.gz)?"),
)
FORMATS = (
    TableFormat("a Delta table", "_delta_log", "give the list of files of deltalake's DeltaTable"),
    TableFormat("a Hudi table", ".hoodie", "read it with Hudi's own reader"),
    TableFormat(
        "a folder that a stream of Spark's writes to",
        STREAM_LOG,
        "give the list of files of spark.read.parquet(path).inputFiles()",
    ),
    ICEBERG,
)
"""A folder that is a table of several of these (UniForm) counts as one of the last, whose log is
not hidden."""
Tables = dict[str, TableFormat]
"""Tables by their folders."""
_DELETION_VECTOR = re.compile(r"deletion_vector_[^/]*\.bin|[^/]*\.puffin")


def is_deletion_vector(path: str) -> bool:
    """True if a file's name is that of a deletion vector, of Delta or (Puffin) of Iceberg."""
    name = path.rpartition("/")[2]
    return name.endswith((".bin", ".puffin")) and _DELETION_VECTOR.fullmatch(name) is not None


def tables_in(infos: Iterable[pafs.FileInfo]) -> Tables:
    """The tables that a listing shows, of all that is below a folder."""
    found: Tables = {}
    for info in infos:
        for kind in FORMATS:
            if kind.log not in info.path:  # the usual case, and quick
                continue
            root = _root_by(kind, info)
            if root is not None and found.get(root) is not ICEBERG:
                found[root] = kind
    return found


def makes_table(kind: TableFormat, info: pafs.FileInfo, rest: str) -> bool:
    """True if what is at ``rest`` in the log's folder makes its parent a table of this kind."""
    if kind.file is None:
        return True
    return info.type == pafs.FileType.File and kind.file.fullmatch(rest) is not None


def _root_by(kind: TableFormat, info: pafs.FileInfo) -> str | None:
    """The folder that is a table because ``info`` is there; "" if that is the file system's root.

    A file that is called as the log is no log.
    """
    path = info.path if info.type == pafs.FileType.File else f"{info.path}/"
    above, log, rest = f"/{path}".rpartition(f"/{kind.log}/")
    return above[1:] if log and makes_table(kind, info, rest) else None
