"""``PreparedQuery``: a query that runs many times, each time with other values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from intarsia.dataset.record_batches import as_table
from intarsia.dataset.request_builder import (
    Columns,
    ScanRequest,
    check_columns,
    scan_request,
    uses_scanner_columns,
)
from intarsia.dataset.scan_source import ScanSource
from intarsia.deadline import time_limited
from intarsia.errors import check_is_list, public
from intarsia.scan.prepared_filter import PreparedFilter
from intarsia.scan.request import Filter, FilterLike, Request, without_rows
from intarsia.sql.query.condition_template import ConditionTemplate

_MAX_REQUESTS = 64
"""Lists of columns whose requests are cached."""
_EVERY_ROW = pc.scalar(True)


class _Scanned(Protocol):
    """The data set of a prepared query."""

    schema: pa.Schema
    scan_source: ScanSource

    def count_requested(self, request: Request) -> int: ...

    def to_table(self, columns: Columns = None, filter: FilterLike = None) -> pa.Table: ...  # noqa: A002 # pyarrow's name for it


@public
class PreparedQuery:
    """A query whose condition has parameters. ``Dataset.prepare`` makes one.

    The condition is parsed once. Comparisons of columns with parameters are translated once as
    well, and each run only puts its values in. Threads may share a query, and it can be pickled.

    Values are Python's: str, int, float, bool, Decimal, date, datetime and None. A list or tuple is
    a value for ``IN ?``.

    Examples
    --------
    >>> query = ia.dataset("logs.parquet").prepare("status = ? AND trace_id = ?")
    >>> query.to_table(200, "t10", columns=["msg"]).num_rows
    1
    """

    def __init__(self, dataset: Any, condition: str) -> None:
        self._dataset: _Scanned = dataset
        self._condition = _condition_on(dataset.schema, condition)
        self._filter = self._condition.filter

    def __repr__(self) -> str:
        return f"<intarsia.PreparedQuery {self._filter.condition.text}>"

    def __reduce__(self) -> tuple[type[Self], tuple[Any, str]]:
        return type(self), (self._dataset, self._filter.condition.text)

    @time_limited("reading")
    def to_table(
        self,
        *values: object,
        columns: Columns = None,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
    ) -> pa.Table:
        """Returns the matching rows as a table, as ``Dataset.to_table`` does.

        Parameters
        ----------
        *values
            The value of each parameter.
        columns : list of str or dict, optional
            Names of columns, dotted paths of structs' fields, or Expressions by name. By default
            all columns.
        timeout : float, optional
            The most seconds that the scan may take.
        memory_limit : int or str, optional
            The most bytes of memory, in the form that ``intarsia.set_memory_limit`` takes.

        Raises
        ------
        PredicateError
            If there are too few or too many values, or if one does not fit its place.

        Examples
        --------
        >>> query = ia.dataset("logs.parquet").prepare("trace_id IN ?")
        >>> query.to_table(["t7", "t8"], columns=["status"])["status"].to_pylist()
        [500, 200]
        """
        dataset = self._dataset
        if isinstance(columns, dict) or uses_scanner_columns(columns, dataset.schema):
            return dataset.to_table(columns, self._filter.condition.expression(values))
        request, project = self._request(columns)
        tables = dataset.scan_source.scan(request.with_filter(self._bound(values)), project)
        return as_table(project(without_rows(request.output)).schema, tables)

    @time_limited("counting rows of")
    def count_rows(
        self,
        *values: object,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
    ) -> int:
        """Returns how many rows match. Parameters and errors are those of ``to_table``.

        Examples
        --------
        >>> ia.dataset("logs.parquet").prepare("status = $1").count_rows(500)
        100
        """
        request, _ = self._request(())
        return self._dataset.count_requested(request.with_filter(self._bound(values)))

    def _bound(self, values: tuple[object, ...]) -> Filter:
        """Returns the filter with ``values``, joined with that of the data set."""
        own = self._dataset.scan_source.filter
        if own is None:
            return self._filter.bind(values)
        return Filter.of(own & self._filter.condition.expression(values), self._dataset.schema)

    def _request(self, columns: Sequence[str] | None) -> ScanRequest:
        check_is_list(columns=columns)
        return self._condition.request(None if columns is None else tuple(columns))


class _ConditionRequests:
    """A condition on a schema, and the requests of its queries. Data sets share it."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.filter = PreparedFilter(ConditionTemplate(text, schema))
        self._requests: dict[tuple[str, ...] | None, ScanRequest] = {}

    def request(self, columns: tuple[str, ...] | None) -> ScanRequest:
        """Returns the request for ``columns``, with a filter that every row passes."""
        request = self._requests.get(columns)
        if request is None:
            schema = self.filter.condition.schema
            check_columns(schema, columns)
            request = scan_request(schema, columns, _EVERY_ROW)
            if len(self._requests) < _MAX_REQUESTS:
                self._requests[columns] = request
        return request


def _condition_on(schema: pa.Schema, text: str) -> _ConditionRequests:
    """Returns the condition with this text on a schema, that of an earlier query if possible."""
    known = _cached_condition(text, schema)
    # Schemas that differ in metadata alone are equal keys of the cache.
    is_same = known.filter.condition.schema.equals(schema, check_metadata=True)
    return known if is_same else _ConditionRequests(text, schema)


_cached_condition = functools.lru_cache(maxsize=64)(_ConditionRequests)
