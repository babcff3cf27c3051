"""Table formats that keep a log of which files and rows count: Delta Lake, Iceberg and others.

A folder is a table if it holds the log of one. Its Parquet files alone do not tell the rows of the
table: they hold deleted rows, files of older versions, and files of deletes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow.fs as pafs

from intarsia.parallel import all_awaited


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
    ICEBERG,
    TableFormat("a Hudi table", ".hoodie", "read it with Hudi's own reader"),
    TableFormat(
        "a folder that a stream of Spark's writes to",
        STREAM_LOG,
        "give the list of files of spark.read.parquet(path).inputFiles()",
    ),
)
_DELETION_VECTOR = re.compile(r"deletion_vector_[^/]*\.bin|[^/]*\.puffin")
Tables = dict[str, TableFormat]
"""Tables by their folders. One that is a Delta and an Iceberg table (UniForm) counts as the latter,
whose log is not hidden."""


def is_deletion_vector(path: str) -> bool:
    """True if a file's name is that of a deletion vector, of Delta or (Puffin) of Iceberg."""
    name = path.rpartition("/")[2]
    return name.endswith((".bin", ".puffin")) and _DELETION_VECTOR.fullmatch(name) is not None


def tables_in(paths: Iterable[str]) -> Tables:
    """The tables that a listing shows, of all paths below a folder."""
    found: Tables = {}
    for path in paths:
        for kind in FORMATS:
            if kind.log not in path:  # the usual case, and quick
                continue
            root = _root_by(kind, path)
            if root is not None and found.get(root) is not ICEBERG:
                found[root] = kind
    return found


def _root_by(kind: TableFormat, path: str) -> str | None:
    """The folder that is a table because ``path`` is there."""
    root, log, rest = f"{path}/".partition(f"/{kind.log}/")
    if not log:
        return None
    is_one = kind.file is None or kind.file.fullmatch(rest.rstrip("/")) is not None
    return root if is_one else None


def tables_above(filesystem: pafs.FileSystem, paths: Iterable[str]) -> Tables:
    """The tables among the folders that ``paths`` lie in. The paths themselves are not looked at.

    Remote storage is asked for the logs of all these folders at once. A folder that must not be
    listed is taken for no table.
    """
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    paths = list(paths)
    if is_local:  # a link may lead into a table
        paths += [os.path.realpath(path) for path in paths]
    folders = dict.fromkeys(folder for path in paths for folder in _parents(path))
    asked = [(folder, kind) for folder in folders for kind in FORMATS]
    if is_local:
        asked = [(at, kind) for at, kind in asked if os.path.isdir(f"{at}/{kind.log}")]
    answers = all_awaited([partial(_has_log, filesystem, *one) for one in asked])
    found = [one for one, is_table in zip(asked, answers, strict=True) if is_table]
    return dict(sorted(found, key=lambda one: one[1] is ICEBERG))


def _parents(path: str) -> Iterator[str]:
    folder = path.rstrip("/").rpartition("/")[0]
    while folder and not folder.endswith(("/", ":")):  # as the start of a URL does
        yield folder
        folder = folder.rpartition("/")[0]


def _has_log(filesystem: pafs.FileSystem, folder: str, kind: TableFormat) -> bool:
    """True if the log's folder holds what it has to; on local disks it is known to be there."""
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    if is_local and kind.file is None:
        return True
    with contextlib.suppress(OSError):
        log = pafs.FileSelector(f"{folder}/{kind.log}", allow_not_found=True)
        names = [info.base_name for info in filesystem.get_file_info(log)]
        return any(kind.file is None or kind.file.fullmatch(name) for name in names)
    return False
