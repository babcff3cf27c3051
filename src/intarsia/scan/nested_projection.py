"""Nested projection: reads some leaves of a column instead of all.

A column is pruned by paths: those that a filter or a computed column needs, or dotted names of the
caller. In each file the paths select the file's own leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from intarsia.decode.splice import decode_root
from intarsia.errors import FormatError, PredicateError, Where, unknown_column
from intarsia.expr.nested_types import Path
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.schema import Root, Schema


@dataclass(frozen=True, slots=True)
class PrunedColumn:
    """A column of which only the leaves under ``paths`` are read, and its type after that."""

    paths: tuple[Path, ...]
    type: pa.DataType

    def root_in(self, schema: Schema, root: Root) -> Root:
        """Returns a file's ``root`` with the leaves under ``paths``.

        If the file lacks a path, another leaf is read to know which rows have the parent struct.
        """

        def under(path: Path) -> list[int]:
            root_leaves = root.all_leaves
            return [leaf for leaf in root_leaves if schema.leaves[leaf].path[: len(path)] == path]

        leaves_by_path = {path: under(path) for path in self.paths}
        leaves = set(itertools.chain.from_iterable(leaves_by_path.values()))
        for missing in (path for path, matches in leaves_by_path.items() if not matches):
            parent = missing[:-1]
            while not (matches := under(parent)):
                parent = parent[:-1]
            if leaves.isdisjoint(matches):
                fields = [leaf for leaf in matches if schema.leaves[leaf].path[:-1] == parent]
                leaves.update(fields[:1] or matches)
        return root.pruned(sorted(leaves))


Projection = Mapping[str, PrunedColumn]
"""Pruned columns by name. All other columns are read whole."""


def root_of_type(file: OpenedFile, root: Root, kind: pa.DataType) -> Root:
    """Returns a file's ``root`` with the leaves that a column of type ``kind`` is read from.

    Only fields of structs that ``kind`` has are read.
    """
    if not isinstance(kind, pa.StructType) or file.arrow_type(root) == kind:
        return root
    return PrunedColumn(tuple(_paths_in(kind, (root.name,))), kind).root_in(file.schema, root)


def pruned_to_fields(schema: pa.Schema, paths: Iterable[Path]) -> dict[str, PrunedColumn]:
    """Returns the columns of ``schema`` that an expression on the fields at ``paths`` can prune.

    The expression has the same result on pruned columns as on whole ones.
    """
    by_column: dict[str, list[Path]] = {}
    for path in sorted(paths):
        by_column.setdefault(path[0], []).append(path)
    pruned = {}
    for name, own_paths in by_column.items():
        kind = schema.field(name).type
        pruned_type = _pruned_type(kind, [path[1:] for path in own_paths])
        if pruned_type != kind:
            pruned[name] = PrunedColumn(tuple(own_paths), pruned_type)
    return pruned


def check_paths(schema: pa.Schema, paths: Iterable[Path]) -> None:
    """Raises ``PredicateError`` for a path to a column or struct field that does not exist."""
    for path in paths:
        fields: Iterable[pa.Field] = schema
        for depth, name in enumerate(path):
            types = {field.name: field.type for field in fields}
            if name not in types:
                first, *rest = name.split(".")
                if len(path) == 1 and rest and first in types:  # a dotted name as in SQL
                    quoted = ", ".join(map(repr, (first, *rest)))
                    hint = f"; write pc.field({quoted}) for a struct's field, or {name} in SQL"
                    raise PredicateError(f"column {name!r} is not there{hint}")
                siblings = [".".join((*path[:depth], other)) for other in types]
                raise unknown_column(".".join(path), siblings)
            if not pa.types.is_struct(types[name]):
                break
            fields = types[name]


def named(file: OpenedFile, columns: Sequence[str]) -> tuple[tuple[str, ...], Projection]:
    """Returns the top-level columns that ``columns`` name, in order, and the pruned ones.

    A name is a column's name, or else a dotted path of the Parquet schema. A path selects every
    leaf under it, as in ``pyarrow.parquet.ParquetFile.read``. Raises ``PredicateError`` for any
    other name, ``UnsupportedError`` if an extension type needs all of its leaves.
    """
    whole = set(file.schema_arrow.names)
    paths: dict[str, list[Path]] = {}
    for name in columns:
        under = [] if name in whole else _leaves_under(file.schema, name)
        if name not in whole and not under:
            raise unknown_column(name, file.schema_arrow.names)
        for path in under:
            paths.setdefault(path[0], []).append(path)
        if name in whole:
            paths.setdefault(name, []).append((name,))
    return tuple(paths), {
        name: pruned
        for name, column_paths in paths.items()
        if (pruned := _pruned_column(file, name, column_paths)) is not None
    }


def _leaves_under(schema: Schema, name: str) -> list[Path]:
    """Returns the paths that equal or start with ``name``. Names in a path may contain dots."""
    return [
        leaf.path
        for leaf in schema.leaves
        if any(".".join(leaf.path[:depth]) == name for depth in range(1, len(leaf.path) + 1))
    ]


def _pruned_column(file: OpenedFile, name: str, paths: Sequence[Path]) -> PrunedColumn | None:
    """Returns the pruned column; None if ``paths`` cover all of its leaves."""
    root = file.schema.root(name)
    assert root is not None
    kind = file.arrow_type(root)
    pruned = PrunedColumn(tuple(paths), kind).root_in(file.schema, root)
    if len(pruned.leaves) == len(root.all_leaves):
        return None
    try:
        pruned_type = decode_root(file.templates.logical(pruned), []).type
    except FormatError as error:
        raise error.at(Where(file.name, column=name)) from error
    return PrunedColumn(tuple(paths), pruned_type)


def _paths_in(kind: pa.DataType, path: Path) -> Iterator[Path]:
    """Yields the paths of all fields that are not structs, in structs within structs."""
    if not pa.types.is_struct(kind) or not kind.num_fields:
        yield path
        return
    for field in kind:
        yield from _paths_in(field.type, (*path, field.name))


def _pruned_type(kind: pa.DataType, paths: Sequence[Path]) -> pa.DataType:
    """Returns a struct type with only the fields on ``paths``; other types stay as they are."""
    if not pa.types.is_struct(kind) or not all(paths):
        return kind
    fields = []
    for field in kind:
        under = [path[1:] for path in paths if path[0] == field.name]
        if under:
            fields.append(field.with_type(_pruned_type(field.type, under)))
    return pa.struct(fields) if fields else kind
