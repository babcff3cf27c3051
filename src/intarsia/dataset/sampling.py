"""A sample of rows, spread evenly over a data set."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from intarsia.dataset.request_builder import request_of
from intarsia.dataset.scan_source import ScanSource
from intarsia.expr.filterable_types import filterable_schema
from intarsia.row_ranges import Int64Array, RowRanges
from intarsia.scan.request import without_rows
from intarsia.scan.scan import Part, scan


def sample_rows(source: ScanSource, column: str, count: int) -> pa.Table:
    """Returns about ``count`` values of ``column``, spread over ``count`` files at most.

    Returns fewer values if there are fewer rows. The data set's own filter is ignored.
    """
    request = request_of(filterable_schema(source.schema), [column], None)
    tables = scan(_parts(source, count), request, is_far=not source.cache.is_local)
    return pa.concat_tables([without_rows(request.output), *tables])


def _parts(source: ScanSource, count: int) -> Iterator[Part]:
    files = [source.files[place] for place in _spread(len(source.files), count)]
    for file in files:
        rows = _spread(source.cache.get(file.path).num_rows, -(-count // len(files)))
        get = partial(source.cache.lease, file.path)
        yield Part(get, file.constants, RowRanges.from_rows(rows))


def _spread(length: int, count: int) -> Int64Array:
    """Returns up to ``count`` of the numbers below ``length``, spread evenly."""
    return np.unique(np.linspace(0, length - 1, min(length, count), dtype=np.int64))
