"""Which files of a listing are data, if some of them lie in tables of other formats.

Every function that opens the files of a folder gets them from here. A file in a table is read only
if the caller named it in a list, or asked for plain files with ``table_format="ignore"``. Files of
deletes, and what Iceberg keeps in ``metadata/``, are no data either way.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import pyarrow.fs as pafs

from intarsia.errors import IntarsiaError, PathError
from intarsia.globs import base_of, is_glob
from intarsia.parallel import waited_for
from intarsia.read.file import open_file
from intarsia.read.opened import OpenedFile
from intarsia.storage import NoDataError, PathLike, list_files, resolve, several
from intarsia.table_format import ICEBERG, TableFormat, Tables, tables_above

TableFormatOption = Literal["auto", "ignore"]
"""``"auto"`` refuses the folders of tables, ``"ignore"`` reads them as plain files."""
_DELETE_IDS = {2147483546, 2147483545}
"""The field ids that Iceberg reserves for the two columns of position deletes."""
_DELETE_NAMES = ["file_path", "pos"]
_DELETE_TYPE = "delete-type"
"""The footer's key by which Iceberg's Java library says that a file holds deletes."""


def check_table_format(table_format: object) -> None:
    """Raise ``ValueError`` if it is no ``TableFormatOption``."""
    if table_format not in get_args(TableFormatOption):
        raise ValueError(f"table_format is 'auto' or 'ignore', not {table_format!r}")


def data_files(
    path: PathLike | Sequence[PathLike],
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
    *,
    takes_file: bool = False,
    seen: dict[str, pafs.FileInfo] | None = None,
) -> tuple[pafs.FileSystem, list[str]]:
    """As ``list_files``, without files of deletes. Raises ``PathError`` for folders of tables.

    With ``takes_file``, a path to one file is as good as a list: for what reads no rows. ``seen``
    is as for ``list_files``.
    """
    check_table_format(table_format)
    tables: Tables = {}
    found, files = list_files(path, filesystem, seen=seen, tables=tables)
    given = [resolve(one, filesystem)[1] for one in several(path)]
    named = named_in(path, files, given, takes_file=takes_file)
    files = check_tables(found, given, files, tables, table_format, named)
    return found, without_deletes(found, files, tables)


def named_in(
    path: PathLike | Sequence[PathLike],
    files: Sequence[str],
    given: Sequence[str],
    *,
    takes_file: bool = False,
) -> Collection[str]:
    """The files that the caller chose by name: those in a list, which ``given`` are, resolved."""
    is_list = not isinstance(path, str | os.PathLike)
    return set(given).intersection(files) if is_list or takes_file else ()


def check_tables(
    filesystem: pafs.FileSystem,
    given: Sequence[str],
    files: Sequence[str],
    tables: Tables,
    table_format: TableFormatOption,
    named: Collection[str] = (),
) -> list[str]:
    """``files`` without Iceberg's metadata. Raises ``PathError`` for those in tables.

    ``given`` are the paths that were listed, ``tables`` those that the listing showed; the tables
    that it lies in are added to them. ``named`` files may be in tables. Raises ``NoDataError`` if
    no file is left.
    """
    tables.update(tables_above(filesystem, _starts(filesystem, given, files)))
    table_of = _tables_by_file(filesystem, files, tables)
    for file, folder in table_of.items():
        if table_format == "auto" and file not in named:
            raise PathError(refusal(folder, tables[folder]))
    left = [file for file in files if not _is_metadata(file, table_of.get(file), tables)]
    if not left:
        raise NoDataError(f"{given[0]}: there is no data file in this table")
    return left


def _tables_by_file(
    filesystem: pafs.FileSystem, files: Sequence[str], tables: Tables
) -> dict[str, str]:
    """The innermost table that each file lies in, of the files that lie in one."""
    if not tables:
        return {}
    folders = {folder.strip("/"): folder for folder in tables}  # storage may spell them otherwise
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    by_parent: dict[str, str | None] = {}
    table_of = {}
    for file in files:
        parent = file.rpartition("/")[0]
        if parent not in by_parent:
            by_parent[parent] = _innermost(parent, folders)
        found = by_parent[parent]
        if found is None and is_local:  # by a link
            found = _innermost(os.path.realpath(file), folders)
        if found is not None:
            table_of[file] = found
    return table_of


def _innermost(path: str, folders: Mapping[str, str]) -> str | None:
    at = path.strip("/")
    while at:
        if at in folders:
            return folders[at]
        at = at.rpartition("/")[0]
    return None


def _is_metadata(file: str, folder: str | None, tables: Tables) -> bool:
    """True if a file is in the log of its Iceberg table. Other logs are hidden folders anyway."""
    is_iceberg = folder is not None and tables[folder] is ICEBERG
    return is_iceberg and file.lstrip("/").startswith(f"{folder}/{ICEBERG.log}/".lstrip("/"))


def refusal(folder: str, kind: TableFormat) -> str:
    """What is wrong with reading the folder of a table, and what to do."""
    return (
        f"{folder} is {kind.name}: its log ({kind.log}) says which files and rows count, and "
        f"is not read here; {kind.how}, as docs/tables.md shows, or read all files as plain ones, "
        "deleted rows and old files included, with table_format='ignore'"
    )


def _starts(
    filesystem: pafs.FileSystem, given: Sequence[str], files: Sequence[str]
) -> Iterable[str]:
    """Paths in whose folders all tables are that a listing cannot have shown."""
    there = set(files)
    single = [path for path in given if path in there]
    globs = [path for path in given if path not in there and is_glob(path)]
    folders = [path for path in given if path not in there and not is_glob(path)]
    if isinstance(filesystem, pafs.LocalFileSystem):
        if len(files) == 1:
            return [*folders, *files]
        # A local glob lists only what it matches.
        parents = dict.fromkeys(one.rpartition("/")[0] for one in (files if globs else single))
        return [*folders, *(f"{parent}/*" for parent in parents)]
    # Tables below the base of a remote glob are in its listing.
    first, last = (min(single), max(single)) if single else ("", "")
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    common = "".join(one for one, _ in same)  # all others between the two begin so as well
    return [*folders, *map(base_of, globs), f"{common.rpartition('/')[0]}/*"]


# --- files of deletes ----------------------------------------------------------------------------


def without_deletes(
    filesystem: pafs.FileSystem,
    files: Sequence[str],
    tables: Tables,
    opened: Callable[[str], OpenedFile] | None = None,
) -> list[str]:
    """``files`` without those in Iceberg tables that hold deletes, which their footers tell.

    Files in no Iceberg table are not opened. Raises ``NoDataError`` if no file is left.
    """
    table_of = _tables_by_file(filesystem, files, tables)
    asked = [file for file, folder in table_of.items() if tables[folder] is ICEBERG]
    if not asked:
        return list(files)
    read = opened or partial(open_file, filesystem=filesystem)
    tasks = (partial(_holds_deletes, read, file) for file in asked)
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    answers = (task() for task in tasks) if is_local else waited_for(tasks)
    deletes = {file for file, is_one in zip(asked, answers, strict=True) if is_one}
    left = [file for file in files if file not in deletes]
    if not left:
        raise NoDataError(f"{asked[0]}: it holds Iceberg's deletes, and no data")
    return left


def _holds_deletes(read: Callable[[str], OpenedFile], path: str) -> bool:
    """True if a file of an Iceberg table holds deletes; False if it cannot be read."""
    try:
        file = read(path)
    except (IntarsiaError, OSError):  # whatever reads it says what is wrong
        return False
    ids = {leaf.element.field_id for leaf in file.schema.leaves}
    is_position = ids >= _DELETE_IDS or file.schema_arrow.names == _DELETE_NAMES
    return is_position or file.metadata.key_value(_DELETE_TYPE) is not None
