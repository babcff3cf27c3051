"""Taking indexes off files again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from intarsia.errors import IndexSpecError, public, quiet
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import IndexSpec, check_is_index, parse, spec_name
from intarsia.indexing.add import IndexReport, Progress, report_of, standard_of
from intarsia.indexing.build import names_of
from intarsia.indexing.file_layout import added_parts, base_of, compose
from intarsia.indexing.rewrite import check_changeable, rewrite, warn_of_names
from intarsia.indexing.sidecar_writer import write_sidecar
from intarsia.io.atomic_replace import check_unchanged, remove_leftovers_of
from intarsia.io.external_sort import Workspace
from intarsia.io.file_handle import Version, version_of
from intarsia.io.storage import PathLike
from intarsia.scan.parquet_file import open_file
from intarsia.tables.data_files import TableFormatOption, data_files


@public
def drop_indexes(
    path: PathLike | Sequence[PathLike],
    indexes: Sequence[IndexSpec | str] | IndexSpec | str | None = None,
    *,
    all: bool = False,  # noqa: A002 # as the command line says it
    filesystem: Any = None,
    sidecar: bool | PathLike = False,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
) -> list[IndexReport]:
    """Take ``indexes`` off every Parquet file under ``path``: a file, folder, glob or URI.

    An index is named as it is listed, ``"trace_id:lookup"``, or given as for ``add_indexes``. Those
    of kinds unknown here can be dropped as well, and so can page indexes and bloom filters that
    were added; those that a file was written with are part of it and stay, as the report's ``kept``
    says. A file that loses all that was added is, byte for byte, what it was before. Files that
    have none of them stay as they are. With ``all=True``, instead of ``indexes``, every index that
    was added is taken off.
    With ``sidecar=True``, or the folder of sidecars, they are taken off these, which are removed
    where nothing is left. ``progress`` is called with a path, and how many files are done, of how
    many. ``table_format`` is as for ``add_indexes``.

    Raises ``IndexSpecError`` where no file has an index of a name, before any file is changed;
    otherwise errors as of ``add_indexes``.
    """
    asked = asked_of(indexes, all=all)
    found, files = data_files(path, filesystem, table_format)
    places = None if sidecar is False else Sidecars(found, None if sidecar is True else sidecar)
    with quiet():  # what is stale can be dropped as well
        held = {file: _held(open_file(file, found, sidecar=places), places) for file in files}
    everywhere = set().union(*held.values())
    first = open_file(files[0], found)
    with_pages = next((file for file in files if PageIndex.kind in held[file]), files[0])
    paged = first if with_pages == files[0] else open_file(with_pages, found)
    if asked is None:
        names = sorted(everywhere)
    else:
        names = [name_of(index, everywhere, first, paged) for index in asked]
    for name in names:
        if name not in everywhere and not _is_own(name, files, found, places):
            known = ", ".join(sorted(everywhere)) or "none"
            raise IndexSpecError(
                f"no {'file' if places is None else 'sidecar'} has an index {name} that was added "
                f"to it; those added are: {known}{_elsewhere(name, files, found, places)}"
            )
    remove_leftovers_of(files, found)
    reports = []
    for done, file in enumerate(files):
        if progress:
            progress(file, done, len(files))
        gone = tuple(name for name in names if name in held[file])
        if gone:
            version = version_of(file, found)
            if places is None:
                warn_of_names(file, found)
            with quiet():
                drop_from(open_file(file, found, sidecar=places), names, found, version, places)
        now = report_of(open_file(file, found, sidecar=places))
        own = {one.name for one in now.standard if places is None and is_standard(one.name)}
        kept = tuple(name for name in names if name in own - {*gone})
        reports.append(replace(now, dropped=gone, kept=kept))
    if progress:
        progress(files[-1], len(files), len(files))
    return reports


def asked_of(
    indexes: Sequence[IndexSpec | str] | IndexSpec | str | None,
    *,
    all: bool = False,  # noqa: A002 # the name of the command's option
) -> list[IndexSpec | str] | None:
    """Returns one index or several as a list; None for ``all``.

    Raises ``IndexSpecError`` for what is no index, or if neither or both are given.
    """
    if all == (indexes is not None):
        raise IndexSpecError(
            "indexes are named, or all=True drops every one that was added: one of the two"
        )
    if indexes is None:
        return None
    single = isinstance(indexes, str) or hasattr(indexes, "kind")
    asked: Any = [indexes] if single else indexes
    found = list(asked)
    for index in found:
        if not isinstance(index, str):
            check_is_index(index)
    return found


def drop_from(
    file: OpenedFile,
    names: Collection[str],
    filesystem: Any,
    version: Version,
    places: Sidecars | None = None,
) -> None:
    """Take indexes off one file of that ``version``, or its sidecar, if told of ``places``."""
    if places is not None:
        check = partial(check_unchanged, file.name, filesystem, version)
        write_sidecar(file, (), names, places, check)
        return
    with Workspace() as work:
        rewrite(file, compose(file, (), names, work), filesystem, version)


def _held(file: OpenedFile, places: Sidecars | None) -> set[str]:
    """As ``held_names``. Raises ``FormatError`` where they cannot be taken off."""
    if places is None and file.directory is not None:
        check_changeable(file)
    return held_names(file, places)


def is_standard(name: str) -> bool:
    """Is it the name of one of the format's own indexes, as a page index or a bloom filter?"""
    return name.rpartition(":")[2] in (PageIndex.kind, Bloom.kind)


def own_names(file: OpenedFile) -> set[str]:
    """The names of the format's own indexes of a file, whoever wrote them."""
    return {one.name for one in standard_of(file) if is_standard(one.name)}


def _is_own(name: str, files: Sequence[str], filesystem: Any, places: Sidecars | None) -> bool:
    """True if a file was written with the index, or if no file has rows that it could be of.

    ``add_indexes`` adds nothing there, so there is nothing to drop.
    """
    if places is not None or not is_standard(name):
        return False
    opened = [open_file(file, filesystem) for file in files]
    return any(name in own_names(file) for file in opened) or not any(
        file.num_rows for file in opened
    )


def _elsewhere(name: str, files: Sequence[str], filesystem: Any, places: Sidecars | None) -> str:
    """Where a name is, if it is in sidecars instead."""
    beside = Sidecars(filesystem)
    if places is not None or all(
        name not in held_names(open_file(file, filesystem), beside) for file in files
    ):
        return ""
    return "; the one beside it is dropped with sidecar=True"


def held_names(file: OpenedFile, places: Sidecars | None) -> set[str]:
    """The names of all indexes that were added to a file, or to its sidecar, be it stale."""
    if places is not None:
        file.sections.check_beside()
        beside = file.sections.beside
        entries = beside.directory.indexes if beside else file.sections.stale.get(True, ())
        return {entry.name for entry in entries}
    if file.directory is None:
        return set()
    names = {entry.name for entry in file.directory.indexes}
    return names | {index for index, _ in added_parts(file, base_of(file))}


def _with_page_indexes(file: OpenedFile) -> set[str]:
    """The columns that bounds by page were added for."""
    if file.directory is None:
        return set()
    added = added_parts(file, base_of(file))
    leaves = {part.chunk[1] for _, part in added if part.name == "column_index"}
    return {file.schema.leaves[leaf].name for leaf in leaves}


def name_of(
    index: IndexSpec | str, known: set[str], file: OpenedFile, paged: OpenedFile | None = None
) -> str:
    """What an index is called in ``file``, of those ``known``; of page indexes ``paged`` tells, by
    default the same. Raises ``IndexSpecError``.
    """
    if isinstance(index, str) and index in known:
        return index
    wanted = parse(index) if isinstance(index, str) else index
    if isinstance(wanted, PageIndex) and wanted.columns:
        of = _with_page_indexes(paged or file)
        if PageIndex.kind in known and of - {*wanted.columns}:
            told = f"those that were added are of {', '.join(sorted(of))}"
            raise IndexSpecError(f"{index}: page indexes are dropped together: page_index; {told}")
        return PageIndex.kind
    try:
        return names_of(file, [wanted])[0]
    except IndexSpecError:  # as of a column that this file has not
        return spec_name(wanted)
