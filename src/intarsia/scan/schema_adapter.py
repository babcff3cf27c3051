"""Adapts the columns of one file to the data set's schema: reads, casts and fills them in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from intarsia.errors import FormatError, Where
from intarsia.expr.casts import is_json
from intarsia.expr.nested_types import has_dictionary, type_within, whole_maps
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import PrefetchSource, Source
from intarsia.parquet.schema import Leaf, Root
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.column_reader import read_rows
from intarsia.scan.dictionary_codes import (
    NotDictionaryEncodedError,
    cast_to_strings,
    dictionary_type,
    has_few_entries,
    is_string_dictionary,
    may_be_dictionary_encoded,
    string_leaf,
)
from intarsia.scan.nested_projection import Projection, root_of_type
from intarsia.scan.page_selection import groups_of, ranges_of, select
from intarsia.scan.request import FILENAME, ROW_NUMBER, Request, pruned_schema, without_columns

_MIN_DICTIONARY_ROWS = 1024
"""Below this row count strings are decoded directly; decoding by dictionary saves no time."""


def roots_of(
    file: OpenedFile, columns: Sequence[str], schema: pa.Schema, pruned: Projection | None = None
) -> list[Root]:
    """Returns the ``columns`` that the file has, each with the leaves to read.

    These are the leaves that ``schema``, the data set's, has, or those of ``pruned``. A group
    without leaves counts as missing and is read as NULLs, as in pyarrow's data sets.
    """
    pruned_columns = pruned or {}
    roots = map(file.schema.root, columns)
    return [
        pruned_columns[root.name].root_in(file.schema, root)
        if root.name in pruned_columns
        else root_of_type(file, root, schema.field(root.name).type)
        for root in roots
        if root is not None and root.all_leaves
    ]


def roots_to_read(file: OpenedFile, request: Request, constants: Constants) -> list[Root]:
    """Returns the columns that a request reads of the file, with the leaves of each.

    Columns of the output come first, then those of the filter.
    """
    schema, filter_pruned = request.schema, request.filter.pruned if request.filter else {}
    if not request.pruned and not filter_pruned:
        read = [name for name in request.all_columns if name not in constants]
        return roots_of(file, read, schema)
    output = roots_of(file, request.columns, schema, request.pruned)
    roots: dict[str, Root] = {}
    for root in [*output, *roots_of(file, request.filter_columns, schema, filter_pruned)]:
        if root.name not in constants:
            leaves = {*root.leaves, *(roots[root.name].leaves if root.name in roots else ())}
            roots[root.name] = root.pruned(sorted(leaves))
    return list(roots.values())


def expect_columns(
    file: OpenedFile, request: Request, rows: RowRanges, source: PrefetchSource
) -> bool:
    """Lets ``source`` fetch all columns at ``rows`` together, if that pays. True if it does.

    It pays if the columns that the filter does not need have fewer bytes than one more request
    costs.
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
    """Reads ``columns`` of ``file`` at ``rows`` in the types of ``schema``, some ``pruned``.

    ``source`` replaces the file's own source.
    """
    stored_names = [name for name in columns if name not in constants]
    output = pruned_schema(schema, columns, pruned)
    roots = roots_of(file, stored_names, schema, pruned)
    groups, are_many = groups_of(file, rows), rows.num_rows >= _MIN_DICTIONARY_ROWS
    roots_to_decode = [
        _as_dictionaries(file, root, output.field(root.name).type, groups, are_many=are_many)
        for root in roots
    ]
    try:
        arrays_read = read_rows(file, roots_to_decode, rows, source=source)
    except NotDictionaryEncodedError:
        arrays_read = read_rows(file, roots, rows, source=source)
    decoded = dict(zip([root.name for root in roots], arrays_read, strict=True))
    num_rows = rows.num_rows
    if ROW_NUMBER in stored_names and ROW_NUMBER not in decoded:
        decoded[ROW_NUMBER] = pa.chunked_array([rows.rows()])
    if FILENAME in stored_names and FILENAME not in decoded:
        constants = {**constants, FILENAME: pa.scalar(file.name)}
    arrays = [
        _adapt(file, field, decoded.get(field.name), constants.get(field.name), num_rows)
        for field in output
    ]
    if not arrays:
        return without_columns(num_rows)
    return pa.Table.from_arrays(arrays, schema=output)


def _as_dictionaries(
    file: OpenedFile, root: Root, kind: pa.DataType, groups: Sequence[int], *, are_many: bool
) -> Root:
    """Returns a file's root, with the strings marked that are decoded as dictionary indices.

    These are the strings that are dictionaries in ``kind``. If rows ``are_many``, a single leaf
    with few distinct strings is marked as well: casting it back is faster than decoding strings.
    ``groups`` are the row groups that are read.
    """
    may_be_marked = kind.num_fields > 0 or isinstance(kind, pa.DictionaryType)
    if not may_be_marked and not (are_many and dictionary_type(kind)):
        return root
    stored = file.arrow_type(root)
    paths = list(_dictionary_paths_in(kind, stored, root.name))
    if not paths and are_many:
        single = _single_string_leaf(file, root, kind, stored)
        paths = (
            [single.path]
            if single is not None and has_few_entries(file, groups, single.index)
            else []
        )
    if not paths:
        return root
    leaf_of_path = [string_leaf(file.schema, path) for path in paths]
    leaves = [
        leaf
        for leaf in leaf_of_path
        if leaf and may_be_dictionary_encoded(file, groups, leaf.index)
    ]
    all_are_encoded = len(leaves) == len(paths)
    return root.with_dictionary_columns([leaf.path for leaf in leaves]) if all_are_encoded else root


def _single_string_leaf(
    file: OpenedFile, root: Root, kind: pa.DataType, stored: pa.DataType
) -> Leaf | None:
    """Returns the only leaf that is read of a root, if both types have strings there."""
    if len(root.leaves) != 1:
        return None
    leaf = file.schema.leaves[root.leaves[0]]
    for own in (kind, stored):
        leaf_type = type_within(own, leaf.path[1:])
        if leaf_type is None or dictionary_type(leaf_type) is None:
            return None
    return leaf


def _dictionary_paths_in(
    kind: pa.DataType, stored: pa.DataType, *path: str
) -> Iterator[tuple[str, ...]]:
    """Yields the paths of strings, and of maps with keys, that are dictionaries in ``kind``.

    Fields of structs are included.
    """
    if (is_string_dictionary(kind) and dictionary_type(stored) is not None) or _has_dictionary_keys(
        kind, stored
    ):
        yield path
    elif pa.types.is_struct(kind) and pa.types.is_struct(stored):
        types = {field.name: field.type for field in stored}
        for field in kind:
            if field.name in types:
                yield from _dictionary_paths_in(field.type, types[field.name], *path, field.name)


def _has_dictionary_keys(kind: pa.DataType, stored: pa.DataType) -> bool:
    are_maps = pa.types.is_map(kind) and pa.types.is_map(stored)
    return (
        are_maps
        and is_string_dictionary(kind.key_type)
        and dictionary_type(stored.key_type) is not None
    )


def _adapt(
    file: OpenedFile,
    field: pa.Field,
    values: pa.ChunkedArray | None,
    constant: pa.Scalar | None,
    count: int,
) -> pa.ChunkedArray:
    if constant is not None:
        return pa.chunked_array([pa.repeat(constant, count)])
    if values is None:
        value = file.missing_value(field)
        missing = pa.repeat(value, count) if value.is_valid else pa.nulls(count, field.type)
        return pa.chunked_array([missing])
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
    """Casts ``values`` to a type. Raises ``pa.ArrowException`` if that is impossible."""
    if values.type == kind:
        return values
    values = whole_maps(values)
    if is_json(kind) and is_json(values.type):  # pyarrow has no cast between JSON types
        parts = [part.storage.cast(kind.storage_type) for part in values.chunks]
        return pa.chunked_array([pa.ExtensionArray.from_storage(kind, p) for p in parts], kind)
    if has_dictionary(kind):
        return values.cast(_type_before_dictionary(kind, values.type)).cast(kind)
    return cast_to_strings(values, kind) if has_dictionary(values.type) else values.cast(kind)


def _type_before_dictionary(kind: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """Returns the type for a first cast: pyarrow cannot cast numbers to dictionaries directly."""
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(stored):
        return kind.value_type
    if not pa.types.is_struct(kind) or not pa.types.is_struct(stored):
        return kind
    types = {field.name: field.type for field in stored}
    fields = (f.with_type(_type_before_dictionary(f.type, types.get(f.name, f.type))) for f in kind)
    return pa.struct(list(fields))
