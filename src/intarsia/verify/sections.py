"""Embedded indexes against the values they index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intarsia.errors import FormatError, IndexSpecError, UnsupportedError, Where
from intarsia.index.directory import IndexEntry, read_directory
from intarsia.index.registry import known_version, make
from intarsia.index.section import Section, packed
from intarsia.read.opened import OpenedFile
from intarsia.source import WindowSource
from intarsia.verify.findings import Finding, error, warning
from intarsia.write.build import check_index, entries_of


def check_sections(file: OpenedFile) -> Iterator[Finding]:
    """The directory, its binding to the file, and every section it lists."""
    where = Where(file.name)
    try:
        directory = read_directory(file.metadata, file.source)
    except FormatError as problem:
        yield error(problem.at(where).where, f"embedded indexes are ignored: {problem.message}")
        return
    for entry in directory.indexes if directory else ():
        place = Where(file.name, column=entry.on, offset=entry.offset)
        if known_version(entry.kind) != entry.kind_version:
            yield warning(place, f"index {entry.name}: not checked: its kind is not known here")
            continue
        try:
            assert directory is not None
            yield from _check_section(file, entry, directory.file_id, place)
        except UnsupportedError as problem:
            yield warning(place, f"index {entry.name}: not checked: {problem.message}")
        except FormatError as problem:
            yield error(place, f"index {entry.name}: {problem.message}")
        except IndexSpecError as problem:
            yield error(place, f"index {entry.name}: {problem}")


def _check_section(
    file: OpenedFile, entry: IndexEntry, file_id: str, where: Where
) -> Iterator[Finding]:
    kind = make(entry.kind, entry.on, entry.params)
    leaf = check_index(file, kind)
    window = WindowSource(file.source, entry.offset, entry.length)
    section = Section(window, entry.meta_length, entry.meta_crc32, file_id, file.num_rows)
    held = section.entries()
    due = packed(entries_of(file, leaf, kind, section.granule_starts))
    missing = len(np.setdiff1d(due, held, assume_unique=True))
    if missing:
        yield error(where, f"index {entry.name}: {missing:,} of {len(due):,} entries are missing")
    beyond = len(np.setdiff1d(held, due, assume_unique=True))
    if beyond:
        yield warning(where, f"index {entry.name}: {beyond:,} entries that no value asks for")
