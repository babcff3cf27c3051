"""Drops indexes from files and from sidecars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from intarsia.errors import IndexSpecError, public, quiet
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.index import Index
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import IndexSpec, check_is_index, parse, parse_indexes, spec_name
from intarsia.indexing.add import (
    IndexReport,
    Progress,
    change_indexes,
    parquet_index_reports,
    report_of,
)
from intarsia.indexing.build import names_of
from intarsia.indexing.file_layout import added_parts, base_of
from intarsia.indexing.rewrite import check_changeable, warn_of_names
from intarsia.io.atomic_replace import remove_leftovers_of
from intarsia.io.file_handle import version_of
from intarsia.io.storage import PathLike
from intarsia.scan.parquet_file import open_file
from intarsia.tables.data_files import (
    Data,
    TableFormatOption,
    data_files,
    takes_data_sets,
    view_of,
)


@public
@takes_data_sets
def drop_indexes(
    path: Data,
    indexes: Sequence[Index | str] | Index | str | None = None,
    *,
    all: bool = False,  # noqa: A002 # the name of the command's option
    filesystem: Any = None,
    sidecar: bool | PathLike = False,
    progress: Progress | None = None,
    table_format: TableFormatOption = "auto",
) -> list[IndexReport]:
    """Drops indexes from every Parquet file under a path.

    Indexes of unregistered kinds can be dropped as well. Page indexes and bloom filters can be
    dropped if they were added with ``add_indexes``. They stay if the file was written with them. A
    file that loses all added indexes becomes, byte for byte, what it was before.
    Files that have none of the indexes are not touched. A sidecar is removed when its last index is
    dropped.

    Parameters
    ----------
    path : str, path-like, sequence of them or Dataset
        Files, folders, globs or URIs, or a data set, which stands for its files.
    indexes : Index, str or sequence of these, optional
        Indexes by the names that ``list_indexes`` gives, such as ``"trace_id:lookup"``, or as for
        ``add_indexes``.
    all : bool, default False
        Drops every index that was added. Pass either ``indexes`` or ``all=True``.
    filesystem : pyarrow.fs.FileSystem or fsspec file system, optional
        The file system of ``path``. By default it is taken from the URI; other paths are local.
    sidecar : bool or path-like, default False
        True drops the indexes from the sidecars of the files; a folder, from the sidecars in it.
    progress : callable, optional
        Called with a file's path, the number of files that are done, and the number of files.
    table_format : {"auto", "ignore"}, default "auto"
        How files of Delta Lake, Iceberg and Hudi tables are treated, as for ``add_indexes``.

    Returns
    -------
    list of IndexReport
        One report per file, in order. ``dropped`` names the indexes that were dropped. ``kept``
        names the page indexes and bloom filters that the file was written with.

    Raises
    ------
    IndexSpecError
        If no file has an index of a given name. No file has been changed then.
    FormatError
        If a file is not Parquet or must not be changed.
    PathError
        If there is no file, or one cannot be written.

    Examples
    --------
    >>> (report,) = ia.drop_indexes("logs.parquet", "trace_id:lookup")
    >>> report.dropped
    ('trace_id:lookup',)
    """
    specs = asked_of(indexes, all=all)
    file_system, files = data_files(path, filesystem, table_format)
    places = Sidecars.of_option(file_system, sidecar)
    view = view_of(path)

    def opened(file: str, places: Sidecars | None = None) -> OpenedFile:
        return open_file(file, file_system, sidecar=places, view=view(file))

    with quiet():  # stale indexes can be dropped as well
        names_in = {file: _names_to_drop(opened(file, places), places) for file in files}
    everywhere = set().union(*names_in.values())
    first = opened(files[0])
    with_pages = next((file for file in files if PageIndex.kind in names_in[file]), files[0])
    paged = first if with_pages == files[0] else opened(with_pages)
    if specs is None:
        names = sorted(everywhere)
    else:
        names = [name_of(index, everywhere, first, paged) for index in specs]
    for name in names:
        if name not in everywhere and not _is_own(name, files, file_system, places):
            known = ", ".join(sorted(everywhere)) or "none"
            raise IndexSpecError(
                f"no {'file' if places is None else 'sidecar'} has an index {name} that was added "
                f"to it; those added are: {known}{_sidecar_hint(name, files, file_system, places)}"
            )
    remove_leftovers_of(files, file_system)
    reports = []
    for done, file in enumerate(files):
        if progress:
            progress(file, done, len(files))
        dropped = tuple(name for name in names if name in names_in[file])
        if dropped:
            version = version_of(file, file_system)
            if places is None:
                warn_of_names(file, file_system)
            with quiet():
                change_indexes(opened(file, places), file_system, version, places, drop=names)
        report = report_of(opened(file, places))
        parquet_names = {
            index_report.name
            for index_report in report.standard
            if places is None and is_parquet_index_name(index_report.name)
        }
        untouched = tuple(name for name in names if name in parquet_names - {*dropped})
        reports.append(replace(report, dropped=dropped, kept=untouched))
    if progress:
        progress(files[-1], len(files), len(files))
    return reports


def asked_of(
    indexes: Sequence[Index | str] | Index | str | None,
    *,
    all: bool = False,  # noqa: A002 # the name of the command's option
) -> list[IndexSpec | str] | None:
    """Returns the indexes as a list, None for ``all``. Raises ``IndexSpecError`` for others."""
    if all == (indexes is not None):
        raise IndexSpecError(
            "give either indexes, or all=True, which drops every index that was added"
        )
    if indexes is None:
        return None
    single = isinstance(indexes, str) or hasattr(indexes, "kind")
    items: Any = [indexes] if single else indexes
    specs = list(items)
    for index in specs:
        if not isinstance(index, str):
            check_is_index(index)
    return specs


def _names_to_drop(file: OpenedFile, places: Sidecars | None) -> set[str]:
    """Returns ``added_index_names``. Raises ``FormatError`` if they cannot be dropped."""
    if places is None and file.directory is not None:
        check_changeable(file)
    return added_index_names(file, places)


def is_parquet_index_name(name: str) -> bool:
    """True if a page index or a bloom filter has this name."""
    return name.rpartition(":")[2] in (PageIndex.kind, Bloom.kind)


def parquet_index_names(file: OpenedFile) -> set[str]:
    """Returns the names of a file's page indexes and bloom filters, added or not."""
    return {
        index_report.name
        for index_report in parquet_index_reports(file)
        if is_parquet_index_name(index_report.name)
    }


def _is_own(name: str, files: Sequence[str], filesystem: Any, places: Sidecars | None) -> bool:
    """True if a file was written with the index, or no file has rows: nothing is added then."""
    if places is not None or not is_parquet_index_name(name):
        return False
    opened = [open_file(file, filesystem) for file in files]
    return any(name in parquet_index_names(file) for file in opened) or not any(
        file.num_rows for file in opened
    )


def _sidecar_hint(name: str, files: Sequence[str], filesystem: Any, places: Sidecars | None) -> str:
    """Returns what an error adds if the index is in sidecars instead. Returns "" if it is not."""
    sidecars = Sidecars(filesystem)
    if places is not None or all(
        name not in added_index_names(open_file(file, filesystem), sidecars) for file in files
    ):
        return ""
    return "; the one in its sidecar is dropped with sidecar=True"


def added_index_names(file: OpenedFile, places: Sidecars | None) -> set[str]:
    """Returns the names of all indexes that were added to a file or its sidecar, stale or not."""
    if places is not None:
        file.sections.check_sidecar()
        sections, sidecar = file.sections, file.sections.sidecar
        stale = sections.stale.get(sections.sidecar_option, ())
        entries = sidecar.directory.indexes if sidecar else stale
        return {entry.name for entry in entries}
    if file.directory is None:
        return set()
    names = {entry.name for entry in file.directory.indexes}
    return names | {index for index, _ in added_parts(file, base_of(file))}


def _with_page_indexes(file: OpenedFile) -> set[str]:
    """Returns the columns that page bounds were added for."""
    if file.directory is None:
        return set()
    parts = added_parts(file, base_of(file))
    leaves = {part.chunk[1] for _, part in parts if part.name == "column_index"}
    return {file.schema.leaves[leaf].name for leaf in leaves}


def name_of(
    index: Index | str, known: set[str], file: OpenedFile, paged: OpenedFile | None = None
) -> str:
    """Returns an index's name. Raises ``IndexSpecError`` for some columns' page indexes only."""
    if isinstance(index, str) and index in known:
        return index
    spec = parse(index) if isinstance(index, str) else parse_indexes(index)[0]
    if isinstance(spec, PageIndex) and spec.columns:
        indexed_columns = _with_page_indexes(paged or file)
        if PageIndex.kind in known and indexed_columns - {*spec.columns}:
            hint = f"they were added for {', '.join(sorted(indexed_columns))}"
            raise IndexSpecError(
                f"{index}: page indexes can only be dropped together, as page_index; {hint}"
            )
        return PageIndex.kind
    try:
        return names_of(file, [spec])[0]
    except IndexSpecError:  # for example, of a column that this file lacks
        return spec_name(spec)
