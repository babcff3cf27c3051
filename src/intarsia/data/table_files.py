"""Which files of a listing are data, if some of them lie in tables of other formats.

Every function that opens the files of a folder gets them from here. A file in a table is read only
if the caller gave its own path, or asked for plain files with ``table_format="ignore"``. Files of
deletes, and what Iceberg keeps in ``metadata/``, are no data either way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import pyarrow.fs as pafs

from intarsia.errors import IntarsiaError, PathError
from intarsia.globs import base_of, is_glob
from intarsia.local import local_path, unwrapped
from intarsia.parallel import all_awaited, waited_for
from intarsia.read.file import open_file
from intarsia.read.opened import OpenedFile
from intarsia.storage import NoDataError, PathLike, list_files, resolve, several
from intarsia.table_format import FORMATS, ICEBERG, TableFormat, Tables

TableFormatOption = Literal["auto", "ignore"]
"""``"auto"`` refuses the folders of tables, ``"ignore"`` reads them as plain files."""
Opener = Callable[[str], OpenedFile]


@dataclass(frozen=True, slots=True)
class Listed:
    """What ``list_files`` gave for paths."""

    filesystem: pafs.FileSystem
    given: Sequence[str]
    """The paths, on the file system."""
    files: Sequence[str]
    tables: Tables = field(default_factory=dict)
    """The tables that the listing showed."""


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
    seen: dict[str, pafs.FileInfo] | None = None,
) -> tuple[pafs.FileSystem, list[str]]:
    """As ``list_files``, without files of deletes. Raises ``PathError`` for folders of tables.

    ``seen`` is as for ``list_files``.
    """
    check_table_format(table_format)
    tables: Tables = {}
    found, files = list_files(path, filesystem, seen=seen, tables=tables)
    given = [resolve(one, filesystem)[1] for one in several(path)]
    return found, plain_files(Listed(found, given, files, tables), table_format)


def plain_files(
    listed: Listed,
    table_format: TableFormatOption,
    *,
    opened: Opener | None = None,
) -> list[str]:
    """The files of a listing that hold data. Raises ``PathError`` for those in tables.

    Files whose own paths were given may lie in tables. ``opened`` opens the files of Iceberg
    tables, whose footers tell if they hold deletes. Raises ``NoDataError`` if no file is left.
    """
    filesystem, given, files = listed.filesystem, listed.given, listed.files
    named = set(given)
    is_checked = table_format == "auto" and not named.issuperset(files)
    above = tables_above(filesystem, _starts(filesystem, given, files), all_kinds=is_checked)
    tables = listed.tables | above
    table_of = _tables_by_file(filesystem, files, tables)
    for file, root in table_of.items():
        if is_checked and file not in named:
            raise PathError(refusal(root, tables[root]))
    in_iceberg = {file: root for file, root in table_of.items() if tables[root] is ICEBERG}
    deletes = _deletes(filesystem, in_iceberg, opened or partial(open_file, filesystem=filesystem))
    left = [file for file in files if file not in deletes]
    if not left:
        raise NoDataError(f"{files[0]}: it holds Iceberg's metadata or deletes, and no data")
    return left


def refusal(folder: str, kind: TableFormat) -> str:
    """What is wrong with reading the folder of a table, and what to do."""
    return (
        f"{folder} is {kind.name}: its log ({kind.log}) says which files and rows count, and "
        f"is not read here; {kind.how}, as docs/tables.md shows, or read all files as plain ones, "
        "deleted rows and old files included, with table_format='ignore'"
    )


# --- where tables are ----------------------------------------------------------------------------


def tables_above(
    filesystem: pafs.FileSystem, paths: Iterable[str], *, all_kinds: bool = True
) -> Tables:
    """The tables among the folders that ``paths`` lie in. The paths themselves are not looked at.

    Remote storage is asked for the logs of all these folders at once, or for Iceberg's only. A
    folder that must not be listed is taken for no table.
    """
    paths = [unwrapped(path, filesystem)[1] for path in paths]
    filesystem, _ = unwrapped("/", filesystem)
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    folders = _folders_of(paths)
    if is_local:
        folders |= _folders_of(map(os.path.realpath, filter(os.path.islink, [*paths, *folders])))
    asked = [(at, kind) for kind in (FORMATS if all_kinds else (ICEBERG,)) for at in folders]
    if is_local:
        asked = [(at, kind) for at, kind in asked if os.path.isdir(f"{at}/{kind.log}")]
    answers = all_awaited([partial(_has_log, filesystem, *one) for one in asked])
    return dict(one for one, is_table in zip(asked, answers, strict=True) if is_table)


def _folders_of(paths: Iterable[str]) -> dict[str, None]:
    """All folders above ``paths``."""
    found: dict[str, None] = {}
    for path in paths:
        folder = path.rstrip("/").rpartition("/")[0]
        while folder not in found and folder and not folder.endswith(("/", ":")):  # a URL's start
            found[folder] = None
            folder = folder.rpartition("/")[0]
    return found


def _has_log(filesystem: pafs.FileSystem, folder: str, kind: TableFormat) -> bool:
    """True if the log's folder holds what it has to; on local disks it is known to be there."""
    if isinstance(filesystem, pafs.LocalFileSystem) and kind.file is None:
        return True
    with contextlib.suppress(OSError):
        log = pafs.FileSelector(f"{folder}/{kind.log}", allow_not_found=True)
        names = [info.base_name for info in filesystem.get_file_info(log)]
        return any(kind.file is None or kind.file.fullmatch(name) for name in names)
    return False


def _starts(
    filesystem: pafs.FileSystem, given: Sequence[str], files: Sequence[str]
) -> Iterable[str]:
    """Paths in whose folders all tables are that a listing cannot have shown."""
    if local_path("/", filesystem) is not None:
        if any(map(is_glob, given)):  # a local glob lists only what it matches
            return [*given, *files]
        below = [*files, *_folders_of(files)]
        return [*given, *(path for path in below if os.path.islink(unwrapped(path, filesystem)[1]))]
    there = set(files)
    single = [path for path in given if path in there]
    common = os.path.commonprefix(single)  # noqa: RUF071  # it is cut at a "/" below
    # Tables below the base of a remote glob are in its listing. Files that were given by their own
    # paths may lie in too many folders to look above each.
    others = [base_of(path) if is_glob(path) else path for path in given if path not in there]
    return [*others, f"{common.rpartition('/')[0]}/*"]


def _tables_by_file(
    filesystem: pafs.FileSystem, files: Sequence[str], tables: Tables
) -> dict[str, str]:
    """The innermost table that each file lies in, of the files that lie in one."""
    if not tables:
        return {}
    folders = {folder.strip("/"): folder for folder in tables}  # storage may spell them otherwise
    by_parent: dict[str, str | None] = {}
    table_of = {}
    for file in files:
        parent = file.rpartition("/")[0]
        if parent not in by_parent:
            by_parent[parent] = _innermost(parent, folders)
        found = by_parent[parent] or _innermost(_real(file, filesystem), folders)
        if found is not None:
            table_of[file] = found
    return table_of


def _real(path: str, filesystem: pafs.FileSystem) -> str:
    """A path without links, in the file system that others wrap."""
    on, at = unwrapped(path, filesystem)
    return os.path.realpath(at) if isinstance(on, pafs.LocalFileSystem) else at


def _innermost(path: str, folders: Mapping[str, str]) -> str | None:
    at = path.strip("/")
    while at:
        if at in folders:
            return folders[at]
        at = at.rpartition("/")[0]
    return None


# --- files of deletes ----------------------------------------------------------------------------


def _deletes(filesystem: pafs.FileSystem, root_of: Mapping[str, str], opened: Opener) -> set[str]:
    """The files of Iceberg tables that hold metadata or deletes; ``root_of`` says their tables."""
    found = {file for file, root in root_of.items() if _is_metadata(file, root)}
    asked = [file for file in root_of if file not in found]
    tasks = (partial(_holds_deletes, opened, file) for file in asked)
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    answers = (task() for task in tasks) if is_local else waited_for(tasks)
    return found.union(file for file, is_one in zip(asked, answers, strict=True) if is_one)


def _is_metadata(file: str, root: str) -> bool:
    """True if a file is in the log of its Iceberg table. Other logs are hidden folders anyway."""
    return file.lstrip("/").startswith(f"{root}/{ICEBERG.log}/".lstrip("/"))


def _holds_deletes(opened: Opener, path: str) -> bool:
    """True if a file of an Iceberg table holds deletes; False if it cannot be read."""
    try:
        file = opened(path)
    except (IntarsiaError, OSError):  # whatever reads it says what is wrong
        return False
    ids = {leaf.element.field_id for leaf in file.schema.leaves}
    is_position = ids >= _DELETE_IDS or file.schema_arrow.names == _DELETE_NAMES
    return is_position or file.metadata.key_value(_DELETE_TYPE) is not None
