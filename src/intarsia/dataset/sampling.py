"""A few rows from all over a data set."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from intarsia.dataset.dataset import Dataset
from intarsia.dataset.request_builder import request_of
from intarsia.expr.filterable_types import filterable_schema
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.request import without_rows
from intarsia.scan.scan import Part, scan


def spread_rows(data: Dataset, column: str, count: int) -> pa.Table:
    """Some ``count`` values of ``column``, of so many files at most and from all over each.

    Fewer where there are fewer rows. The data set's own filter does not count.
    """
    request = request_of(filterable_schema(data.schema), [column], None)
    found = scan(_parts(data, count), request, is_far=not data._cache.is_local)
    return pa.concat_tables([without_rows(request.output), *found])


def _parts(data: Dataset, count: int) -> Iterator[Part]:
    files = [data._files[place] for place in _spread(len(data._files), count)]
    for file in files:
        rows = _spread(data._cache.get(file.path).num_rows, -(-count // len(files)))
        get = partial(data._cache.lease, file.path)
        yield Part(get, file.constants, RowRanges.from_rows(rows))


def _spread(length: int, count: int) -> Int64Array:
    """Up to ``count`` of the numbers below ``length``, evenly."""
    return np.unique(np.linspace(0, length - 1, min(length, count), dtype=np.int64))
