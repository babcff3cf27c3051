"""Compares the files in a folder with the rows to be added."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.commit.job import Job
from intarsia.errors import IntarsiaError, PathError, warn
from intarsia.io.glob import HIDDEN
from intarsia.scan.parquet_file import open_file
from intarsia.spark.types import spark_schema

_MAX_CHECKED_FILES = 8
"""Files whose folders are checked: each may be in a folder that has to be listed."""


def check_existing(job: Job) -> None:
    """Warns if the first existing file has other columns than the new rows, or other types.

    Raises ``PathError`` if a column's name differs from an existing one only by case. Raises
    ``PathError`` too if existing files are partitioned by other columns, as no reader could read
    such a data set. Only the first files are checked.
    """
    entries = [info for name, info in job.place.names("").items() if not name.startswith(HIDDEN)]
    _check_folders(job, entries)
    try:
        paths = list(itertools.islice(_files(job.place.filesystem, entries), _MAX_CHECKED_FILES))
    except OSError:  # folders that cannot be listed are not checked
        return
    _check_keys(job, paths)
    if paths:
        try:
            old = open_file(paths[0], job.place.filesystem).schema_arrow
        except (IntarsiaError, OSError):  # nor is a file that cannot be read
            return
        _check_case(paths[0], old.names, job.schema.names)
        _compare(paths[0], _types(old), _types(job.schema))


def _check_folders(job: Job, entries: Iterable[pafs.FileInfo]) -> None:
    ours = job.partition_by[0] if job.partition_by else None
    theirs = {
        unquote(info.base_name.partition("=")[0]) if "=" in info.base_name else None
        for info in entries
        if "=" in info.base_name or info.type == pafs.FileType.File
    }
    if theirs and ours not in theirs:
        known = ", ".join(sorted(f"folders of {key!r}" if key else "no folders" for key in theirs))
        raise PathError(
            f"{job.place.root}: existing files are in {known}, and new ones would be in "
            f"{f'folders of {ours!r}' if ours else 'none'}: pass the same partition_by"
        )


def _check_keys(job: Job, paths: Iterable[str]) -> None:
    """Checks the names of all folders in the paths of files, if files are in folders."""
    for path in paths:
        folders = path.removeprefix(job.place.root).strip("/").split("/")[:-1]
        theirs = [unquote(folder.partition("=")[0]) for folder in folders if "=" in folder]
        is_in_key_folders = theirs and len(theirs) == len(folders) and path.endswith(".parquet")
        if is_in_key_folders and theirs != [*job.partition_by]:
            raise PathError(
                f"{path}: existing files are in folders of {', '.join(theirs)}, and new ones "
                f"would be in those of {', '.join(job.partition_by)}: pass the same partition_by"
            )


def _files(filesystem: pafs.FileSystem, entries: Iterable[pafs.FileInfo]) -> Iterator[str]:
    """Yields data files, and lists each folder only when it is reached."""
    visible_entries = [info for info in entries if not info.base_name.startswith(HIDDEN)]
    visible_entries.sort(key=lambda info: (info.type != pafs.FileType.File, info.base_name))
    for info in visible_entries:
        if info.type == pafs.FileType.File:
            yield info.path
        elif info.type == pafs.FileType.Directory:
            yield from _files(filesystem, filesystem.get_file_info(pafs.FileSelector(info.path)))


def _types(schema: pa.Schema) -> dict[str, str]:
    """Returns Spark's names of the types of columns."""
    types = {}
    for field in schema:
        try:
            (spark_field,) = spark_schema(pa.schema([field]))
            types[field.name] = spark_field.dataType.simpleString()
        except IntarsiaError:
            types[field.name] = str(field.type)
    return types


def _check_case(path: str, old_names: list[str], new_names: list[str]) -> None:
    known = {name.lower(): name for name in old_names if name not in new_names}
    for name in new_names:
        old = known.get(name.lower())
        if old is not None and name not in old_names:
            raise PathError(
                f"{path}: the column {name!r} of the new rows is {old!r} there: names are "
                "case-sensitive here, and readers would get NULL"
            )


def _compare(path: str, old_types: dict[str, str], new_types: dict[str, str]) -> None:
    differences = []
    if missing := [name for name in old_types if name not in new_types]:
        differences.append(f"the new rows have no {_named(missing)}")
    if added := [name for name in new_types if name not in old_types]:
        differences.append(f"it has no {_named(added)}")
    for name in old_types:
        if name in new_types and old_types[name] != new_types[name]:
            differences.append(
                f"column {name!r} is {old_types[name]} there, and {new_types[name]} here"
            )
    if differences:
        warn(
            f"{path}: {'; '.join(differences)}. Readers take the columns of one file; to read the "
            "columns of all files, use merge_schema=True on Spark and union_by_name=True with "
            "intarsia.dataset",
        )


def _named(names: list[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(map(repr, names))
