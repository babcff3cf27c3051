"""Which indexes a file can have, and has already, so that what is done again does only the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.errors import FormatError, IndexSpecError, PathError
from intarsia.file.embedded_indexes import Holder
from intarsia.file.open_file import OpenedFile
from intarsia.index.parquet_indexes import Bloom, PageIndex
from intarsia.index.registry import EmbeddedIndex, IndexSpec, spec_name
from intarsia.index.section.probe import open_section
from intarsia.indexing.build import check_index, check_indexes, on_of
from intarsia.indexing.parquet_index_build import check_standard, groups_of
from intarsia.parquet.schema import Schema
from intarsia.pruning.term import columns_named


@dataclass(frozen=True, slots=True)
class Choice:
    """Which indexes one file is due, and the names of those that it has; why it cannot have others,
    by their names.
    """

    due: tuple[IndexSpec, ...]
    there: tuple[str, ...]
    unfit: Mapping[str, str]
    absent: Mapping[str, Sequence[str]]
    """Of those, the columns that it lacks, by the indexes' names."""

    def without(self, unknown: Iterable[str]) -> Choice:
        """Returns the same, with indexes of kinds that are not known here among the unfit."""
        names = sorted(unknown)
        return Choice(
            self.due,
            self.there,
            {**self.unfit, **dict.fromkeys(names, "its kind is not known here")},
            {**self.absent, **dict.fromkeys(names, ())},
        )

    def reason(self, name: str) -> str:
        """Why the file cannot have the index of a name, in few words."""
        absent = self.absent[name]
        if absent:
            return f"no column {', '.join(f'`{column}`' for column in absent)}"
        return self.unfit[name].removeprefix(f"no index {name}: ")

    @property
    def why(self) -> str | None:
        """What is to be said of those that it is not due."""
        there = [f"it has {', '.join(self.there)} already"] if self.there else []
        return "; ".join([*there, *self.unfit.values()]) or None


def choose(file: OpenedFile, indexes: Sequence[IndexSpec], *, anew: bool, beside: bool) -> Choice:
    """The indexes that a file can have and, unless they are built ``anew``, has not.

    With ``beside``, its sidecar is to have them.
    """
    due: list[IndexSpec] = []
    there: list[str] = []
    unfit: dict[str, str] = {}
    absent: dict[str, Sequence[str]] = {}
    for index in indexes:
        try:
            check_indexes(file, [index])
        except IndexSpecError as error:
            unfit[spec_name(index)] = str(error).removeprefix(f"{file.name}: ")
            absent[spec_name(index)] = _absent(file, index)
            continue
        if not anew and is_present(file, index, beside=beside):
            there.append(spec_name(index))
        else:
            due.append(index)
    return Choice(tuple(due), tuple(there), unfit, absent)


def _absent(file: OpenedFile, index: IndexSpec) -> list[str]:
    """Returns the columns that ``index`` needs and ``file`` lacks."""
    needed = (index.columns or ()) if isinstance(index, PageIndex) else [index.on]
    return [name for on in needed for name in _absent_columns(on, file.schema)]


def _absent_columns(on: str, schema: Schema) -> list[str]:
    """Returns the columns that an index on ``on``, a path or a function, needs and a file lacks."""
    within = f"{on}."
    if any(leaf.name == on or leaf.name.startswith(within) for leaf in schema.leaves):
        return []
    if not any(character in on for character in "()[]+-*"):
        return [on]
    return sorted(name for name in columns_named(on) if schema.root(name) is None)


def is_present(file: OpenedFile, index: IndexSpec, *, beside: bool = False) -> bool:
    """Has ``file`` this very index, with the same parameters, whole, and of what the file is now?

    With ``beside``, one in its sidecar counts as well. Of an embedded index the metadata is read
    and compared with its checksum, not every page. Bloom filters count whatever their size; a page
    index where all columns have what it would give them: where that depends on their values, as on
    whether there is a NaN, it is not there. Raises ``IndexSpecError`` for one that it cannot have.
    """
    if isinstance(index, PageIndex):
        return _has_page_index(file, index)
    if isinstance(index, Bloom):
        (leaf,) = check_standard(file, index)
        return all(
            file.chunk(group, leaf.index).bloom_filter_offset is not None
            for group in groups_of(file)
            if file.num_rows_in(group)
        )
    holders = [file.sections.beside] if beside else []
    if file.directory is not None:
        holders.append(Holder(file.source, file.directory, False))
    return any(_holds(file, holder, index) for holder in holders if holder is not None)


def _has_page_index(file: OpenedFile, index: PageIndex) -> bool:
    bounded = {leaf.index for leaf in check_standard(file, index)}
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


def _holds(file: OpenedFile, holder: Holder, index: EmbeddedIndex) -> bool:
    of = check_index(file, index).term
    wanted = index.kind, index.kind_version, on_of(index, of), of.meaning, _text(index.params)
    for entry in holder.directory.indexes:
        found = entry.kind, entry.kind_version, entry.on, entry.meaning, _text(entry.params)
        if found == wanted:
            place = holder.window(entry), entry.meta_length, entry.meta_crc32
            try:
                open_section(index, *place, holder.directory.file_id, file.num_rows)
            except (FormatError, PathError):
                return False
            return True
    return False


def _text(params: Mapping[str, Any]) -> str:
    return json.dumps(dict(params), sort_keys=True)
