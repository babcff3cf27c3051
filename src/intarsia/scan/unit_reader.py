"""A unit of a scan: the filter's columns, the rows that match, the other columns at those rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.expr.casts import keeps_values
from intarsia.file.open_file import OpenedFile
from intarsia.io.source import AheadSource, RereadSource, Source
from intarsia.plan.file_account import Activity
from intarsia.process_state import cached_property
from intarsia.pruning.partition_pruning import Constants
from intarsia.row_ranges import RowRanges
from intarsia.scan.dictionary_codes import coded_field, is_coded, with_texts
from intarsia.scan.filter.comparison import holds
from intarsia.scan.filter.condition import (
    MANY,
    are_everywhere,
    num_true,
    passing,
    picked,
    told_by_code,
    where,
)
from intarsia.scan.filter.page_text_filter import Sieve, Tally
from intarsia.scan.filter.substring import Contained
from intarsia.scan.index_selection import page_rows
from intarsia.scan.nested_projection import Projection
from intarsia.scan.predicate_order import STAGED_ROWS, Stage, coded_paths, stages
from intarsia.scan.request import Request, without_columns, without_rows
from intarsia.scan.schema_adapter import expect_columns, read_columns, roots_of

_SMALL_FILE = 64 * 1024
"""Of a file of so many bytes, reading some columns first saves less than it takes."""


class _Held(NamedTuple):
    """What was read of a unit: columns at ``rows``. Those pass that ``mask`` is TRUE of."""

    found: pa.Table
    rows: RowRanges
    mask: pa.ChunkedArray | None = None

    @property
    def num_rows(self) -> int:
        """How many rows pass."""
        return self.rows.num_rows if self.mask is None else num_true(self.mask)

    def also(self, stage: Stage) -> pa.ChunkedArray | None:
        """For each row whether it passes, and a stage's condition holds for it.

        None where that is neither a comparison, nor about a column that is coded alone.
        """
        condition = stage.condition
        if condition.comparison is not None:
            found = holds(condition.comparison, self.found)
        elif len(stage.columns) == 1 and is_coded(self.found.column(stage.columns[0]).type):
            found = told_by_code(condition, stage.columns[0], self.found)
        else:
            return None
        return found if self.mask is None else pc.and_kleene(self.mask, found)


@dataclass(slots=True)
class Trend:
    """What the last unit of a scan was like, by which the next is read.

    It decides which pages are read, not which rows are found in them.
    """

    are_many: bool = False
    """Have many of the rows that it looked at passed?"""
    tallies: dict[Contained, Tally] = field(default_factory=dict)
    """How many pages were without the texts that were looked for, in all files so far."""


class UnitReader:
    """Finds the matching rows of one file, a unit at a time; threads may share it.

    ``are_likely`` says that most pages of the candidate rows hold a row that matches.
    """

    def __init__(
        self,
        file: OpenedFile,
        request: Request,
        constants: Constants,
        trend: Trend,
        are_likely: bool = False,
    ) -> None:
        self.file = file
        self._request, self._constants = request, constants
        self._are_pointed_at = are_likely
        self._trend = trend
        self._have = request.filter.pruned if request.filter else {}
        # Of a column that is asked for, the filter may need other leaves.
        self._reads_again = any(
            self._have.get(name) != request.pruned.get(name)
            for name in request.filter_columns
            if name in request.columns
        )
        self._sieves: dict[Contained, Sieve] = {}

    @cached_property
    def _may_be_at_once(self) -> bool:
        return _may_be_read_at_once(self.file, self._request, self._constants)

    def matching(self, rows: RowRanges) -> pa.Table:
        """The requested columns of those of ``rows`` that match."""
        request, source = self._request, AheadSource(self.file.source)
        columns_from: Source = RereadSource(source) if self._reads_again else source
        held, looked_at = _Held(pa.table([]), rows), rows.num_rows
        conditions = self._stages(rows, source)
        schema, pruned = self._column_types(conditions, rows)
        for number, stage in enumerate(conditions, start=1):
            if not held.found.num_columns:
                held = _Held(held.found, self._sieved(stage, rows, source))
            if held.rows:
                known = set(held.found.column_names)
                new = [name for name in stage.columns if name not in known]
                found = self._read(new, held.rows, pruned, columns_from, schema)
                held = held._replace(found=_beside(found, held.found))
                held = self._passing(stage, held, conditions[number:])
            if not held.rows:
                self._note(0, looked_at)
                return without_rows(request.output)
        self._note(held.num_rows, looked_at)
        if not request.columns:
            return without_columns(held.num_rows)
        kept = self._whole(held.found)
        rest = [name for name in dict.fromkeys(request.columns) if name not in kept]
        other = self._read(rest, held.rows, request.pruned, columns_from) if rest else held.found
        read = {**columns_by_name(held.found), **columns_by_name(other)}
        arrays = [read[name] for name in request.columns]
        table = pa.Table.from_arrays(arrays, list(request.columns))
        if held.mask is not None:
            with self.file.profile.during(Activity.FILTERING):
                table = where(held.mask, table)
        return with_texts(table, request.output)

    def _stages(self, rows: RowRanges, source: AheadSource) -> list[Stage]:
        """The filter's conditions, with the columns that are read for them.

        Where most pages will be needed, or there is little to read, and it costs no request of its
        own, that is all columns: a second round takes longer than what it saves. So it does where
        many rows of the unit before have passed.
        """
        request, file = self._request, self.file
        if request.filter is None:
            return []
        columns, expected = request.all_columns, expect_columns(file, request, rows, source)
        if self._trend.are_many and self._may_be_at_once:
            return [Stage(request.filter.condition, tuple(columns))]
        found = stages(file, request, rows)
        is_free = expected or not file.request_bytes
        is_little = self._are_pointed_at or file.source.size <= _SMALL_FILE
        if is_free and is_little and rows.num_rows < STAGED_ROWS and self._may_be_at_once:
            return [stage._replace(columns=columns) for stage in found]
        return found

    def _sieved(self, stage: Stage, rows: RowRanges, source: AheadSource) -> RowRanges:
        """``rows`` without those in pages that cannot hold the text that is needed."""
        wanted = stage.condition.needed
        if wanted is None or wanted.column in self._constants or rows.num_rows < STAGED_ROWS:
            return rows
        tally = self._trend.tallies.setdefault(wanted, Tally())
        sieve = self._sieves.setdefault(
            wanted, Sieve(self.file, wanted, tally, are_likely=self._are_pointed_at)
        )
        with self.file.profile.during(Activity.FILTERING):
            return sieve.rows_left(rows, source)

    def _column_types(
        self, conditions: Sequence[Stage], rows: RowRanges
    ) -> tuple[pa.Schema, Projection]:
        """The types that the filter's columns are read in: of few texts, codes."""
        request, have = self._request, self._have
        paths = coded_paths(self.file, request, conditions, self._constants, rows)
        if not paths:
            return request.schema, have
        pruned = {
            name: replace(column, type=coded_field(pa.field(name, column.type), paths).type)
            for name, column in have.items()
        }
        return pa.schema([coded_field(field, paths) for field in request.schema]), pruned

    def _read(
        self,
        columns: Sequence[str],
        rows: RowRanges,
        pruned: Projection,
        source: Source,
        schema: pa.Schema | None = None,
    ) -> pa.Table:
        """Columns in the types of ``schema``, by default the data set's."""
        file, schema = self.file, schema or self._request.schema
        with file.profile.during(Activity.DECODING):
            return read_columns(file, schema, columns, self._constants, rows, pruned, source)

    def _whole(self, held: pa.Table) -> set[str]:
        """The columns that a filter's table has as they are asked for, and not in part."""
        have, wanted = self._have, self._request.pruned
        return {name for name in held.column_names if have.get(name) == wanted.get(name)}

    def _passing(self, stage: Stage, held: _Held, later: Sequence[Stage]) -> _Held:
        """What passes a stage, of the columns that are needed yet: picked, or only marked where
        nothing else is to be read, or hardly a page of it is without a row that passes.
        """
        profile, condition, found = self.file.profile, stage.condition, held.found
        with profile.during(Activity.FILTERING):
            mask = held.also(stage)
            if mask is None:
                assert held.mask is None  # which conditions have that are comparisons all
                kept = _Held(*passing(condition, found, held.rows))
            else:
                needed = {*self._request.columns, *(name for s in later for name in s.columns)}
                unread = needed - self._whole(found)
                found = _only(found, needed)
                is_last = not later and not unread
                if is_last or self._are_everywhere(mask, unread, held.rows):
                    kept = _Held(found, held.rows, mask)
                else:
                    kept = _Held(*picked(mask, found, held.rows))
        profile.filtered(condition.expression, held.num_rows, kept.num_rows)
        return kept

    def _are_everywhere(
        self, mask: pa.ChunkedArray, others: Collection[str], rows: RowRanges
    ) -> bool:
        """Would reading ``others`` at the rows that pass, of ``rows``, pass over hardly a page?"""
        if not self._may_be_at_once:
            return False
        read = [name for name in others if name not in self._constants]
        roots = roots_of(self.file, read, self._request.schema)
        leaves = [leaf for root in roots for leaf in root.leaves]
        return are_everywhere(mask, page_rows(self.file, leaves, rows))

    def _note(self, kept: int, looked_at: int) -> None:
        """Of a unit of which ``looked_at`` rows were candidates, so many have passed."""
        if self._may_be_at_once:
            self._trend.are_many = kept > looked_at * MANY


def columns_by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Returns the columns of a table, which finds each by its name in linear time."""
    return dict(zip(table.column_names, table.columns, strict=True))


def _only(found: pa.Table, names: Collection[str]) -> pa.Table:
    """Those columns of ``found`` that are called so; one at least, which tells how many rows."""
    wanted = [name for name in found.column_names if name in names]
    return found.select(wanted or found.column_names[:1])


def _beside(found: pa.Table, held: pa.Table) -> pa.Table:
    for name in held.column_names:
        found = found.append_column(name, held.column(name))
    return found


def _may_be_read_at_once(file: OpenedFile, request: Request, constants: Constants) -> bool:
    """Are the filter's conditions sure to evaluate, and all columns to be read of any row?

    Not those of which a part is asked for, nor where values may not fit the data set's type. Where
    damage is looked for, what is not read is not lost.
    """
    wanted = request.filter
    if wanted is None or wanted.condition.comparison is None or file.options.looks_for_damage:
        return False
    if request.pruned or wanted.pruned:
        return False
    stored = file.schema_arrow
    for name in request.all_columns:
        places = [] if name in constants else stored.get_all_field_indices(name)
        kind = request.schema.field(name).type
        if not all(fits(stored.field(place).type, kind) for place in places):
            return False
    return True


def fits(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Has ``kind`` a value for each of those stored? Structs may have fewer fields in it."""
    if pa.types.is_struct(kind) and pa.types.is_struct(stored):
        return all(
            len(places := stored.get_all_field_indices(field.name)) == 1
            and fits(stored.field(places[0]).type, field.type)
            for field in kind
        )
    kind = kind.value_type if is_coded(kind) else kind
    return stored == kind or keeps_values(stored, kind)
