"""Finding the files of a data set, and what they have in common: schema, folders, storage."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from intarsia.catalog.catalog import catalog_of
from intarsia.dataset.commit_journal import visible, visible_under
from intarsia.dataset.dataset import Dataset
from intarsia.dataset.partition_values import folder_expressions
from intarsia.dataset.partitioning import (
    folder_of,
    shares_columns,
    stated_folders,
    with_keys,
    with_types_of,
)
from intarsia.dataset.schema_unification import united_schema
from intarsia.decode.page_size_limit import check_page_size_limit
from intarsia.errors import FormatError, IntarsiaError, check_several, public
from intarsia.file.corrupt_rows import OnCorrupt, check_on_corrupt
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import Reader, check_reader
from intarsia.file.sidecar_discovery import places_of
from intarsia.io.storage import FileSource, PathLike, list_files, resolve, several
from intarsia.scan.files.file_cache import FileCache
from intarsia.tables.data_files import Listed, TableFormatOption, check_table_format, plain_files
from intarsia.threads import begin, result_of


@public
def dataset(
    source: PathLike | Sequence[PathLike],
    *,
    schema: pa.Schema | None = None,
    union_by_name: bool = False,
    filesystem: Any = None,
    partitioning: Any = "hive",
    sidecar: PathLike | None = None,
    page_checksum_verification: bool = False,
    read_dictionary: Sequence[str] = (),
    cache_options: pa.CacheOptions | None = None,
    distinct_index_column: str | None = None,
    catalog: bool | Literal["auto"] = "auto",
    on_corrupt: OnCorrupt | None = None,
    page_size_limit: int | None = None,
    table_format: TableFormatOption = "auto",
    reader: Reader = "auto",
) -> Dataset:
    """Open Parquet files as one data set: a file, a folder, a glob, a URI, or a list of these.

    ``schema`` is the first file's unless given, plus the folders' ``key=value`` columns. With
    ``union_by_name``, which opens all files, it has the columns of all of them: numbers as wide,
    timestamps as fine and decimals as long as in any, within lists and structs as well, and NULL
    where a file lacks one. A value that does not fit is an error of the scan that reads it.
    ``filesystem`` is a ``pyarrow.fs`` or fsspec file system. ``partitioning`` says how folders give
    columns: ``"hive"`` reads ``key=value`` and infers integers, dates, timestamps, else text, as
    DuckDB does; ``"pyarrow"`` infers as pyarrow does, 32-bit integers, else text; None for not at
    all; or what ``pyarrow.dataset.dataset`` takes. A key that is a column of the files has the
    type it has there. Sidecars
    are looked for beside the files, or in the folder ``sidecar`` that ``add_indexes`` put them
    into. ``page_checksum_verification`` compares pages that are read with their checksums, where
    they have some. ``read_dictionary`` names columns of text that are to come as Arrow
    dictionaries. ``cache_options`` says what storage costs: ranges up to ``hole_size_limit`` bytes
    apart share a request, as if that many bytes took as long to read as one more request takes to
    be answered, which is how ``pyarrow.CacheOptions.from_network_metrics`` derives it from latency
    and bandwidth. ``distinct_index_column`` names the column of text that ``IDX1`` lists of other
    writers are of, which the files do not say; = and IN on it pass over files that list no such
    value. A list that is not where the footer says, or contradicts statistics, is ignored.
    ``catalog`` asks the catalog that ``build_catalog`` made of a folder which files to open: where
    there is one, with ``"auto"``; it has to be there with True, and is not looked at with False,
    nor with ``on_corrupt``.

    ``on_corrupt`` has every page that is read checked: its checksum, where it has one, and what its
    header says. Then ``"raise"`` names the damaged page, in a ``FormatError``; ``"skip"`` leaves
    its rows out, of every column that is read, and warns (``CorruptDataWarning``); a damaged
    dictionary takes its row group's rows along, and ``Dataset.corrupt`` lists the places. A file
    whose footer is damaged raises either way. By default, as with pyarrow, nothing is checked.

    ``page_size_limit`` are the most bytes that one page, or one dictionary, may hold, decompressed
    and as values in memory: a page of 100 KB can hold 2 GiB. One that holds more raises
    ``FormatError`` before it is decompressed, or with ``on_corrupt="skip"`` is left out as a
    damaged one is. By default there is no limit but the format's own, 2 GiB.

    The folder of a Delta, Iceberg or Hudi table, or of a stream of Spark's, holds rows that were
    deleted. Such a folder raises ``PathError``, as do folders in it and above it, and globs that
    lead there. With ``table_format="ignore"`` all files are read as plain ones; so are files whose
    own paths are given. Iceberg's files of deletes and deletion vectors are left out either way.

    ``reader`` says who reads the files for ``intarsia.sql`` and ``intarsia.polars.scan``:
    ``"pages"`` is our own reader, which skips pages; ``"engine"`` is DuckDB's or Polars', if it
    gives the same rows; by default the one that is likely to be faster.

    Far files are opened and read as many at a time as ``pyarrow.io_thread_count`` says. Raises
    ``PathError`` where there is no file, ``FormatError`` where the first file is not Parquet,
    ``UnsupportedError`` where files that are to be united have a column of unlike types.
    """
    check_on_corrupt(on_corrupt)
    check_page_size_limit(page_size_limit)
    check_table_format(table_format)
    check_reader(reader)
    check_several(read_dictionary=read_dictionary)
    _check_kinds(schema, partitioning)
    catalog = catalog if on_corrupt is None else False
    options = {
        "distinct_index_column": distinct_index_column,
        "on_corrupt": on_corrupt,
        "page_size_limit": page_size_limit,
        "reader": reader,
    }
    seen: dict[str, pafs.FileInfo] = {}
    scan_options = pads.ParquetFragmentScanOptions(
        page_checksum_verification=page_checksum_verification or on_corrupt is not None,
        cache_options=cache_options or pa.CacheOptions(),
        arrow_extensions_enabled=True,  # a UUID is one whether or not ARROW:schema says so
    )
    form = pads.ParquetFileFormat(
        dictionary_columns=set(read_dictionary), default_fragment_scan_options=scan_options
    )
    found, files, base, cache = _located(source, filesystem, form, sidecar, seen, table_format)
    if union_by_name:
        schema = _united(cache, files, base, partitioning, schema)
    known = cache.catalog = catalog_of(found, base, cache.options, seen, catalog)
    if known is not None:
        known.opened()
    folders = stated_folders(partitioning, files, base)
    is_local = known is None and isinstance(found, pafs.LocalFileSystem)
    if folders is not None and not (is_local and _is_for_pyarrow(folders, cache, files, schema)):
        made = _open_listed(found, files, base, form, cache, schema, folders)
    else:
        if partitioning in ("hive", "pyarrow") and folders is not None and folders.schema.names:
            partitioning = folders
        made = open_dataset(found, files, base, partitioning, schema, form)
        made.scan_source = made.scan_source.with_cache(cache)  # the first file may be open
    return made.with_options(**options)


def _is_for_pyarrow(
    folders: pads.Partitioning, cache: FileCache, files: Sequence[str], schema: pa.Schema | None
) -> bool:
    """True if no key of ``folders`` is a column of ``schema``, or else of the first file."""
    if not folders.schema.names:
        return True
    try:
        known = cache.as_opened(files[0]).schema_arrow if schema is None else schema
    except IntarsiaError:
        return True  # pyarrow's error says what is wrong with the file
    return not shares_columns(folders, known)


def _check_kinds(schema: object, partitioning: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` for what pyarrow would lay to the files."""
    if schema is not None and not isinstance(schema, pa.Schema):
        raise TypeError(f"schema is a pyarrow.Schema, not a {type(schema).__name__}")
    if isinstance(partitioning, str) and partitioning not in ("hive", "pyarrow"):
        raise ValueError(
            "partitioning is 'hive', None, a list of names, a pyarrow.dataset.Partitioning or "
            f"'pyarrow', not {partitioning!r}"
        )


def _located(
    source: PathLike | Sequence[PathLike],
    filesystem: Any,
    form: pads.ParquetFileFormat,
    sidecar: PathLike | None,
    seen: dict[str, pafs.FileInfo],
    table_format: TableFormatOption,
) -> tuple[pafs.FileSystem, list[str], str | None, FileCache]:
    """The files that ``source`` stands for, the folder they lie below, and a cache for them.

    A lone remote file is opened while its storage is asked whether it is a file. ``seen`` is told
    what was listed in a folder.
    """
    if not isinstance(source, str | os.PathLike):
        paths = several(source)
        found, files = list_files(paths, filesystem)
        cache = FileCache.of(found, form, places=places_of(found, sidecar))
        opened = cache.as_opened
        if files == paths or files == [resolve(one, filesystem)[1] for one in paths]:  # all named
            listed = Listed(found, files, files)
            files = plain_files(listed, table_format, opened=opened)
        else:
            _, files = visible(paths, filesystem, table_format=table_format, opened=opened)
        return found, files, None, cache
    found, at = resolve(source, filesystem)
    places = places_of(found, sidecar)
    cache = FileCache.of(found, form, places=places)
    look = partial(visible_under, table_format=table_format, opened=cache.as_opened)
    if isinstance(found, pafs.LocalFileSystem):
        return found, look(found, at, None, seen), folder_of(source), cache
    opening = begin(partial(_open_early, cache, at)) if os.path.splitext(at)[1] else None
    listings: dict[str, list[pafs.FileInfo]] = {}
    files = look(found, at, listings, seen)
    places.know(listings)
    if opening is not None:
        result_of(opening)
    return found, files, None if files == [at] else at.rstrip("/"), cache


def _united(
    cache: FileCache,
    files: Sequence[str],
    base: str | None,
    partitioning: Any,
    schema: pa.Schema | None,
) -> pa.Schema:
    """All columns of all files and folders."""
    if schema is not None:
        raise ValueError("union_by_name takes the columns of the files; schema says them")
    folders = stated_folders(partitioning, files, base)
    if folders is None:
        raise ValueError("union_by_name needs a partitioning that says the types of its keys")
    united = united_schema(cache, files)
    keys = [field for field in folders.schema if field.name not in united.names]
    return pa.schema([*united, *keys], united.metadata)


def _open_early(cache: FileCache, path: str) -> None:
    with contextlib.suppress(IntarsiaError):  # what is listed will be opened, and the error told
        cache.as_opened(path)


def _open_listed(
    filesystem: pafs.FileSystem,
    files: Sequence[str],
    base: str | None,
    form: pads.ParquetFileFormat,
    cache: FileCache,
    schema: pa.Schema | None,
    folders: pads.Partitioning,
) -> Dataset:
    """A data set whose files are only opened if ``schema`` is None: then the first one is.

    pyarrow's own discovery asks storage for every file, and twice, and gives keys fewer types.
    """
    if schema is None:
        known = None if cache.catalog is None else cache.catalog.first(files[0])
        first = known or cache.as_opened(files[0])
        schema = first.schema_arrow.with_metadata(first.templates.stored_metadata)
        folders = with_types_of(folders, schema, files, base)
        schema = with_keys(schema, folders)
    else:
        folders = with_types_of(folders, schema, files, base)
    try:
        expressions = folder_expressions(folders, files, base)
        fragments = [
            form.make_fragment(file, filesystem, expression)
            for file, expression in zip(files, expressions, strict=True)
        ]
        made = Dataset(fragments, schema, form, filesystem)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise FormatError(
            f"{base or files[0]}: not a data set pyarrow can read: {error}"
        ) from error
    made.scan_source, made._partitioning = made.scan_source.with_cache(cache), folders
    return made


def _pyarrows(
    filesystem: pafs.FileSystem,
    files: Sequence[str],
    base: str | None,
    partitioning: Any,
    schema: pa.Schema | None,
    form: pads.FileFormat | str,
) -> pads.FileSystemDataset:
    """As ``pyarrow.dataset.dataset``, which takes longer to look for files that were listed."""
    if partitioning == "hive":
        partitioning = pads.partitioning(flavor="hive")
    if not isinstance(partitioning, pads.Partitioning | pads.PartitioningFactory):
        return pads.dataset(
            list(files),
            schema=schema,
            format=form,
            filesystem=filesystem,
            partitioning=partitioning,
            partition_base_dir=base,
        )
    options = pads.FileSystemFactoryOptions(
        partitioning=partitioning, partition_base_dir=base, exclude_invalid_files=False
    )
    form = pads.ParquetFileFormat() if form == "parquet" else form
    factory = pads.FileSystemDatasetFactory(filesystem, list(files), form, options)
    return factory.finish(schema)


def open_dataset(
    filesystem: pafs.FileSystem,
    files: Sequence[str],
    base: str | None,
    partitioning: Any,
    schema: pa.Schema | None = None,
    form: pads.FileFormat | str = "parquet",
) -> Dataset:
    """A data set of ``files``, whose folders below ``base`` are read as ``partitioning`` says."""
    try:
        made = _pyarrows(filesystem, files, base, partitioning, schema, form)
    except (pa.ArrowException, TypeError, OSError) as error:
        OpenedFile(FileSource(filesystem, files[0]), files[0])  # says what is wrong, if it can
        where = base or files[0]
        raise FormatError(f"{where}: not a data set pyarrow can read: {error}") from error
    return Dataset.wrap(made)
