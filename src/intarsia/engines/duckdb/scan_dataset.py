"""``WatchedDataset``: notes the errors of scans, of which DuckDB passes on only the text."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.request_builder import Columns
from intarsia.deadline import Stop, Stopped, active, current, iterate_active
from intarsia.errors import IntarsiaError, guarded_items
from intarsia.expr.nested_types import Path
from intarsia.expr.tree import field_paths, read_expression
from intarsia.plan.file_account import EngineReads
from intarsia.scan.nested_projection import pruned_to_fields
from intarsia.scan.request import pruned_schema
from intarsia.scan.scan import Part


class WatchedDataset(Dataset):
    """A data set that collects in ``errors`` the errors of its scans.

    Data sets that are made from it share the list.
    """

    errors: list[BaseException]
    whole: list[Columns]
    """The columns of each of pyarrow's own scans. Their errors are not collected."""
    stop: Stop | None
    """The time limit for scans, which run in the engine's threads."""
    engine_reads = EngineReads()
    """The reads of DuckDB's own reader, if the data set is profiled."""
    _limit: int | None = None
    _parts_left: Sequence[Part] | None = None
    _scans_once = True
    _has_fewer_fields = False
    """True if structs have fewer fields than in the files."""

    @classmethod
    def wrap(cls, base: pads.FileSystemDataset, schema: pa.Schema | None = None) -> WatchedDataset:
        """Returns ``Dataset.wrap``, with the errors of ``base``, and its limits."""
        made = super().wrap(base, schema)
        assert isinstance(made, WatchedDataset)
        if isinstance(base, WatchedDataset):
            made.errors, made.whole, made.stop = base.errors, base.whole, base.stop
            made._limit, made._parts_left = base._limit, base._parts_left
            made._has_fewer_fields = base._has_fewer_fields
        else:
            made.errors, made.whole, made.stop = [], [], current()
        return made

    def limited(self, limit: int) -> WatchedDataset:
        """Returns a data set whose scans give ``limit`` rows at most, and then stop."""
        made = self.wrap(self)
        made._limit = limit
        return made

    def at(self, parts: Sequence[Part]) -> WatchedDataset:
        """Returns a data set whose scans read only ``parts``."""
        made = self.wrap(self)
        made._parts_left = parts
        return made

    def of_fields(self, paths: Iterable[Path]) -> WatchedDataset:
        """Returns the same rows; structs have the fields on ``paths`` and in the filter."""
        condition = self.scan_source.filter
        used = set() if condition is None else field_paths(read_expression(condition))
        schema = self.schema
        if used is None or len({*schema.names}) < len(schema.names):
            return self
        pruned = pruned_schema(schema, schema.names, pruned_to_fields(schema, {*paths, *used}))
        if pruned == schema:
            return self
        made = self.wrap(self, pruned.with_metadata(schema.metadata))
        made._has_fewer_fields = True
        return made

    @property
    def _may_use_pyarrow(self) -> bool:
        # pyarrow would read the other fields, to drop them.
        return not self._has_fewer_fields and super()._may_use_pyarrow

    @property
    def is_whole(self) -> bool:
        """True if neither ``limited`` nor ``at`` leaves rows out."""
        return self._limit is None and self._parts_left is None

    def reread_for_errors(self) -> None:
        """Reads what pyarrow scanned by itself once more, to collect the errors."""
        for columns in self.whole[:]:
            with contextlib.suppress(IntarsiaError):
                for _ in self.to_batches(columns):
                    pass

    def _scan(
        self, columns: Columns, *args: Any, **options: Any
    ) -> tuple[pa.Schema, Iterable[pa.Table]] | None:
        if self._limit is not None:
            options = {"limit": self._limit, **options}
        if self._parts_left is not None:
            options = {"parts": self._parts_left, **options}
        with active(self.stop):
            scan = super()._scan(columns, *args, **options)
        if scan is None:
            self.whole.append(columns)
            return None
        return scan[0], self._watched(scan[1])

    def _watched(self, tables: Iterable[pa.Table]) -> Generator[pa.Table]:
        try:
            yield from guarded_items(iterate_active(self.stop, tables))
        except (IntarsiaError, KeyboardInterrupt, Stopped) as error:
            self.errors.append(error)
            raise
