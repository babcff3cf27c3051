"""Files that are planned together: their row groups and rows are numbered through.

::

    file 0   row groups 0 and 1   rows 0 to 1,999
    file 1   row group 2          rows 2,000 to 2,999
    file 2   row groups 3 and 4   rows 3,000 to 4,999
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from intarsia.file.embedded_indexes import Embedded
from intarsia.file.open_file import OpenedFile
from intarsia.parquet.metadata import ColumnMetaData
from intarsia.parquet.schema import Leaf
from intarsia.parquet.statistics import Bounds
from intarsia.plan.plan import ScanPlan
from intarsia.plan.stored_columns import leaf_of, values_agree
from intarsia.process_state import cached_property
from intarsia.pruning.partition_pruning import Constants
from intarsia.pruning.predicates import Comparison, Predicate
from intarsia.pruning.term import Term
from intarsia.row_ranges import Int64Array, RowRanges

BoolArray = NDArray[np.bool_]


class FileGroup:
    """Files of one footer layout with the same partition keys. One file is a group of one.

    Parameters
    ----------
    files : sequence of OpenedFile
        At least one file.
    constants : sequence of mappings from str to pyarrow.Scalar
        The partition values of each file.
    schema : pyarrow.Schema
        The data set's schema. Filters are evaluated in its types.

    Examples
    --------
    >>> from intarsia.scan.parquet_file import open_file
    >>> file = open_file("logs.parquet")
    >>> FileGroup([file, file], [{}, {}], file.schema_arrow).num_rows
    2000
    """

    def __init__(
        self, files: Sequence[OpenedFile], constants: Sequence[Constants], schema: pa.Schema
    ) -> None:
        self.files, self.constants, self.schema = files, constants, schema
        self.is_single = len(files) == 1
        self.file = files[0]
        """The first file. All files have the same facts of the footer layout."""
        self._leaves: dict[Predicate, Leaf | None] = {}
        self._agreeing: dict[Term, bool] = {}
        self._bounds: dict[int, Bounds] = {}
        self._chunks: dict[int, list[list[ColumnMetaData]]] = {}
        self.size_factors: dict[tuple[int, ...], float] = {}
        """Ratios of decoded bytes of leaves to their estimates: see ``batch_decode``."""

    @cached_property
    def row_group_starts(self) -> Int64Array:
        """First row of each row group, then the number of rows. Shape ``(groups + 1,)``."""
        starts = [file.file_footer.row_group_starts for file in self.files]
        if self.is_single:
            return starts[0]
        shifts = np.repeat(self.file_starts[:-1], [len(own) - 1 for own in starts])
        own_starts = np.concatenate([own[:-1] for own in starts])
        return np.append(own_starts + shifts, self.file_starts[-1])

    @cached_property
    def file_starts(self) -> Int64Array:
        """First row of each file, then the number of rows. Shape ``(files + 1,)``."""
        counts = [file.file_footer.row_group_starts[-1] for file in self.files]
        return np.cumsum([0, *counts], dtype=np.int64)

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return int(self.row_group_starts[-1])

    @cached_property
    def rows(self) -> RowRanges:
        """The rows of all files, without those that a table deletes."""
        if self.is_single:
            return self.file.rows
        if not any(file.view.deleted_rows for file in self.files):
            return RowRanges.all(self.num_rows)
        starts = self.file_starts.tolist()
        return RowRanges.union(
            file.rows.shift(start) for file, start in zip(self.files, starts, strict=False)
        )

    @cached_property
    def trusts_bounds(self) -> bool:
        """True if the statistics of all files are used. All files have the same read options."""
        return self.file.trusts_bounds if self.is_single else not self.file.options.looks_for_damage

    def leaves(self, tests: Iterable[Predicate]) -> Mapping[Comparison, Leaf]:
        """Returns the leaves of those comparisons for which bounds of stored values are valid."""
        leaves = {}
        for test in tests:
            if isinstance(test, Comparison):
                if test not in self._leaves:
                    constants = self.constants[0]
                    self._leaves[test] = leaf_of(self.file, test, constants, self.schema)
                leaf = self._leaves[test]
                if leaf is not None:
                    leaves[test] = leaf
        return leaves

    def indexes(
        self, tests: Iterable[Predicate], number: int = 0
    ) -> dict[Predicate, list[Embedded]]:
        """Returns the embedded indexes of one file that might answer each test."""
        usable_indexes: dict[Predicate, list[Embedded]] = {}
        sections = self.files[number].sections
        for test in tests:
            usable = [index for index in sections.about(test.term) if index.may_answer(test)]
            if usable and self.values_agree(test.term):
                usable_indexes[test] = usable
        return usable_indexes

    def has_indexes(
        self,
        tests: Sequence[Predicate],
        number: int = 0,
        row_group: int = 0,
        min_chunk_bytes: int = 0,
    ) -> bool:
        """True if an index, a bloom filter or a page index of a file may rule rows out.

        Indexes of chunks that are smaller than ``min_chunk_bytes`` do not count, by the chunks of
        ``row_group``.
        """
        file = self.files[number]
        leaves = [leaf.index for leaf in self.leaves(tests).values()]
        if not file.metadata.row_groups:
            return False
        chunks = [file.column_chunk(row_group, leaf) for leaf in leaves]
        data = [(chunk, chunk.meta_data) for chunk in chunks if chunk.meta_data is not None]
        large = [pair for pair in data if pair[1].total_compressed_size > min_chunk_bytes]
        may_pay = len(leaves) < len(tests) or large
        if may_pay and file.sections.entries and self.indexes(tests, number):
            return True
        return any(
            chunk.column_index_offset is not None or values.bloom_filter_offset is not None
            for chunk, values in large
        )

    def values_agree(self, term: Term) -> bool:
        """True if an index of stored values of ``term`` is valid: see ``stored_columns``."""
        if term not in self._agreeing:
            self._agreeing[term] = values_agree(self.file, term, self.constants[0], self.schema)
        return self._agreeing[term]

    def bounds(self, leaf: int) -> Bounds:
        """Returns the bounds of a column in all row groups, by the footers."""
        if self.is_single:
            return self.file.row_group_bounds(leaf)
        if leaf not in self._bounds:
            chunks = [*itertools.chain.from_iterable(self.chunks(leaf))]
            self._bounds[leaf] = self.file.bounds_of(leaf, chunks)
        return self._bounds[leaf]

    def chunks(self, leaf: int) -> list[list[ColumnMetaData]]:
        """Returns the metadata of a column's chunks by file, as ``OpenedFile.chunks`` does."""
        if leaf not in self._chunks:
            self._chunks[leaf] = [file.chunks(leaf) for file in self.files]
        return self._chunks[leaf]

    def row_groups_of(self, rows: RowRanges) -> list[int]:
        """Returns the row groups that hold any of ``rows``."""
        starts = self.row_group_starts
        groups: list[int] = rows.covers(starts[:-1], starts[1:]).nonzero()[0].tolist()
        return groups

    def row_groups_by_file(self, rows: RowRanges) -> dict[int, list[int]]:
        """Returns the row groups that hold any of ``rows``, counted in their files, by file."""
        first = np.cumsum([0, *(len(file.metadata.row_groups) for file in self.files)])
        numbers = np.array(self.row_groups_of(rows), dtype=np.int64)
        files = first.searchsorted(numbers, side="right") - 1
        groups: dict[int, list[int]] = {}
        for file, number in zip(files.tolist(), (numbers - first[files]).tolist(), strict=True):
            groups.setdefault(file, []).append(number)
        return groups

    def rows_of_row_groups(self, mask: BoolArray) -> RowRanges:
        """Returns all rows of the row groups where ``mask`` is true."""
        starts = self.row_group_starts
        return RowRanges(starts[:-1][mask], starts[1:][mask])

    def files_of(self, rows: RowRanges) -> BoolArray:
        """Returns a mask of the files that hold any of ``rows``."""
        return rows.covers(self.file_starts[:-1], self.file_starts[1:])

    def rows_of_files(self, mask: BoolArray) -> RowRanges:
        """Returns all rows of the files where ``mask`` is true."""
        return RowRanges(self.file_starts[:-1][mask], self.file_starts[1:][mask])

    def only(self, number: int) -> FileGroup:
        """Returns the group of one file. It shares what depends on the footer layout only."""
        group = FileGroup([self.files[number]], [self.constants[number]], self.schema)
        group._leaves, group._agreeing = self._leaves, self._agreeing
        return group

    def plan_in_file(self, number: int, plan: ScanPlan) -> ScanPlan:
        """Returns the part of this group's ``plan`` that is about one file, which continues it."""
        steps = tuple([(source, self.rows_in_file(number, rows)) for source, rows in plan.steps])
        by_predicate = {
            test: self.rows_in_file(number, rows) for test, rows in plan.by_predicate.items()
        }
        return ScanPlan(steps[-1][1], steps, by_predicate=by_predicate)

    def rows_in_file(self, number: int, rows: RowRanges) -> RowRanges:
        """Returns those of ``rows`` that are in one file, counted from the file's first row."""
        start, stop = self.file_starts[number : number + 2].tolist()
        return rows.clip(start, stop).shift(-start)


def file_groups(
    files: Sequence[OpenedFile], constants: Sequence[Constants], schema: pa.Schema
) -> list[tuple[list[int], FileGroup]]:
    """Divides ``files`` into groups. Returns the positions of a group's files with the group."""
    positions: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for position, (file, values) in enumerate(zip(files, constants, strict=True)):
        positions.setdefault((id(file.shape), tuple(values)), []).append(position)
    return [
        (own, FileGroup([files[i] for i in own], [constants[i] for i in own], schema))
        for own in positions.values()
    ]
