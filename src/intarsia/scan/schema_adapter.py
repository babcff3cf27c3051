"""Columns of one file as the data set has them: read, cast, filled in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from intarsia.errors import FormatError, Where
from intarsia.expr.casts import is_json
from intarsia.expr.nested_types import has_dictionary, type_at, whole_maps
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import AheadSource, Source
from intarsia.parquet.schema import Leaf, Root
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.column_reader import read_rows
from intarsia.scan.dictionary_codes import (
    NotCodedError,
    are_few,
    coded_leaf,
    coded_type,
    is_coded,
    may_be_coded,
    texts_of,
)
from intarsia.scan.nested_projection import Projection, root_of_type
from intarsia.scan.page_selection import groups_of, ranges_of, select
from intarsia.scan.request import FILENAME, ROW_NUMBER, Request, pruned_schema, without_columns

_LEAST_ROWS = 1024
"""Of fewer, texts are decoded as they are: to make these of codes takes about as long."""


def roots_of(
    file: OpenedFile, columns: Sequence[str], schema: pa.Schema, pruned: Projection | None = None
) -> list[Root]:
    """Those of ``columns`` that the file has, with the leaves that are wanted of them.

    These are all that ``schema``, the data set's, has of them, but for columns that are ``pruned``.
    A group without leaves has no values: pyarrow's data sets have NULLs there, as where there is no
    such column.
    """
    part = pruned or {}
    roots = (file.schema.root(name) for name in columns)
    return [
        part[root.name].root_in(file.schema, root)
        if root.name in part
        else root_of_type(file, root, schema.field(root.name).type)
        for root in roots
        if root is not None and root.all_leaves
    ]


def roots_to_read(file: OpenedFile, request: Request, constants: Constants) -> list[Root]:
    """What a request reads of the file: the leaves of its output, then those of its filter."""
    schema, filter_pruned = request.schema, request.filter.pruned if request.filter else {}
    if not request.pruned and not filter_pruned:
        read = [name for name in request.all_columns if name not in constants]
        return roots_of(file, read, schema)
    output = roots_of(file, request.columns, schema, request.pruned)
    found: dict[str, Root] = {}
    for root in [*output, *roots_of(file, request.filter_columns, schema, filter_pruned)]:
        if root.name not in constants:
            leaves = {*root.leaves, *(found[root.name].leaves if root.name in found else ())}
            found[root.name] = root.pruned(sorted(leaves))
    return list(found.values())


def expect_columns(
    file: OpenedFile, request: Request, rows: RowRanges, source: AheadSource
) -> bool:
    """Have ``source`` fetch all columns at ``rows`` at once, or say that it is not worth it.

    It is where those that the filter does not need, and that may turn out not to be needed at all,
    take no more than a request of their own would cost.
    """
    if not file.request_bytes:
        return False
    later = [name for name in request.columns if name not in request.filter_columns]
    if not later or rows.num_rows > file.request_bytes:
        return False
    ranges = ranges_of(select(file, roots_of(file, later, request.schema, request.pruned), rows))
    if sum(length for _, length in ranges) > file.request_bytes:
        return False
    source.expect(ranges)
    return True


def read_columns(
    file: OpenedFile,
    schema: pa.Schema,
    columns: Sequence[str],
    constants: Constants,
    rows: RowRanges,
    pruned: Projection,
    source: Source | None = None,
) -> pa.Table:
    """``columns`` of ``file`` at ``rows``, in the types of ``schema``, some of them ``pruned``.

    ``source`` is what the file is read through, where that is not its own.
    """
    wanted = [name for name in columns if name not in constants]
    output = pruned_schema(schema, columns, pruned)
    roots = roots_of(file, wanted, schema, pruned)
    groups, are_many = groups_of(file, rows), rows.num_rows >= _LEAST_ROWS
    coded = [
        _coded(file, root, output.field(root.name).type, groups, are_many=are_many)
        for root in roots
    ]
    try:
        found = read_rows(file, coded, rows, source=source)
    except NotCodedError:
        found = read_rows(file, roots, rows, source=source)
    decoded = dict(zip((root.name for root in roots), found, strict=True))
    if ROW_NUMBER in wanted and ROW_NUMBER not in decoded:
        decoded[ROW_NUMBER] = pa.chunked_array([rows.rows()])
    if FILENAME in wanted and FILENAME not in decoded:
        constants = {**constants, FILENAME: pa.scalar(file.name)}
    arrays = [
        _typed(file, field, decoded.get(field.name), constants.get(field.name), rows.num_rows)
        for field in output
    ]
    if not arrays:
        return without_columns(rows.num_rows)
    return pa.Table.from_arrays(arrays, schema=output)


def _coded(
    file: OpenedFile, root: Root, kind: pa.DataType, groups: Sequence[int], *, are_many: bool
) -> Root:
    """A file's root, of which texts are to come as codes that are dictionaries in ``kind``.

    So are others that are few, where rows ``are_many``: they are sooner made texts again than
    pyarrow decodes them. ``groups`` are the row groups that are read.
    """
    if not (pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or coded_type(kind)):
        return root
    stored = file.arrow_type(root)
    paths = list(_coded_in(kind, stored, root.name))
    if not paths and are_many:
        lone = _lone_text(file, root, kind, stored)
        paths = [lone.path] if lone is not None and are_few(file, groups, lone.index) else []
    if not paths:
        return root
    found = [coded_leaf(file.schema, path) for path in paths]
    leaves = [leaf for leaf in found if leaf and may_be_coded(file, groups, leaf.index)]
    are_coded = len(leaves) == len(paths)
    return root.with_codes([leaf.path for leaf in leaves]) if are_coded else root


def _lone_text(file: OpenedFile, root: Root, kind: pa.DataType, stored: pa.DataType) -> Leaf | None:
    """The only leaf that is wanted of a root, if it holds texts, and texts are wanted."""
    if len(root.leaves) != 1:
        return None
    leaf = file.schema.leaves[root.leaves[0]]
    types = (type_at([pa.field(root.name, own)], leaf.path) for own in (kind, stored))
    return leaf if all(own is not None and coded_type(own) is not None for own in types) else None


def _coded_in(kind: pa.DataType, stored: pa.DataType, *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of texts, and of maps with keys, that are dictionaries in ``kind``, by itself or
    within its structs.
    """
    if (is_coded(kind) and coded_type(stored) is not None) or _has_coded_keys(kind, stored):
        yield path
    elif pa.types.is_struct(kind) and pa.types.is_struct(stored):
        types = {field.name: field.type for field in stored}
        for field in kind:
            if field.name in types:
                yield from _coded_in(field.type, types[field.name], *path, field.name)


def _has_coded_keys(kind: pa.DataType, stored: pa.DataType) -> bool:
    are_maps = pa.types.is_map(kind) and pa.types.is_map(stored)
    return are_maps and is_coded(kind.key_type) and coded_type(stored.key_type) is not None


def _typed(
    file: OpenedFile,
    field: pa.Field,
    values: pa.ChunkedArray | None,
    constant: pa.Scalar | None,
    count: int,
) -> pa.ChunkedArray:
    if constant is not None:
        return pa.chunked_array([pa.repeat(constant, count)])
    if values is None:
        return pa.chunked_array([pa.nulls(count, field.type)])
    try:
        return as_type(values, field.type)
    except pa.ArrowException as error:
        where = Where(file.name, column=field.name)
        message = (
            f"{values.type} cannot be read as {field.type}, which the first file has unless "
            f"a schema or union_by_name says otherwise: {error}"
        )
        raise FormatError(message, where) from error


def as_type(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """``values`` cast to a type. Raises ``pa.ArrowException`` where that cannot be done."""
    if values.type == kind:
        return values
    values = whole_maps(values)
    if is_json(kind) and is_json(values.type):  # of which pyarrow casts no form to another
        parts = [part.storage.cast(kind.storage_type) for part in values.chunks]
        return pa.chunked_array([pa.ExtensionArray.from_storage(kind, p) for p in parts], kind)
    if has_dictionary(kind):
        return values.cast(_before_codes(kind, values.type)).cast(kind)
    return texts_of(values, kind) if has_dictionary(values.type) else values.cast(kind)


def _before_codes(kind: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """What to cast to first: of numbers, pyarrow makes no dictionary of texts."""
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(stored):
        return kind.value_type
    if not pa.types.is_struct(kind) or not pa.types.is_struct(stored):
        return kind
    types = {field.name: field.type for field in stored}
    fields = (f.with_type(_before_codes(f.type, types.get(f.name, f.type))) for f in kind)
    return pa.struct(list(fields))
