"""Finds out which indexes a file can have, and which it already has."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.errors import FormatError, IndexSpecError, PathError
from intarsia.file.embedded_indexes import IndexFile
from intarsia.file.open_file import OpenedFile
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.directory import page_index_places
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import EmbeddedIndex, IndexSpec, spec_name
from intarsia.index.section.probe import open_section
from intarsia.indexing.build import check_index, check_indexes, indexed_expression
from intarsia.indexing.parquet_index_build import check_parquet_index, groups_of
from intarsia.parquet.schema import Schema
from intarsia.pruning.term import columns_named


@dataclass(frozen=True, slots=True)
class Choice:
    """The indexes that one file is to be given, and those that it has or cannot have.

    ``due`` are the indexes to build, ``present`` the names of those that the file has. ``unfit``
    maps the names of those that it cannot have to the reason.
    """

    due: tuple[IndexSpec, ...]
    present: tuple[str, ...]
    unfit: Mapping[str, str]
    absent: Mapping[str, Sequence[str]]
    """The columns that the file lacks, and no table or folder has, by names of unfit indexes."""
    extra: tuple[PageIndex, ...] = ()
    """The page index, if the file gets one along with the indexes that are due."""
    extra_problem: str | None = None
    """Why the page index could not be built, if the file was to get one along."""

    @property
    def all_due(self) -> tuple[IndexSpec, ...]:
        """The indexes to build, ``extra`` included."""
        return (*self.due, *self.extra)

    def without_extra(self, reason: str) -> Choice:
        """Returns the same choice, without the page index that cannot be built for ``reason``."""
        problem = f"it gets no page index: {reason}"
        return dataclasses.replace(self, extra=(), extra_problem=problem)

    def without(self, unknown: Iterable[str]) -> Choice:
        """Returns the same choice, with indexes of unregistered kinds among the unfit."""
        names = sorted(unknown)
        return Choice(
            self.due,
            self.present,
            {**self.unfit, **dict.fromkeys(names, "its kind is not known here")},
            {**self.absent, **dict.fromkeys(names, ())},
        )

    def reason(self, name: str) -> str:
        """Returns in few words why the file cannot have the index of a name."""
        absent = self.absent[name]
        if absent:
            return f"no column {', '.join(f'`{column}`' for column in absent)}"
        return self.unfit[name].removeprefix(f"no index {name}: ")

    @property
    def why(self) -> str | None:
        """A message about the indexes that are not built. None if all are."""
        messages = [f"it has {', '.join(self.present)} already"] if self.present else []
        messages += filter(None, [*self.unfit.values(), self.extra_problem])
        return "; ".join(messages) or None


def choose(
    file: OpenedFile, indexes: Sequence[IndexSpec], *, anew: bool, in_sidecar: bool
) -> Choice:
    """Returns which indexes a file is to be given: those that it has only with ``anew``."""
    due: list[IndexSpec] = []
    present: list[str] = []
    unfit: dict[str, str] = {}
    absent: dict[str, Sequence[str]] = {}
    for index in indexes:
        try:
            check_indexes(file, [index])
        except IndexSpecError as error:
            name, columns = spec_name(index), _absent(file, index)
            unfit[name] = str(error).removeprefix(f"{file.name}: ")
            if columns and all(_is_constant(file, column) for column in columns):
                reason = f"{', '.join(map(repr, columns))} has one value in each file"
                unfit[name] = f"no index {name}: {reason}, and needs no index"
                columns = []
            absent[name] = columns
            continue
        if not anew and is_present(file, index, in_sidecar=in_sidecar):
            present.append(spec_name(index))
        else:
            due.append(index)
    return Choice(tuple(due), tuple(present), unfit, absent)


MAX_CHUNKS = 10_000
"""Column chunks of a file that gets the page index without being asked: 0.5 ms each."""


def due_in(
    file: OpenedFile,
    indexes: Sequence[IndexSpec],
    places: Sidecars | None,
    *,
    replace: bool,
    page_index: bool,
) -> Choice:
    """Returns which indexes ``add_indexes`` gives a file, or its sidecar given ``places``.

    With ``page_index``, a file without a page index also gets one, if it has or gets an index that
    finds rows: pages are read for these. A file of more than ``MAX_CHUNKS`` column chunks does not.
    """
    choice = choose(file, indexes, anew=replace, in_sidecar=places is not None)
    kinds = {name.rpartition(":")[2] for name in (*map(spec_name, choice.due), *choice.present)}
    num_chunks = len(file.schema.leaves) * len(file.metadata.row_groups)
    has_use = kinds - {Bloom.kind} and PageIndex.kind not in kinds and file.num_rows
    page_index = page_index and places is None and num_chunks <= MAX_CHUNKS
    if page_index and has_use and not page_index_places(file.metadata):
        return dataclasses.replace(choice, extra=(PageIndex(),))
    return choice


def _is_constant(file: OpenedFile, column: str) -> bool:
    """True if a column that the file lacks has one value in it, by its table or its folders."""
    return column in file.view.constants or f"/{column}=" in file.name


def _absent(file: OpenedFile, index: IndexSpec) -> list[str]:
    """Returns the columns that ``index`` needs and ``file`` lacks."""
    needed = (index.columns or ()) if isinstance(index, PageIndex) else [index.on]
    return [name for expression in needed for name in _absent_columns(expression, file.schema)]


def _absent_columns(expression: str, schema: Schema) -> list[str]:
    """Returns the columns that an index needs and a file lacks, given its path or function."""
    within = f"{expression}."
    if any(leaf.name == expression or leaf.name.startswith(within) for leaf in schema.leaves):
        return []
    if not any(character in expression for character in "()[]+-*"):
        return [expression]
    return sorted(name for name in columns_named(expression) if schema.root(name) is None)


def is_present(file: OpenedFile, index: IndexSpec, *, in_sidecar: bool = False) -> bool:
    """True if ``file`` has this index with the same parameters, whole and not stale.

    With ``in_sidecar``, an index in its sidecar counts as well. The metadata of an embedded index
    is compared with its checksum; its pages are not read. Bloom filters count with any size. Page
    indexes count if all columns have what ``index`` would add. They do not count if that depends on
    values, as with NaN. Raises ``IndexSpecError`` if the file cannot have the index.
    """
    if isinstance(index, PageIndex):
        return _has_page_index(file, index)
    if isinstance(index, Bloom):
        (leaf,) = check_parquet_index(file, index)
        return all(
            file.chunk(group, leaf.index).bloom_filter_offset is not None
            for group in groups_of(file)
            if file.num_rows_in(group)
        )
    index_files = [file.sections.sidecar] if in_sidecar else []
    if file.directory is not None:
        index_files.append(IndexFile(file.source, file.directory, False))
    return any(
        _holds(file, index_file, index) for index_file in index_files if index_file is not None
    )


def _has_page_index(file: OpenedFile, index: PageIndex) -> bool:
    bounded = {leaf.index for leaf in check_parquet_index(file, index)}
    chunks = [
        (group, leaf.index)
        for group in groups_of(file)
        if file.num_rows_in(group)
        for leaf in file.schema.leaves
    ]
    return all(
        file.column_chunk(*id_).offset_index_offset is not None
        and (id_[1] not in bounded or file.column_chunk(*id_).column_index_offset is not None)
        for id_ in chunks
    )


def _holds(file: OpenedFile, index_file: IndexFile, index: EmbeddedIndex) -> bool:
    term = check_index(file, index).term
    index_key = (
        index.kind,
        index.kind_version,
        indexed_expression(index, term),
        term.meaning,
        _text(index.params),
    )
    for entry in index_file.directory.indexes:
        entry_key = entry.kind, entry.kind_version, entry.on, entry.meaning, _text(entry.params)
        if entry_key == index_key:
            place = index_file.window(entry), entry.meta_length, entry.meta_crc32
            try:
                open_section(index, *place, index_file.directory.file_id, file.num_rows)
            except (FormatError, PathError):
                return False
            return True
    return False


def _text(params: Mapping[str, Any]) -> str:
    return json.dumps(dict(params), sort_keys=True)
