"""Nested projection: some leaves of a column instead of all.

A column is pruned by paths of the names below it: those a filter or a computed column needs, or
those a caller names with dots. Each file finds its own leaves by them.
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
    """What is wanted of a column: what is under ``paths``, and the type that is left of it."""

    paths: tuple[Path, ...]
    type: pa.DataType

    def root_in(self, schema: Schema, root: Root) -> Root:
        """The wanted leaves of a file's ``root``.

        Where it lacks what a path names, another leaf tells which rows have the struct around it.
        """

        def under(path: Path) -> list[int]:
            of_root = root.all_leaves
            return [leaf for leaf in of_root if schema.leaves[leaf].path[: len(path)] == path]

        found = {path: under(path) for path in self.paths}
        leaves = set(itertools.chain.from_iterable(found.values()))
        for lacking in (path for path, own in found.items() if not own):
            around = lacking[:-1]
            while not (own := under(around)):
                around = around[:-1]
            if leaves.isdisjoint(own):
                fields = [leaf for leaf in own if schema.leaves[leaf].path[:-1] == around]
                leaves.update(fields[:1] or own)
        return root.pruned(sorted(leaves))


Projection = Mapping[str, PrunedColumn]
"""Columns that are wanted in part, by name; any other is wanted whole."""


def root_of_type(file: OpenedFile, root: Root, kind: pa.DataType) -> Root:
    """The leaves of a file's ``root`` that a column of type ``kind`` is read from.

    Of structs, these are the fields that ``kind`` has.
    """
    if not pa.types.is_struct(kind) or file.arrow_type(root) == kind:
        return root
    return PrunedColumn(tuple(_paths_in(kind, (root.name,))), kind).root_in(file.schema, root)


def pruned_to_fields(schema: pa.Schema, paths: Iterable[Path]) -> dict[str, PrunedColumn]:
    """Which columns of ``schema`` an expression over the fields at ``paths`` needs in part only.

    The expression evaluates on the pruned columns as it does on whole ones.
    """
    by_column: dict[str, list[Path]] = {}
    for path in sorted(paths):
        by_column.setdefault(path[0], []).append(path)
    found = {}
    for name, own in by_column.items():
        kind = schema.field(name).type
        left = _pruned_type(kind, [path[1:] for path in own])
        if left != kind:
            found[name] = PrunedColumn(tuple(own), left)
    return found


def check_paths(schema: pa.Schema, paths: Iterable[Path]) -> None:
    """Raise ``PredicateError`` for a path to a column, or field of a struct, that is not there."""
    for path in paths:
        fields: Iterable[pa.Field] = schema
        for depth, name in enumerate(path):
            known = {field.name: field.type for field in fields}
            if name not in known:
                first, *rest = name.split(".")
                if len(path) == 1 and rest and first in known:  # as if it were SQL
                    shown = ", ".join(map(repr, (first, *rest)))
                    hint = f"; pc.field({shown}) is a struct's field, as is {name} in SQL"
                    raise PredicateError(f"column {name!r} is not there{hint}")
                within = [".".join((*path[:depth], other)) for other in known]
                raise unknown_column(".".join(path), within)
            if not pa.types.is_struct(known[name]):
                break
            fields = known[name]


def named(file: OpenedFile, columns: Sequence[str]) -> tuple[tuple[str, ...], Projection]:
    """Top-level columns, in the order first named, and what is wanted of them.

    A name is a column's, else a dotted path of the Parquet schema that stands for every leaf under
    it, as for ``pyarrow.parquet.ParquetFile.read``. Raises ``PredicateError`` for one that is
    neither, ``UnsupportedError`` for some leaves of an extension that needs all.
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
        for name, own in paths.items()
        if (pruned := _pruned_column(file, name, own)) is not None
    }


def _leaves_under(schema: Schema, name: str) -> list[Path]:
    """Paths of which ``name`` is the start, or all; a name within a path may hold dots itself."""
    return [
        leaf.path
        for leaf in schema.leaves
        if any(".".join(leaf.path[:depth]) == name for depth in range(1, len(leaf.path) + 1))
    ]


def _pruned_column(file: OpenedFile, name: str, paths: Sequence[Path]) -> PrunedColumn | None:
    """None where all of the column is wanted."""
    root = file.schema.root(name)
    assert root is not None
    kind = file.arrow_type(root)
    pruned = PrunedColumn(tuple(paths), kind).root_in(file.schema, root)
    if len(pruned.leaves) == len(root.all_leaves):
        return None
    try:
        left = decode_root(file.templates.logical(pruned), []).type
    except FormatError as error:
        raise error.at(Where(file.name, column=name)) from error
    return PrunedColumn(tuple(paths), left)


def _paths_in(kind: pa.DataType, path: Path) -> Iterator[Path]:
    """Paths of all that structs within structs are made of."""
    if not pa.types.is_struct(kind) or not kind.num_fields:
        yield path
        return
    for field in kind:
        yield from _paths_in(field.type, (*path, field.name))


def _pruned_type(kind: pa.DataType, paths: Sequence[Path]) -> pa.DataType:
    """Structs with just the fields on ``paths``; whatever else is met stays whole."""
    if not pa.types.is_struct(kind) or not all(paths):
        return kind
    fields = []
    for field in kind:
        under = [path[1:] for path in paths if path[0] == field.name]
        if under:
            fields.append(field.with_type(_pruned_type(field.type, under)))
    return pa.struct(fields) if fields else kind
