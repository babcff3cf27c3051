"""``PreparedQuery``: a query that runs many times, each time with other values."""

from __future__ import annotations

from typing import Any, Self

import pyarrow as pa

from intarsia.dataset.request_builder import Columns
from intarsia.errors import public
from intarsia.sql.query.condition_template import ConditionTemplate


@public
class PreparedQuery:
    """A query whose condition has parameters. ``Dataset.prepare`` makes one.

    The condition is parsed once. Threads may share a query, and it can be pickled.

    Values are Python's: str, int, float, bool, Decimal, date, datetime and None. A list or tuple is
    a value for ``IN ?``.

    Examples
    --------
    >>> query = ia.dataset("logs.parquet").prepare("status = ? AND trace_id = ?")
    >>> query.to_table(200, "t10", columns=["msg"]).num_rows
    1
    """

    def __init__(self, dataset: Any, condition: str) -> None:
        self._dataset = dataset
        self._condition = ConditionTemplate(condition, dataset.schema)

    def __repr__(self) -> str:
        return f"<intarsia.PreparedQuery {self._condition.text}>"

    def __reduce__(self) -> tuple[type[Self], tuple[Any, str]]:
        return type(self), (self._dataset, self._condition.text)

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
        """
        condition = self._condition.expression(values)
        table: pa.Table = self._dataset.to_table(
            columns, condition, timeout=timeout, memory_limit=memory_limit
        )
        return table

    def count_rows(
        self,
        *values: object,
        timeout: float | None = None,
        memory_limit: int | str | None = None,
    ) -> int:
        """Returns how many rows match. Parameters and errors are those of ``to_table``."""
        condition = self._condition.expression(values)
        return int(self._dataset.count_rows(condition, timeout=timeout, memory_limit=memory_limit))
