"""``explain``: what the scans of a Polars LazyFrame read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.explain import explain_scan
from intarsia.engines.sql_explanation import QueryExplanation
from intarsia.errors import public
from intarsia.plan.explanation import Explanation
from intarsia.process_state import ForkLock

if TYPE_CHECKING:
    import polars


class Recorder:
    """Records the scans of data sets while a frame is explained.

    If it does not run the query, scans are planned and give no rows.
    """

    def __init__(self, *, runs: bool) -> None:
        self.runs = runs
        self._profiled: list[Dataset] = []
        self._planned: list[Explanation] = []

    def recorded(self, data: Dataset) -> Dataset:
        """Returns ``data`` for one scan, which is recorded."""
        self._profiled.append(data.profiled())
        return self._profiled[-1]

    def plan(
        self,
        data: Dataset,
        columns: Sequence[str],
        filter_: pc.Expression | None,
        limit: int | None,
    ) -> None:
        """Records the plan of a scan."""
        self._planned.append(explain_scan(data.scan_source, columns, filter_, limit))

    def explanation(self, seconds: float) -> QueryExplanation:
        """Returns what was recorded. The scans are numbered from 1."""
        if self.runs:
            explained = [data.explain_profiled(seconds) for data in self._profiled]
        else:
            explained = self._planned
        scans = {f"scan {number}": one for number, one in enumerate(explained, 1)}
        return QueryExplanation(scans, seconds if self.runs else None)


_lock = ForkLock()
_active: list[Recorder] = []


def active_recorder() -> Recorder | None:
    """Returns the recorder of the frame that is explained now. Polars scans in its own threads."""
    return _active[-1] if _active else None


@public
def explain(frame: polars.LazyFrame, *, analyze: bool = False) -> QueryExplanation:
    """Returns what the scans of a LazyFrame read, and which reader reads the files.

    Scans that Polars does by itself, because no index can skip much, are not shown.

    Parameters
    ----------
    frame : polars.LazyFrame
        A query on frames that ``intarsia.polars.scan`` returned.
    analyze : bool, default False
        Runs the query, and adds what it read. Polars does not report what its own reader reads:
        these figures are those of the plan.

    Returns
    -------
    QueryExplanation
        An ``Explanation`` for each scan, called ``scan 1``, ``scan 2`` and so on.

    Examples
    --------
    >>> import polars
    >>> frame = ia.polars.scan("logs.parquet", reader="pages")
    >>> ia.polars.explain(frame.filter(polars.col("trace_id") == "absent")).verdict
    'scan 1: reads no rows; row-group statistics decided'
    """
    recorder = Recorder(runs=analyze)
    start = time.perf_counter()
    with _lock:  # one frame at a time: scans run in Polars' threads
        _active.append(recorder)
        try:
            frame.collect()
        finally:
            _active.remove(recorder)
    return recorder.explanation(time.perf_counter() - start)
