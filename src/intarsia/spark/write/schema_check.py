"""What is in a folder already, compared with the rows that are to be added to it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from intarsia.errors import IntarsiaError, PathError, warn
from intarsia.io.glob import HIDDEN
from intarsia.scan.parquet_file import open_file
from intarsia.spark.types import spark_schema
from intarsia.spark.write.job_spec import Job

_MOST_SEEN = 8
"""Files that are looked at: each may lie in a folder that has to be listed."""


def check_existing(job: Job) -> None:
    """Warn where a file that is there has other columns than those to come, or of other types.

    Raises ``PathError`` where a column differs from one that is there by its case alone, and where
    what is there lies in folders of other columns, or in none: a data set of both is one that no
    reader knows what to make of. Of many files the first are looked at.
    """
    there = [info for name, info in job.place.names("").items() if not name.startswith(HIDDEN)]
    _check_folders(job, there)
    try:
        paths = list(itertools.islice(_files(job.place.filesystem, there), _MOST_SEEN))
    except OSError:  # what cannot be listed says nothing
        return
    _check_keys(job, paths)
    if paths:
        try:
            old = open_file(paths[0], job.place.filesystem).schema_arrow
        except (IntarsiaError, OSError):  # nor what cannot be read
            return
        _check_case(paths[0], old.names, job.schema.names)
        _compare(paths[0], _types(old), _types(job.schema))


def _check_folders(job: Job, there: Iterable[pafs.FileInfo]) -> None:
    ours = job.partition_by[0] if job.partition_by else None
    theirs = {
        unquote(info.base_name.partition("=")[0]) if "=" in info.base_name else None
        for info in there
        if "=" in info.base_name or info.type == pafs.FileType.File
    }
    if theirs and ours not in theirs:
        known = ", ".join(sorted(f"folders of {key!r}" if key else "no folders" for key in theirs))
        raise PathError(
            f"{job.place.root}: the files there are in {known}, and new ones would be in "
            f"{f'folders of {ours!r}' if ours else 'none'}: say the same partition_by"
        )


def _check_keys(job: Job, paths: Iterable[str]) -> None:
    """As ``_check_folders``, of all the folders that files lie in, where they lie in some."""
    for path in paths:
        folders = path.removeprefix(job.place.root).strip("/").split("/")[:-1]
        theirs = [unquote(folder.partition("=")[0]) for folder in folders if "=" in folder]
        is_told = theirs and len(theirs) == len(folders) and path.endswith(".parquet")
        if is_told and theirs != [*job.partition_by]:
            raise PathError(
                f"{path}: the files there are in folders of {', '.join(theirs)}, and new ones "
                f"would be in those of {', '.join(job.partition_by)}: say the same partition_by"
            )


def _files(filesystem: pafs.FileSystem, there: Iterable[pafs.FileInfo]) -> Iterator[str]:
    """Data files, each folder listed when it is come to."""
    shown = [info for info in there if not info.base_name.startswith(HIDDEN)]
    shown.sort(key=lambda info: (info.type != pafs.FileType.File, info.base_name))
    for info in shown:
        if info.type == pafs.FileType.File:
            yield info.path
        elif info.type == pafs.FileType.Directory:
            yield from _files(filesystem, filesystem.get_file_info(pafs.FileSelector(info.path)))


def _types(schema: pa.Schema) -> dict[str, str]:
    """What Spark calls the types of columns."""
    found = {}
    for field in schema:
        try:
            (one,) = spark_schema(pa.schema([field]))
            found[field.name] = one.dataType.simpleString()
        except IntarsiaError:
            found[field.name] = str(field.type)
    return found


def _check_case(path: str, there: list[str], new: list[str]) -> None:
    known = {name.lower(): name for name in there if name not in new}
    for name in new:
        old = known.get(name.lower())
        if old is not None and name not in there:
            raise PathError(
                f"{path}: the column {name!r} of the new rows is {old!r} there: names are told "
                "apart by case here, and readers would find NULL"
            )


def _compare(path: str, there: dict[str, str], new: dict[str, str]) -> None:
    parts = []
    if lacking := [name for name in there if name not in new]:
        parts.append(f"the new rows have no {_named(lacking)}")
    if more := [name for name in new if name not in there]:
        parts.append(f"it has no {_named(more)}")
    for name in there:
        if name in new and there[name] != new[name]:
            parts.append(f"column {name!r} is {there[name]} there, and {new[name]} here")
    if parts:
        warn(
            f"{path}: {'; '.join(parts)}. Readers go by the columns of one file; those of all are "
            "read with merge_schema=True on Spark, with union_by_name=True by intarsia.dataset",
        )


def _named(names: list[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(map(repr, names))
