"""The indexes of an opened file and of its sidecar, opened when they are first needed.

An index that is damaged or contradicts the file is ignored, and a warning is issued.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from intarsia.errors import FormatError, IndexSpecError, OutOfMemoryError, PathError, quiet
from intarsia.expr.comparison_operators import Op
from intarsia.file.column_chunks import ColumnChunks
from intarsia.file.file_footer import FileFooter
from intarsia.file.file_warnings import FileWarnings
from intarsia.file.health import Health
from intarsia.file.idx1_lookup import entry_of, find_list, problem_of
from intarsia.file.index_subjects import renamed_subject, subject_of
from intarsia.file.sidecar_discovery import SidecarFinder, SidecarOption
from intarsia.index.base import Inverted, Subject
from intarsia.index.directory import Directory, IndexEntry, StaleError, read_directory
from intarsia.index.kinds.distinct_idx1 import KEY, DistinctIDX1, IDX1Section, ListedValues
from intarsia.index.registry import EmbeddedIndex, known_kind, known_version, make
from intarsia.index.section.probe import InvertedSection, SummarySection, open_section
from intarsia.io.source import Source, WindowSource
from intarsia.io.storage import FileReplaced
from intarsia.process_state import cached_property
from intarsia.pruning.predicates import How, Predicate, SearchPredicate
from intarsia.pruning.term import Term
from intarsia.row_ranges import RowRanges

_MIN_PROBE_BYTES = 16 * 1024
"""A probe may always read this many bytes: one small request is cheap even if it saves little."""
_RETRY_SECONDS = 5.0
"""Time after which an index that storage failed to deliver is tried again."""
_MAX_SHARED_SUBJECTS = 256
"""Kinds and subjects that files with equal schemas share. Limits the memory they take."""
AnySection = InvertedSection | SummarySection | IDX1Section


@dataclass(frozen=True, slots=True)
class Embedded:
    """One embedded index: its directory entry, its kind, and what it is on in this file."""

    entry: IndexEntry
    kind: EmbeddedIndex
    of: Subject

    @property
    def finds_values(self) -> bool:
        """True if the index looks values up, rather than bounding them."""
        return isinstance(self.kind, Inverted)

    @property
    def is_partial(self) -> bool:
        """True if a probe may read only a part of the index."""
        return isinstance(self.kind, Inverted) and self.kind.reading_share is not None

    def may_answer(self, predicate: Predicate) -> bool:
        """True if the kind can answer this predicate on what the index is on."""
        return may_answer(self.kind, self.of, predicate)


def may_answer(kind: EmbeddedIndex, of: Subject, predicate: Predicate) -> bool:
    """True if a kind can answer a predicate on ``of``."""
    has_nans = False
    if isinstance(predicate, SearchPredicate):
        operation: Op | How = predicate.how
        if (predicate.negated or predicate.nulls) and not kind.negations:
            return False
    else:
        has_nans, operation = predicate.nans and pa.types.is_floating(of.type), predicate.op
    if operation not in kind.serves:
        return False
    if isinstance(kind, Inverted):
        return (kind.nulls or not predicate.nulls) and (kind.nans or not has_nans)
    return True


@dataclass(frozen=True, slots=True, eq=False)
class IndexFile:
    """The file itself or its sidecar, with the directory of the sections in it."""

    source: Source
    directory: Directory
    is_sidecar: bool

    def window(self, entry: IndexEntry) -> WindowSource:
        """Returns the bytes of one entry's section."""
        return WindowSource(self.source, entry.offset, entry.length)


class Sections:
    """The embedded indexes of one file, and those of its sidecar."""

    def __init__(
        self,
        footer: FileFooter,
        source: Source,
        chunks: ColumnChunks,
        warnings: FileWarnings,
        sidecar_finder: SidecarFinder | None,
        health: Health | None,
    ) -> None:
        """Takes the finder of the sidecar, and the ``health`` of the data set, if any."""
        self._footer, self._source, self._chunks = footer, source, chunks
        self._warnings, self._finder, self._health = warnings, sidecar_finder, health
        self._embedded: dict[IndexEntry, Embedded | None] = {}
        self._stored_subjects: dict[str, str] = {}
        """Subjects of indexes with the file's own names, by those with the names in its table."""
        self._opened: dict[IndexEntry, AnySection | None] = {}
        self.sidecar_option: SidecarOption = sidecar_finder.option if sidecar_finder else True
        """The value of ``sidecar=`` that stands for the file's sidecar."""
        self.stale: dict[SidecarOption, tuple[IndexEntry, ...]] = {}
        """Stale indexes: those embedded under False, the others under ``sidecar_option``."""
        self._sidecar_error: PathError | None = None
        self._failed_at: float | None = None

    @cached_property
    def directory(self) -> Directory | None:
        """The directory of embedded indexes, or None if there is none that fits this file."""
        try:
            footer = self._footer
            directory = read_directory(
                footer.metadata, self._source, footer.offset, lambda: footer.binding
            )
            return None if directory is None else self._renamed(directory)
        except StaleError as error:
            self.stale[False] = error.entries
            self._warnings.warn(f"embedded indexes are ignored: {error}", counted=True)
        except FormatError as error:
            self._warnings.warn(f"embedded indexes are ignored: {error}")
        return None

    @cached_property
    def sidecar(self) -> IndexFile | None:
        """The file's sidecar, or None if there is none that fits this file."""
        try:
            sidecar = self._finder.opened(self._footer.raw) if self._finder else None
            if sidecar is None:
                return None
            return IndexFile(sidecar.source, self._renamed(sidecar.directory), True)
        except StaleError as error:
            self.stale[self.sidecar_option] = error.entries
            self._warnings.warn(f"its sidecar is ignored: {error}", counted=True)
        except (FormatError, PathError) as error:
            self._sidecar_error = error if isinstance(error, PathError) else None
            self._note_failure(error)
            self._warnings.warn(f"its sidecar is ignored: {error}")
        return None

    @property
    def is_retry_due(self) -> bool:
        """True if storage failed to deliver an index, and it is time to open the file again."""
        return self._failed_at is not None and time.monotonic() - self._failed_at > _RETRY_SECONDS

    def _note_failure(self, error: Exception | str) -> None:
        if isinstance(error, PathError) and self._failed_at is None:
            self._failed_at = time.monotonic()

    def check_sidecar(self) -> None:
        """Raises ``PathError`` if storage fails: a writer would lose its indexes."""
        if self._finder is not None:
            self._finder.check_listed()
        if self.sidecar is None:
            del self.sidecar  # another writer may make one meanwhile
            if self._sidecar_error is not None:
                raise PathError(f"its sidecar cannot be read: {self._sidecar_error}")

    def current_sidecar(self) -> IndexFile | None:
        """Returns ``sidecar``, opened again if another writer changed it. Raises ``PathError``."""
        if self.sidecar is not None and self._finder is not None and not self._finder.is_current:
            del self.sidecar
            with quiet():
                self.check_sidecar()
        return self.sidecar

    @cached_property
    def index_files(self) -> Mapping[IndexEntry, IndexFile]:
        """Every index and the file that has it.

        An index of the sidecar is left out if an embedded one of a known version has its name.
        """
        index_files: dict[IndexEntry, IndexFile] = {}
        if self.directory is not None:
            own = IndexFile(self._source, self.directory, False)
            index_files.update(dict.fromkeys(self.directory.indexes, own))
        if self.sidecar is not None:
            names = {e.name for e in index_files if known_version(e.kind) == e.kind_version}
            entries = [e for e in self.sidecar.directory.indexes if e.name not in names]
            index_files.update(dict.fromkeys(entries, self.sidecar))
        if self._health is not None:
            places = {e: file.is_sidecar and self.sidecar_option for e, file in index_files.items()}
            self._health.note(self._footer.name, places, {**self.stale}, self._footer.columns)
        return index_files

    def _renamed(self, directory: Directory) -> Directory:
        """Returns a directory whose indexes are on columns with the names of the file's table.

        An index on anything else gets a name that no column and no function has.
        """
        footer = self._footer
        if footer.stored is None:
            return directory
        indexes = []
        for entry in directory.indexes:
            on = renamed_subject(entry.on, footer.stored.columns, footer.columns)
            on = f"?{entry.on}" if on is None else on
            self._stored_subjects[on] = entry.on
            indexes.append(replace(entry, on=on))
        return replace(directory, indexes=tuple(indexes))

    def stored(self, entry: IndexEntry) -> IndexEntry:
        """Returns an index as the file's directory has it: on columns with the file's own names."""
        footer = self._footer
        if footer.stored is None:
            return entry
        on = self._stored_subjects.get(entry.on)
        on = on or renamed_subject(entry.on, footer.columns, footer.stored.columns)
        assert on is not None  # it was built from columns of the file
        return replace(entry, on=on)

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """All indexes, the embedded ones first."""
        return tuple(self.index_files)

    def is_in_sidecar(self, entry: IndexEntry) -> bool:
        """True if the index is in the sidecar."""
        return self.index_files[entry].is_sidecar

    def about(self, term: Term) -> list[Embedded]:
        """Returns the usable indexes on a term, smallest first, those read in part last."""
        column = str(term) if term.path else None
        indexes = [
            self.resolved(entry)
            for entry in self.entries
            if (entry.on == column if column else bool(entry.meaning))
        ]
        options = self._footer.options
        is_listed = column is not None and column == options.distinct_index_column
        if is_listed and not options.looks_for_damage:  # such lists have no checksum
            indexes.append(self._foreign_index)
        known = [index for index in indexes if index is not None and index.of.term == term]
        return sorted(known, key=lambda index: (index.is_partial, index.entry.length))

    def foreign_list(self) -> ListedValues | None:
        """Returns another writer's list, or None. Raises ``FormatError`` if damaged."""
        has_directory = self.directory is not None
        return find_list(
            self._footer, self._source, self._chunks, self.entries, has_directory=has_directory
        )

    @cached_property
    def _foreign_index(self) -> Embedded | None:
        """The list of another writer, as an index on the column that the read options name."""
        column = self._footer.options.distinct_index_column
        assert column is not None
        try:
            foreign = self.foreign_list()
            if foreign is None:
                return None
            reason = problem_of(self._footer, self._chunks, foreign, column)
            if reason:
                raise FormatError(reason)
            entry, kind = entry_of(foreign, column), DistinctIDX1(column)
            embedded = Embedded(entry, kind, subject_of(self._footer.columns, kind, ""))
        except (FormatError, IndexSpecError) as error:
            self._warnings.warn(f"the list at {KEY} is ignored: {error}")
            return None
        self._opened[entry] = IDX1Section(foreign.values, is_ours=False)
        return embedded

    def resolved(self, entry: IndexEntry) -> Embedded | None:
        """Returns an entry with its kind and subject, or None if its kind is not known here."""
        if entry not in self._embedded:
            self._embedded[entry] = self._resolved(entry)
        return self._embedded[entry]

    def _resolved(self, entry: IndexEntry) -> Embedded | None:
        if known_version(entry.kind) != entry.kind_version:
            return None
        try:
            return Embedded(entry, *self._kind_and_subject(entry))
        except (FormatError, IndexSpecError) as error:
            self._warnings.warn(f"index {entry.name} is ignored: {error}")
            self._opened[entry] = None
            return None

    def _kind_and_subject(self, entry: IndexEntry) -> tuple[EmbeddedIndex, Subject]:
        """Returns kind and subject of an entry, shared by files of equal schemas."""
        footer = self._footer
        known: dict[Hashable, tuple[EmbeddedIndex, Subject]] = {}
        if not entry.meaning:
            known = footer.shape.cached(("indexes", footer.options.type_options), dict)
        key = known_kind(entry.kind), entry.on, repr(entry.params)
        resolved = known.get(key)
        if resolved is None:
            kind = make(entry.kind, entry.on, entry.params)
            resolved = kind, subject_of(footer.columns, kind, entry.meaning)
            if len(known) < _MAX_SHARED_SUBJECTS:
                known[key] = resolved
        return resolved

    def section(self, index: Embedded) -> AnySection | None:
        """Returns the opened section, or None if it is damaged."""
        entry = index.entry
        if entry not in self._opened:
            self._opened[entry] = self._open(index)
        return self._opened[entry]

    def _open(self, index: Embedded) -> AnySection | None:
        entry = index.entry
        index_file = self.index_files[entry]
        window = index_file.window(entry)
        file_id, rows = index_file.directory.file_id, self._footer.num_rows
        try:
            return open_section(
                index.kind, window, entry.meta_length, entry.meta_crc32, file_id, rows
            )
        except FormatError as error:
            self._warnings.warn(f"index {entry.name} is ignored: {error}")
            return None

    def is_opened(self, entry: IndexEntry) -> bool:
        """True if opening the section needs no more reads: it is opened, or known as damaged."""
        return entry in self._opened

    def is_ignored(self, entry: IndexEntry) -> bool:
        """True if the index turned out to be damaged."""
        return entry in self._opened and self._opened[entry] is None

    def rows_of(self, index: Embedded, predicate: Predicate, within: RowRanges) -> RowRanges | None:
        """Returns the rows that might pass by ``index``, or None if it cannot tell.

        Only rows ``within`` count: the caller ignores others. Issues a warning and ignores the
        index if it is damaged. Raises ``FileReplaced``, which is no damage.
        """
        try:
            return self._rows_of(index, predicate, within)
        except FileReplaced:
            raise
        except (FormatError, PathError, OutOfMemoryError) as error:
            self._distrust(index.entry, error)
        except Exception as error:  # noqa: BLE001 # a plugin's kind must not make queries fail
            self._distrust(index.entry, f"its kind failed: {type(error).__name__}: {error}")
        return None

    def _rows_of(
        self, index: Embedded, predicate: Predicate, within: RowRanges
    ) -> RowRanges | None:
        kind, of = index.kind, index.of
        if isinstance(kind, Inverted):
            formula = kind.keys_for(predicate, of)
            section = None if formula is None else self.section(index)
            if formula is None or section is None:
                return None
            if isinstance(section, IDX1Section):
                return section.rows_of(formula, of)
            assert isinstance(section, InvertedSection)
            return section.rows_of(formula, of, self._max_probe_bytes(kind, of, within))
        section = self.section(index)
        if section is None:
            return None
        assert isinstance(section, SummarySection)
        return section.rows_of(kind, predicate, of, within)

    def _max_probe_bytes(self, kind: Inverted, of: Subject, within: RowRanges) -> int | None:
        """Returns the most bytes of a probe, by the kind's share, or None."""
        if kind.reading_share is None:
            return None
        starts = self._footer.row_group_starts
        groups = np.flatnonzero(within.covers(starts[:-1], starts[1:]))
        size = sum(
            self._chunks.chunk(group, leaf.index).total_compressed_size
            for leaf in self._footer.schema.leaves
            if any(leaf.path[: len(path)] == path for path in of.term.fields)
            for group in groups.tolist()
        )
        rows = int((starts[groups + 1] - starts[groups]).sum())
        share = kind.reading_share * within.num_rows / max(rows, 1)
        return max(int(share * size), _MIN_PROBE_BYTES)

    def values(self, index: Embedded) -> pa.Array | None:
        """Returns the distinct values of an index with exact keys, or None if there are none."""
        if not (isinstance(index.kind, Inverted) and index.kind.exact):
            return None
        try:
            section = self.section(index)
            return section.values() if isinstance(section, InvertedSection) else None
        except FileReplaced:
            raise
        except (FormatError, PathError) as error:
            self._distrust(index.entry, error)
            return None

    def _distrust(self, entry: IndexEntry, reason: Exception | str) -> None:
        self._opened[entry] = None
        self._note_failure(reason)
        self._warnings.warn(f"index {entry.name} is ignored: {reason}")
