"""``dataset``: finds the files of a data set, their schema and the columns of their folders."""

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
from intarsia.dataset.commit_log import list_visible_under, visible
from intarsia.dataset.dataset import Dataset
from intarsia.dataset.partition_values import folder_expressions
from intarsia.dataset.partitioning import (
    folder_of,
    known_partitioning,
    shares_columns,
    with_keys,
    with_types_of,
)
from intarsia.dataset.schema_unification import unified_schema
from intarsia.decode.page_size_limit import check_page_size_limit
from intarsia.errors import FormatError, IntarsiaError, check_is_list, public
from intarsia.file.corrupt_data import OnCorrupt, check_on_corrupt
from intarsia.file.open_file import OpenedFile
from intarsia.file.read_options import Reader, check_reader
from intarsia.file.sidecar_discovery import places_of
from intarsia.io.storage import FileSource, PathLike, as_list, list_files, resolve
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
    """Opens Parquet files as one data set.

    Parameters
    ----------
    source : path or sequence of paths
        A file, a folder, a glob or a URI, or several of these.
    schema : pyarrow.Schema, optional
        The schema of the data set. By default that of the first file, with the columns of
        ``key=value`` folders. A value that does not fit its type raises an error when it is read.
    union_by_name : bool, default False
        Opens all files and takes the columns of all of them, within lists and structs as well.
        Numbers are as wide, timestamps as fine and decimals as long as in any file. A column that a
        file lacks is NULL.
    filesystem : pyarrow.fs.FileSystem or fsspec.AbstractFileSystem, optional
        Where the files are. By default local disks, or what a URI says.
    partitioning : "hive", "pyarrow", list, pyarrow.dataset.Partitioning or None
        How folders give columns. ``"hive"``, the default, reads ``key=value``. It infers integers,
        dates and timestamps, else strings, as DuckDB does. ``"pyarrow"`` infers 32-bit integers,
        else strings, as pyarrow does. With None folders give no columns. Other values are those of
        ``pyarrow.dataset.dataset``. A key that is also a column of the files has the column's type.
    sidecar : path, optional
        The folder into which ``add_indexes`` put sidecars. By default they are beside the files.
    page_checksum_verification : bool, default False
        Compares each page that is read with its checksum, if it has one.
    read_dictionary : sequence of str
        Columns of strings that are read as Arrow dictionaries.
    cache_options : pyarrow.CacheOptions, optional
        The cost of a request. Two byte ranges share a request if the gap between them has at most
        ``hole_size_limit`` bytes. ``pyarrow.CacheOptions.from_network_metrics`` derives this limit
        from latency and bandwidth.
    distinct_index_column : str, optional
        The column of strings that ``IDX1`` indexes of other writers belong to; such files do not
        name it. ``=`` and ``IN`` on the column skip files whose index lacks the values. An index
        that contradicts statistics, or is not where the footer says, is ignored.
    catalog : bool or "auto", default "auto"
        Whether the catalog of ``build_catalog`` chooses the files to open. ``"auto"`` uses it if it
        exists. With True it has to exist. With False or with ``on_corrupt`` it is not used.
    on_corrupt : "raise" or "skip", optional
        Checks the header of each page that is read, and its checksum, if it has one. ``"raise"``
        raises ``FormatError``, which names the damaged page. ``"skip"`` leaves out the page's rows
        in all columns that are read, and issues ``CorruptDataWarning``. A damaged dictionary costs
        all rows of its row group. ``Dataset.corrupt`` lists the damaged places. A damaged footer
        raises ``FormatError`` either way. By default, as with pyarrow, nothing is checked.
    page_size_limit : int, optional
        The most bytes that a page or a dictionary may have, both decompressed and as values in
        memory. A page of 100 KB can have 2 GiB. A larger page raises ``FormatError`` before it is
        decompressed; with ``on_corrupt="skip"`` it is left out as a damaged one is. By default
        the limit is that of the format, 2 GiB.
    table_format : "auto" or "ignore", default "auto"
        The folder of a Delta, Iceberg or Hudi table, or of a Spark stream, has rows that were
        deleted. ``"auto"`` refuses folders and globs that contain such a folder, or are in one.
        ``"ignore"`` reads all files as plain files, as if the caller gave the path of each. Delete
        files and deletion vectors of Iceberg are left out either way.
    reader : "auto", "pages" or "engine", default "auto"
        Who reads the files for ``intarsia.sql`` and ``intarsia.polars.scan``. ``"pages"`` is our
        own reader, which skips pages. ``"engine"`` is the reader of DuckDB or Polars, if it gives
        the same rows. ``"auto"`` takes the one that is likely to be faster.

    Returns
    -------
    Dataset
        Remote files are opened and read in parallel, by ``pyarrow.io_thread_count`` threads.

    Raises
    ------
    PathError
        If there is no file, or if ``table_format`` refuses a folder.
    FormatError
        If the first file is not Parquet.
    UnsupportedError
        If ``union_by_name`` finds a column whose types do not go together.

    Examples
    --------
    >>> logs = ia.dataset("lake")
    >>> logs.schema.names
    ['trace_id', 'ts', 'status', 'msg', 'service']
    >>> logs.to_table(columns=["trace_id"], filter="service = 'web' AND status = 500").num_rows
    50
    """
    check_on_corrupt(on_corrupt)
    check_page_size_limit(page_size_limit)
    check_table_format(table_format)
    check_reader(reader)
    check_is_list(read_dictionary=read_dictionary)
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
    storage, files, base, cache = _located(source, filesystem, form, sidecar, seen, table_format)
    if union_by_name:
        schema = _united(cache, files, base, partitioning, schema)
    known = cache.catalog = catalog_of(storage, base, cache.options, seen, catalog)
    if known is not None:
        known.opened()
    folders = known_partitioning(partitioning, files, base)
    is_local = known is None and isinstance(storage, pafs.LocalFileSystem)
    if folders is not None and not (is_local and _is_for_pyarrow(folders, cache, files, schema)):
        made = _open_listed(storage, files, base, form, cache, schema, folders)
    else:
        if partitioning in ("hive", "pyarrow") and folders is not None and folders.schema.names:
            partitioning = folders
        made = open_dataset(storage, files, base, partitioning, schema, form)
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
    """Raises ``TypeError`` or ``ValueError`` for arguments for which pyarrow blames the files."""
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
    """Returns the file system, the files of ``source``, the folder they are in, and their cache.

    A single remote file is opened while its folder is listed. All that was listed is added to
    ``seen``.
    """
    if not isinstance(source, str | os.PathLike):
        paths = as_list(source)
        storage, files = list_files(paths, filesystem)
        cache = FileCache.of(storage, form, places=places_of(storage, sidecar))
        opened = cache.as_opened
        if files == paths or files == [resolve(one, filesystem)[1] for one in paths]:  # all named
            listed = Listed(storage, files, files)
            files = plain_files(listed, table_format, opened=opened)
        else:
            _, files = visible(paths, filesystem, table_format=table_format, opened=opened)
        return storage, files, None, cache
    storage, at = resolve(source, filesystem)
    places = places_of(storage, sidecar)
    cache = FileCache.of(storage, form, places=places)
    list_visible = partial(list_visible_under, table_format=table_format, opened=cache.as_opened)
    if isinstance(storage, pafs.LocalFileSystem):
        return storage, list_visible(storage, at, None, seen), folder_of(source), cache
    opening = begin(partial(_open_early, cache, at)) if os.path.splitext(at)[1] else None
    listings: dict[str, list[pafs.FileInfo]] = {}
    files = list_visible(storage, at, listings, seen)
    places.know(listings)
    if opening is not None:
        result_of(opening)
    return storage, files, None if files == [at] else at.rstrip("/"), cache


def _united(
    cache: FileCache,
    files: Sequence[str],
    base: str | None,
    partitioning: Any,
    schema: pa.Schema | None,
) -> pa.Schema:
    """Returns the schema with all columns of all files and folders."""
    if schema is not None:
        raise ValueError("union_by_name takes the columns of the files; schema says them")
    folders = known_partitioning(partitioning, files, base)
    if folders is None:
        raise ValueError("union_by_name needs a partitioning that says the types of its keys")
    united = unified_schema(cache, files)
    keys = [field for field in folders.schema if field.name not in united.names]
    return pa.schema([*united, *keys], united.metadata)


def _open_early(cache: FileCache, path: str) -> None:
    with contextlib.suppress(
        IntarsiaError
    ):  # the file is opened again after it was listed: the error is raised then
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
    """Returns a data set without opening its files. If ``schema`` is None, opens the first one.

    pyarrow's own discovery sends two requests to the storage for every file, and knows fewer types
    of keys.
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
    """Returns what ``pyarrow.dataset.dataset`` does, for files that were listed already."""
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
    """Returns a data set of ``files``.

    ``partitioning`` gives the columns of folders below ``base``.
    """
    try:
        made = _pyarrows(filesystem, files, base, partitioning, schema, form)
    except (pa.ArrowException, TypeError, OSError) as error:
        OpenedFile(
            FileSource(filesystem, files[0]), files[0]
        )  # raises an error that names the damage, if it can
        where = base or files[0]
        raise FormatError(f"{where}: not a data set pyarrow can read: {error}") from error
    return Dataset.wrap(made)
