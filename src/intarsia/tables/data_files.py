"""Finds the data files of a listing, parts of which may be tables of other formats.

Every function that opens the files of a folder gets them from here. A file in a table is read only
if the caller gave its own path, or passed ``table_format="ignore"``. Delete files and the files in
Iceberg's ``metadata/`` are never data.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, get_args

import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.errors import IntarsiaError, PathError
from intarsia.file.file_view import OWN_VIEW, FileView, TableSnapshot
from intarsia.file.open_file import OpenedFile
from intarsia.io.glob import base_of, is_glob
from intarsia.io.local_path import local_path, unwrapped
from intarsia.io.retry import infos_of
from intarsia.io.storage import NoDataError, PathLike, as_list, list_files, resolve
from intarsia.io.table_format import FORMATS, ICEBERG, TableFormat, Tables, makes_table
from intarsia.scan.parquet_file import open_file
from intarsia.threads import await_all, run_io_tasks

_P = ParamSpec("_P")
_R = TypeVar("_R")
TableFormatOption = Literal["auto", "ignore"]
"""``"auto"`` refuses the folders of tables, ``"ignore"`` reads them as plain files."""
Opener = Callable[[str], OpenedFile]
"""Opens the file at a path."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The result of ``list_files`` for some paths."""

    filesystem: pafs.FileSystem
    given: Sequence[str]
    """The paths that the caller gave, resolved on the file system."""
    files: Sequence[str]
    """The files below them."""
    tables: Tables = field(default_factory=dict)
    """The tables that the listing showed."""


_DELETE_IDS = {2147483546, 2147483545}
"""The field ids that Iceberg reserves for the two columns of position deletes."""
DELETE_COLUMNS = ["file_path", "pos"]
"""The columns of position deletes: the location of a data file, and a row in it."""
_DELETE_ENDING = "-deletes.parquet"
"""The end of names of delete files by Iceberg's Java library. A data file may be named so too."""
_DELETE_TYPE = "delete-type"
"""The footer key by which Iceberg's Java library marks delete files."""


Data: TypeAlias = PathLike | Sequence[PathLike] | pads.FileSystemDataset
"""Paths, or a data set, which stands for its files."""


def data_folder(data: Data, filesystem: Any = None) -> str:
    """Returns the folder of a policy, a catalog and usage counts of ``data``, or ``""``.

    A table has its own folder. Several paths, and data sets of plain files, have none.
    """
    if isinstance(data, pads.FileSystemDataset):
        table = table_of(data)
        return "" if table is None else table.root or ""
    given = as_list(data)
    return resolve(given[0], filesystem)[1].rstrip("/") if len(given) == 1 else ""


ViewOf: TypeAlias = Callable[[str], FileView]
"""Returns the view of the file at a path."""


def view_of(data: Data) -> ViewOf:
    """Returns a function that gives the names of columns in a file, which a table may have."""
    table = table_of(data)
    return lambda path: OWN_VIEW if table is None else table.views[path].names


def table_of(data: Data) -> TableSnapshot | None:
    """Returns the table that a data set is a version of. None for paths and plain files."""
    table: TableSnapshot | None = getattr(data, "table_snapshot", None)
    return table


@contextlib.contextmanager
def explaining_removed_files(table: TableSnapshot | None) -> Iterator[None]:
    """Adds to the error for a missing file of a data set what may have removed it."""
    try:
        yield
    except PathError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            if table is None:
                note = "It was deleted since it was listed: open the data set again"
            else:
                note = (
                    f"It is a file of {table.name}, and was removed since, as by a vacuum: open "
                    "the table again, at a version whose files still exist"
                )
            error.add_note(note)
        raise


def takes_data_sets(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Lets a function of files explain, if a data set is given, which of them were removed."""

    @functools.wraps(function)
    def explaining(*args: _P.args, **options: _P.kwargs) -> _R:
        data = args[0] if args else options.get("path")
        if not isinstance(data, pads.FileSystemDataset):
            return function(*args, **options)
        with explaining_removed_files(table_of(data)):
            return function(*args, **options)

    return explaining


def check_table_format(table_format: object) -> None:
    """Raises ``ValueError`` unless ``table_format`` is a ``TableFormatOption``."""
    if table_format not in get_args(TableFormatOption):
        raise ValueError(f"table_format is 'auto' or 'ignore', not {table_format!r}")


def data_files(
    path: Data,
    filesystem: Any = None,
    table_format: TableFormatOption = "auto",
    seen: dict[str, pafs.FileInfo] | None = None,
) -> tuple[pafs.FileSystem, list[str]]:
    """Returns the same as ``list_files``, without delete files.

    Raises ``PathError`` for folders of tables. ``seen`` is as for ``list_files``.
    """
    check_table_format(table_format)
    if isinstance(path, pads.FileSystemDataset):
        if not path.files:
            raise NoDataError(f"{path!r}: the data set has no files")
        return path.filesystem, path.files
    tables: Tables = {}
    file_system, files = list_files(path, filesystem, seen=seen, tables=tables)
    given = [resolve(one, filesystem)[1] for one in as_list(path)]
    return file_system, plain_files(Listed(file_system, given, files, tables), table_format)


def plain_files(
    listed: Listed,
    table_format: TableFormatOption,
    *,
    opened: Opener | None = None,
) -> list[str]:
    """Returns the data files of a listing. Raises ``PathError`` for files in tables.

    Files whose own paths were given may lie in tables. ``opened`` opens the files of Iceberg
    tables, and files with names of delete files. Their footers say whether they hold deletes.
    Raises ``NoDataError`` if no data file remains.
    """
    filesystem, files = listed.filesystem, listed.files
    named = set(listed.given)
    is_checked = table_format == "auto" and not named.issuperset(files)
    tables = listed.tables | _tables_above(listed, all_kinds=is_checked)
    table_of = _tables_by_file(filesystem, files, tables)
    for file, root in table_of.items():
        if is_checked and file not in named:
            raise PathError(refusal(root, tables[root]))
    in_iceberg = {file: root for file, root in table_of.items() if tables[root] is ICEBERG}
    opened = opened or partial(open_file, filesystem=filesystem)
    deletes = _deletes(filesystem, files, in_iceberg, opened)
    data = [file for file in files if file not in deletes]
    if not data:
        raise NoDataError(f"{files[0]}: it holds Iceberg's metadata or deletes, and no data")
    return data


def refusal(folder: str, kind: TableFormat) -> str:
    """Returns the message for a folder of a table: what is wrong and what to do."""
    return (
        f"{folder or '/'} is {kind.name}: its log ({kind.log}) says which files and rows count, "
        f"and is not read here; {kind.how}, as docs/how-to/tables.md shows, or read all files as "
        "plain ones, deleted rows and old files included, with table_format='ignore'"
    )


# --- where tables are ----------------------------------------------------------------------------


def tables_above(
    filesystem: pafs.FileSystem,
    paths: Iterable[str],
    *,
    links: Iterable[str] = (),
    all_kinds: bool = True,
) -> Tables:
    """Returns the tables among the folders above ``paths``. The paths themselves are not checked.

    Local links are followed, as are ``links``. On remote storage, the logs of all these folders are
    looked up at once, or only those of Iceberg. A folder that cannot be listed counts as no table.
    """
    inner_system, _ = unwrapped("/", filesystem)
    paths = _unwrapped_all(filesystem, paths)
    kinds = FORMATS if all_kinds else (ICEBERG,)
    if isinstance(inner_system, pafs.LocalFileSystem):
        folders = _local_folders(paths, links)
        logs = (
            (folder, kind)
            for kind in kinds
            for folder in folders
            if os.path.isdir(f"{folder}/{kind.log}")
        )
        candidates = [(folder, kind) for folder, kind in logs if folder not in _shared_folders()]
    else:
        candidates = [(folder, kind) for kind in kinds for folder in _above(map(_folder_of, paths))]
    has_log = await_all([partial(_has_log, inner_system, *candidate) for candidate in candidates])
    return dict(
        candidate for candidate, is_table in zip(candidates, has_log, strict=True) if is_table
    )


def _unwrapped_all(filesystem: pafs.FileSystem, paths: Iterable[str]) -> list[str]:
    if isinstance(filesystem, pafs.LocalFileSystem):  # the usual case, often with many files
        return list(paths)
    return [unwrapped(path, filesystem)[1] for path in paths]


def _local_folders(paths: Sequence[str], links: Iterable[str]) -> dict[str, None]:
    """Returns the folders above ``paths``, and those above what local links lead to."""
    folders = _above(map(os.path.abspath, dict.fromkeys(map(_folder_of, paths))))
    # Only the disk knows what ".." means after a link.
    followed = [path for path in (*paths, *folders) if "/.." in path or _is_link(path)]
    return folders | _above(_folder_of(os.path.realpath(path)) for path in (*followed, *links))


def _is_link(path: str) -> bool:
    return os.path.islink(path.rstrip("/"))


def _links_among(files: Sequence[str], named: Container[str]) -> list[str]:
    """Returns the links among local files, and among the folders above them."""
    by_folder: dict[str, list[str]] = {}
    for file in files:
        by_folder.setdefault(_folder_of(file), []).append(file)
    links = list(filter(_is_link, _above(by_folder)))
    for folder, below in by_folder.items():
        # If files were given by their own paths, their folder may hold very many others.
        is_listed = folder and len(below) > 1 and below[0] not in named
        links += _links_in(folder, below) if is_listed else filter(_is_link, below)
    return links


def _links_in(folder: str, files: Sequence[str]) -> list[str]:
    """Returns all links in a folder, or those among ``files`` if the folder cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_symlink()]
    except OSError:
        return list(filter(_is_link, files))


def _shared_folders() -> set[str]:
    """Returns the home folder, the folder of temporary files, and all above them.

    A log in one of these says nothing about the folders below.
    """
    system_folders = list(filter(os.path.isabs, (os.path.expanduser("~"), tempfile.gettempdir())))
    return set(_above([*system_folders, *map(os.path.realpath, system_folders)]))


def _folder_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]


def _above(folders: Iterable[str]) -> dict[str, None]:
    """Returns these folders and all above them, without the root of the file system."""
    folders_above: dict[str, None] = {}
    for folder in folders:
        parent = folder
        while (
            parent not in folders_above and parent and not parent.endswith(("/", ":"))
        ):  # a URL's start
            folders_above[parent] = None
            parent = parent.rpartition("/")[0]
    return folders_above


def _has_log(filesystem: pafs.FileSystem, folder: str, kind: TableFormat) -> bool:
    """True if the log's folder holds what the format requires.

    On local disks the caller has checked that the folder exists.
    """
    if isinstance(filesystem, pafs.LocalFileSystem) and kind.file is None:
        return True
    with contextlib.suppress(OSError):
        log = pafs.FileSelector(f"{folder}/{kind.log}", allow_not_found=True)
        infos = infos_of(filesystem, log)
        return any(makes_table(kind, info, info.base_name) for info in infos)
    return False


def _tables_above(listed: Listed, *, all_kinds: bool) -> Tables:
    """Returns the tables above a listing, and above the targets of its local links and globs."""
    filesystem, given, files = listed.filesystem, listed.given, listed.files
    file_paths = set(files)
    folders = [path for path in given if path not in file_paths]  # or globs
    if local_path("/", filesystem) is not None:
        named = frozenset(_unwrapped_all(filesystem, given))
        links = _links_among(_unwrapped_all(filesystem, files), named)
        # A local glob lists only what it matches.
        is_listed = len(folders) == len(given) and not any(map(is_glob, given))
        below = () if is_listed else dict.fromkeys(map(_folder_of, files))
        paths = [*folders, *(f"{folder}/*" for folder in below)]
        return tables_above(filesystem, paths, links=links, all_kinds=all_kinds)
    single = [path for path in given if path in file_paths]
    common = os.path.commonprefix(single)  # noqa: RUF071  # it is cut at a "/" below
    # Files given by their own paths may lie in too many folders to check above each.
    paths = [_listed_at(path, files) for path in folders]
    paths.append(f"{common.rpartition('/')[0]}/*")
    return tables_above(filesystem, paths, all_kinds=all_kinds)


def _listed_at(path: str, files: Sequence[str]) -> str:
    """Returns the folder that remote storage listed for a path, which may be a glob.

    Tables below the base of a glob are in its listing. A folder may have a name that looks like a
    glob.
    """
    if not is_glob(path):
        return path
    below = f"{path.strip('/')}/"
    is_folder = any(file.lstrip("/").startswith(below) for file in files)
    return path if is_folder else base_of(path)


def _tables_by_file(
    filesystem: pafs.FileSystem, files: Sequence[str], tables: Tables
) -> dict[str, str]:
    """Returns the innermost table of each file that lies in one."""
    if not tables:
        return {}
    folders = {folder.strip("/"): folder for folder in tables}  # storage may spell them differently
    by_parent: dict[str, str | None] = {}
    table_of = {}
    for file in files:
        parent = file.rpartition("/")[0]
        if parent not in by_parent:
            by_parent[parent] = _innermost(parent, folders)
            if by_parent[parent] is None:
                by_parent[parent] = _innermost(_inner_path(parent, filesystem), folders)
        root = by_parent[parent]
        if root is None:
            root = _innermost(_inner_path(file, filesystem, os.path.realpath), folders)
        if root is not None:
            table_of[file] = root
    return table_of


def _inner_path(
    path: str, filesystem: pafs.FileSystem, spelled: Callable[[str], str] = os.path.abspath
) -> str:
    """Returns a path in the innermost file system. ``spelled`` changes local paths."""
    inner_system, inner_path = unwrapped(path, filesystem)
    return spelled(inner_path) if isinstance(inner_system, pafs.LocalFileSystem) else inner_path


def _innermost(path: str, folders: Mapping[str, str]) -> str | None:
    folder = path.strip("/")
    while folder and folder not in folders:
        folder = folder.rpartition("/")[0]
    return folders.get(folder)


# --- files of deletes ----------------------------------------------------------------------------


def _deletes(
    filesystem: pafs.FileSystem, files: Sequence[str], root_of: Mapping[str, str], opened: Opener
) -> set[str]:
    """Returns the files of Iceberg's metadata or deletes. ``root_of`` gives the table of files."""
    metadata = {file for file, root in root_of.items() if _is_metadata(file, root)}
    named = (file for file in files if file.endswith(_DELETE_ENDING))
    candidates = [file for file in dict.fromkeys((*root_of, *named)) if file not in metadata]
    tasks = (partial(_holds_deletes, opened, file) for file in candidates)
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    are_deletes = (task() for task in tasks) if is_local else run_io_tasks(tasks)
    return metadata.union(
        file for file, is_one in zip(candidates, are_deletes, strict=True) if is_one
    )


def _is_metadata(file: str, root: str) -> bool:
    """True if a file is in the log of its Iceberg table. Other logs are hidden folders anyway."""
    return file.lstrip("/").startswith(f"{root}/{ICEBERG.log}/".lstrip("/"))


def _holds_deletes(opened: Opener, path: str) -> bool:
    """True if a file holds Iceberg deletes. False if it cannot be read."""
    try:
        file = opened(path)
    except (IntarsiaError, OSError):  # the reader reports the error
        return False
    ids = {leaf.element.field_id for leaf in file.schema.leaves}
    is_position = ids >= _DELETE_IDS or file.schema_arrow.names == DELETE_COLUMNS
    return is_position or file.metadata.key_value(_DELETE_TYPE) is not None
