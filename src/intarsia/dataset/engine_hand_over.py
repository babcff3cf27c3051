"""Decides which files an engine's own reader reads: if it gives the same rows, and is as fast.

An engine's reader decodes a page several times as fast as ours, but ours can skip more pages. So an
engine reads the files unless their indexes leave few bytes to read.

::

    footers ──► portable columns? ──no──► our reader
                    │ yes
                    ▼
    indexes ──► many bytes left? ──no──► our reader
                    │ yes
                    ▼
              the engine's reader
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

import intarsia.usage_counts.usage as usage
from intarsia.dataset.partition_values import (
    NULL_FOLDER,
    constants_expression,
    hive_values,
    key_expression,
)
from intarsia.dataset.request_builder import request_of
from intarsia.dataset.scan_source import ScanSource
from intarsia.errors import FormatError
from intarsia.expr.nested_types import holds
from intarsia.file.file_view import OWN_VIEW
from intarsia.file.open_file import OpenedFile, as_current_version
from intarsia.file.portable_columns import has_old_bounds, plain_type, why_not_portable
from intarsia.io.storage import FileReplaced
from intarsia.parquet.schema import Leaf, Root
from intarsia.plan.cost_model import COSTS
from intarsia.plan.plan import ENGINE, ScanPlan
from intarsia.plan.planner import plan_of_all
from intarsia.plan.stored_columns import check_folder
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicates import predicates_of
from intarsia.row_ranges import RowRanges
from intarsia.scan.files.file_pruning import first_of, prune_files
from intarsia.scan.page_selection import groups_of, rows_of, select
from intarsia.scan.request import Request
from intarsia.scan.scan import Part
from intarsia.scan.schema_adapter import roots_to_read

_PLAIN_PATH = re.compile(r"[\w./=+@~,& -]+")
"""Paths that every engine takes as they are, neither as patterns nor as encoded."""
_PLAIN_VALUES = {
    pa.string(): re.compile(r"[A-Za-z0-9_.-]+", re.ASCII),
    pa.int32(): re.compile(r"0|-?[1-9][0-9]{0,8}"),
    pa.int64(): re.compile(r"0|-?[1-9][0-9]{0,17}"),
    pa.float64(): re.compile(r"-?[0-9]{1,15}(\.[0-9]+(E-?[0-9]+)?)?"),
    pa.date32(): re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
}
"""Values of folders that all engines parse alike, by type."""
_WRITER_WITHOUT_NAN_BOUNDS = "DuckDB"
"""The writer that gives no bounds to a chunk with NaN. Others give bounds that leave NaN out."""
_GEOPARQUET_KEY = "geo"
"""Key of the footer entry of GeoParquet, which says that columns of bytes are shapes."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Files that an engine reads, and what it has to know about them.

    ``schema`` has the columns of the query, in the types of the data set. ``rows`` maps the files
    of which only some rows may match to these rows. ``planned`` has these files as they were
    opened. ``folder_keys`` are columns that are only in the names of folders. Statistics of the
    floats ``with_hidden_nan`` may leave out NaN, so they are no bounds of all values. ``reason``
    says why the engine reads the files.
    """

    files: tuple[str, ...]
    schema: pa.Schema
    rows: Mapping[str, RowRanges]
    planned: Mapping[str, OpenedFile]
    folder_keys: tuple[str, ...]
    with_hidden_nan: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an engine does not read the files.

    If that is because our reader reads little, and it was asked for, ``parts`` are the planned
    parts of our reader's scan.
    """

    reason: str
    parts: tuple[Part, ...] = ()


class RefusedError(Exception):
    """The reason why an engine does not read the files, and the ``parts`` of its ``Refusal``."""

    parts: tuple[Part, ...] = ()


class _OpenFile(NamedTuple):
    """A file in which rows may match."""

    path: str
    file: OpenedFile
    constants: Constants
    part: Part


def hand_over(
    source: ScanSource,
    columns: Sequence[str],
    filter_: pc.Expression | None = None,
    limit: int | None = None,
    *,
    expects_nan: bool = False,
    units: Sequence[str] = ("us", "ns"),
    keeps_parts: bool = False,
) -> HandOver | Refusal:
    """Returns how an engine is to read ``columns`` of ``source``, or why it is not to.

    The query needs the rows for which ``filter_`` is TRUE, or any ``limit`` of them. Opens the
    files that may have such rows. ``ReadOptions.reader`` forces the choice, as far as answers stay
    the same. An engine that ``expects_nan`` knows that statistics of floats may leave out NaN.
    ``units`` are those in which the engine keeps timestamps. With ``keeps_parts``, a refusal has
    the planned parts if our reader reads little.
    """
    try:
        return _checked(source, columns, filter_, limit, expects_nan, units, keeps_parts)
    except RefusedError as error:
        return Refusal(str(error), error.parts)
    except FileReplaced as error:
        return Refusal(str(error))


def is_current(source: ScanSource, handed: HandOver) -> bool:
    """True if no file with row ranges was replaced since the hand-over was planned."""
    return all(source.cache.get(path) is file for path, file in handed.planned.items())


def _checked(
    source: ScanSource,
    columns: Sequence[str],
    filter_: pc.Expression | None,
    limit: int | None,
    expects_nan: bool,
    units: Sequence[str],
    keeps_parts: bool,
) -> HandOver:
    reader = source.options.reader
    if reader == "pages":
        raise RefusedError('the option reader="pages" was given')
    _check_source(source)
    schema = pa.schema([source.schema.field(name) for name in columns])
    request = request_of(source.schema, list(columns), filter_)
    files = tuple(_candidates(source, request, limit))
    if not files:
        raise RefusedError("no row is left")
    check_paths([path for path, *_ in files])
    _check_views(files, schema)
    _check_folders(files, source.schema, columns)
    folder_keys = _folder_keys(files, schema)
    in_files = [field for field in schema if field.name not in folder_keys]
    _check_columns(files, in_files, units)
    if reader == "auto" and limit is not None and filter_ is None:
        _check_first_pages(files[0].file, limit)
    plans, reason = _plans_of_part(
        files, request, may_refuse=reader == "auto", keeps_parts=keeps_parts
    )
    paths = tuple(path for path, *_ in files)
    planned = {path: file for path, file, *_ in files if path in plans}
    with_nan = () if expects_nan else _with_hidden_nan(files, in_files)
    reason = reason if reader == "auto" else 'the option reader="engine" was given'
    if source.cache.is_profiled:
        source.cache.requests.append(request)
    for path, file, *_ in files if source.cache.is_profiled else ():
        plan = plans.get(path) or plan_of_all(file)
        file.profile.planned(replace(plan, reader=ENGINE, reason=reason))
    rows = {path: plan.rows for path, plan in plans.items()}
    return HandOver(paths, schema, rows, planned, folder_keys, with_nan, reason)


def _with_hidden_nan(files: Sequence[_OpenFile], fields: Iterable[pa.Field]) -> tuple[str, ...]:
    """Returns the floats among ``fields`` whose statistics may leave out NaN.

    Raises ``RefusedError`` if some are in lists, maps or structs.
    """
    floats = [field for field in fields if holds(field.type, pa.types.is_floating)]
    if all(_gives_nan_no_bounds(one.file) for one in files):
        return ()
    for field in floats:
        if not pa.types.is_floating(field.type):
            raise RefusedError(f"statistics of column {field.name!r} may leave out NaN")
    return tuple(field.name for field in floats)


def _check_columns(
    files: Iterable[_OpenFile], fields: Sequence[pa.Field], units: Sequence[str]
) -> None:
    """Raises ``RefusedError`` unless engines read these columns as we do."""
    names = [field.name for field in fields]
    has_bytes = any(holds(plain_type(field.type), pa.types.is_binary) for field in fields)
    portable: set[int] = set()
    for path, file, *_ in files:
        if has_old_bounds(file, names):
            raise RefusedError(f"{path}: bounds of an old writer")
        if any(_has_bare_index(file, name) for name in names):
            raise RefusedError(f"{path}: a page index of a column without statistics")
        if has_bytes and file.metadata.key_value(_GEOPARQUET_KEY) is not None:
            raise RefusedError(f"{path}: an engine may read bytes as shapes")
        if id(file.schema) in portable:  # files of one writer share it
            continue
        for field in fields:
            if reason := why_not_portable(file, field.name, field.type, units):
                raise RefusedError(f"{path}: {reason}")
        portable.add(id(file.schema))


def _has_bare_index(file: OpenedFile, name: str) -> bool:
    """True if a column has a page index and no statistics.

    Some writers mark all pages of such an index as NULL pages, and DuckDB skips these.
    """
    root = file.schema.root(name)
    for leaf in () if root is None else root.all_leaves:
        for group in range(len(file.metadata.row_groups)):
            chunk = file.column_chunk(group, leaf)
            if chunk.column_index_offset is None:
                break  # writers give all row groups a page index, or none
            if chunk.meta_data is None or not chunk.meta_data.statistics:
                return True
    return False


def _check_views(files: Iterable[_OpenFile], schema: pa.Schema) -> None:
    """Raises ``RefusedError`` if a table says more about a file than engines see in it."""
    for path, file, constants, _ in files:
        view = file.view
        if view is OWN_VIEW:
            continue
        if view.deleted_rows:
            raise RefusedError(f"{path}: its table deletes rows of it")
        if file.file_footer.stored is not None:
            raise RefusedError(f"{path}: its table gives its columns other names")
        if not view.defaults.keys().isdisjoint(schema.names):
            raise RefusedError(f"{path}: its table has defaults for columns")
        folders = hive_values(posixpath.dirname(path))
        for name in constants.keys() & set(schema.names):
            if not _is_value_of(folders.get(name), name, constants[name]):
                raise RefusedError(f"{path}: its folders do not have the value of {name!r}")


def _is_value_of(text: str | None, name: str, value: pa.Scalar) -> bool:
    """True if ``text`` is how the folders of column ``name`` write ``value``."""
    if text is None:
        return False
    try:
        condition = key_expression(name, text, value.type)
    except (pa.ArrowException, ValueError):
        return False
    return condition is not None and condition.equals(constants_expression({name: value}))


def _check_source(source: ScanSource) -> None:
    options = source.options
    if type(source.filesystem) is not pafs.LocalFileSystem:
        raise RefusedError("the files are not on local disks")
    if options.page_checksum_verification or options.page_size_limit is not None:
        raise RefusedError("pages are to be checked")
    if source.filter is not None:
        raise RefusedError("the data set has a filter of its own")
    check_names(source.schema.names)


def check_names(names: Sequence[str]) -> None:
    """Raises ``RefusedError`` if two names differ by case only, or not at all."""
    if len({name.lower() for name in names}) < len(names):
        raise RefusedError("names of columns differ by case only")


def _candidates(source: ScanSource, request: Request, limit: int | None) -> Iterator[_OpenFile]:
    """Yields the files in which rows may match by footer and folder, as many as ``limit`` needs."""
    cache, left = source.cache, limit if request.filter is None else None
    for candidate in prune_files(cache, source.files, request, by_footer=True):
        opened = candidate.part.get()
        file = opened.file if opened.is_current() else cache.get(candidate.file.path)
        yield _OpenFile(candidate.file.path, file, candidate.file.constants, candidate.part)
        if left is not None:
            left -= file.num_rows
            if left <= 0:
                return


def check_paths(paths: Sequence[str]) -> None:
    """Raises ``RefusedError`` if a path is there twice, or may be read as a pattern."""
    if len(set(paths)) < len(paths):
        raise RefusedError("a file is there twice")
    for path in paths:
        if not os.path.isabs(path) or not _PLAIN_PATH.fullmatch(path):
            raise RefusedError(f"{path}: an engine may take the path for a pattern")


def _check_folders(files: Iterable[_OpenFile], schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raises ``RefusedError`` if a file's column may have other values than the file's folder.

    For such a column our reader gives the folder's value, and an engine the file's.
    """
    for path, file, constants, _ in files:
        try:
            check_folder(file, constants, schema)
        except FormatError as error:
            raise RefusedError(f"{path}: a folder has another value than the file") from error
        for name in constants.keys() & set(columns):
            root = file.schema.root(name)
            if root is not None and not _has_one_value(file, root):
                raise RefusedError(f"{path}: column {name!r} may not have the folder's value")


def _has_one_value(file: OpenedFile, root: Root) -> bool:
    """True if each row group has bounds of a column and no NULL; ``check_folder`` compares them."""
    if not file.trusts_bounds or len(root.all_leaves) != 1:
        return False
    bounds = file.row_group_bounds(root.all_leaves.start)
    return bool(np.all(bounds.bounded & (bounds.null_counts == 0)))


def _folder_keys(files: Sequence[_OpenFile], schema: pa.Schema) -> tuple[str, ...]:
    """Returns the columns of ``schema`` that are only in the names of folders.

    Raises ``RefusedError`` unless all engines parse the names of the folders alike.
    """
    known = {name for one in files for name in one.constants}
    stored = {name for name in known if all(one.file.schema.root(name) for one in files)}
    keys = [name for name in schema.names if name in known - stored]
    if not keys:
        return ()
    folders = {posixpath.dirname(one.path) for one in files}
    pairs = [[part.partition("=")[::2] for part in f.split("/") if "=" in part] for f in folders]
    names = [name for name, _ in pairs[0]]
    if any([name for name, _ in folder] != names for folder in pairs) or len({*names}) < len(names):
        raise RefusedError("folders have different keys")
    if not set(schema.names).isdisjoint({*names} - {*keys}) or not set(keys) <= set(names):
        raise RefusedError("columns of files are called as keys of folders")
    if any(one.file.schema.root(name) for name in keys for one in files):
        raise RefusedError("some files have a column that folders have")
    for name, value in {pair for folder in pairs for pair in folder if pair[0] in keys}:
        check_folder_value(name, value, schema.field(name).type)
    return tuple(keys)


def check_folder_value(key: str, value: str, kind: pa.DataType) -> None:
    """Raises ``RefusedError`` unless all engines parse a folder ``key=value`` as ``kind`` alike."""
    plain = _PLAIN_VALUES.get(plain_type(kind))
    if plain is None or not (value == NULL_FOLDER or plain.fullmatch(value)):
        raise RefusedError(f"folder {key}={value}: an engine may read the value otherwise")


def _gives_nan_no_bounds(file: OpenedFile) -> bool:
    return (file.metadata.created_by or "").startswith(_WRITER_WITHOUT_NAN_BOUNDS)


# --- cost ---------------------------------------------------------------------------------------


def _plans_of_part(
    files: Sequence[_OpenFile], request: Request, *, may_refuse: bool, keeps_parts: bool
) -> tuple[dict[str, ScanPlan], str]:
    """Returns the plans of files of which indexes leave a part, and why an engine reads the files.

    Files are left out if their row ranges would not save an engine whole row groups. Raises
    ``RefusedError`` if our reader is faster because it needs far fewer bytes, and it
    ``may_refuse``. With ``keeps_parts``, the error has the planned parts if that reads little.
    """
    if not _may_narrow(files, request):
        return {}, "no index can leave out pages"
    ours = theirs = 0
    left: list[ScanPlan] = []
    for _, file, constants, part in files:
        planned = part.plan(file, request)
        rows = planned.rows
        roots = roots_to_read(file, request, constants)
        tested = [
            leaf for root in roots if root.name in request.filter_columns for leaf in root.leaves
        ]
        # An engine decodes the filter's columns, and of others the pages with matches.
        theirs += _bytes_of(file, rows, tested)
        for read in select(file, roots, rows) if rows else ():
            for _, leaf, selection in read.selections():
                ours += selection.num_bytes
                theirs += 0 if leaf in tested else selection.num_bytes
        left.append(planned)
        if len(left) == COSTS.sample_files < len(files) and ours > COSTS.sample_share * theirs:
            return {}, f"in the first {COSTS.sample_files} files, {_share(ours, theirs)}"
    if may_refuse and COSTS.page_cost * ours < theirs:
        refused = RefusedError(_share(ours, theirs))
        num_rows = sum(plan.rows.num_rows for plan in left)
        if keeps_parts and ours <= COSTS.small_bytes and num_rows <= COSTS.small_rows:
            pairs = zip(files, left, strict=True)
            refused.parts = tuple(_planned_part(*pair, request) for pair in pairs)
        raise refused
    narrowed = {}
    for (path, file, *_), planned in zip(files, left, strict=True):
        (_, by_footer), rows = planned.steps[0], planned.rows
        groups = groups_of(file, rows)
        if len(groups) <= COSTS.group_share * len(groups_of(file, by_footer)):
            usage.count(request.filter, request.all_columns, file, planned.steps)
            rows = rows if len(rows) <= COSTS.row_ranges else rows_of(file, groups)
            narrowed[path] = replace(planned, rows=rows)
    return narrowed if len(narrowed) <= COSTS.files_of_ranges else {}, _share(ours, theirs)


def _planned_part(one: _OpenFile, plan: ScanPlan, request: Request) -> Part:
    """Returns the part of a scan by our reader that follows ``plan``."""
    usage.count(request.filter, request.all_columns, one.file, plan.steps)
    opened = as_current_version(one.file)
    return replace(one.part, get=first_of(opened, one.part.get), planned=plan)


def _share(ours: int, theirs: int) -> str:
    share = f"{ours / theirs:.1%}" if theirs else "none"
    return f"pages that can match have {share} of the bytes an engine decodes"


def _bytes_of(file: OpenedFile, rows: RowRanges, leaves: Sequence[int]) -> int:
    """Returns the compressed bytes of ``leaves`` in the row groups with any of ``rows``."""
    chunks = (chunk for group in groups_of(file, rows) for chunk in file.outlines(group, leaves))
    return sum(chunk.total_compressed_size for chunk in chunks)


def _check_first_pages(file: OpenedFile, limit: int) -> None:
    """Raises ``RefusedError`` if our reader finds ``limit`` rows in a row group's first pages."""
    is_known = any(_is_page_indexed(file, leaf) for leaf in file.schema.leaves[:1])
    if is_known and limit < file.num_rows_in(0):
        raise RefusedError("the first rows are in the first pages")


def _may_narrow(files: Sequence[_OpenFile], request: Request) -> bool:
    """True if an index of a file may leave part of a row group."""
    tests = predicates_of(request.pruning)
    return any(one.part.known(one.file, request)[0].has_indexes(tests) for one in files)


def has_page_index(source: ScanSource, column: str) -> bool:
    """True if the first file of ``source`` has a page index of a column that is not nested."""
    if not source.files:
        return False
    file = source.cache.as_opened(source.files[0].path)
    leaf = file.schema.leaf((column,))
    return leaf is not None and _is_page_indexed(file, leaf)


def _is_page_indexed(file: OpenedFile, leaf: Leaf) -> bool:
    groups = len(file.metadata.row_groups)
    return groups > 0 and file.column_chunk(0, leaf.index).column_index_offset is not None
