"""Filtered scans of columns that only pyarrow's scanner has: the number of the batch and the file.

pyarrow's scanner gets no filter: it skips row groups by statistics that leave NaN out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

import intarsia.deadline as deadline
from intarsia.dataset.request_builder import Columns, expressions_of, fields_at, paths_of
from intarsia.dataset.row_count_check import completed
from intarsia.expr.comparison_constants import with_comparable_constants
from intarsia.expr.evaluate import compute_columns, evaluate
from intarsia.expr.filterable_types import filterable_schema, restorer_of
from intarsia.expr.nested_types import with_whole_maps
from intarsia.expr.tree import field_paths, read_expression, to_expression
from intarsia.scan.request import without_rows
from intarsia.scan.scan import limited


def scan_scanner_columns(
    data: pads.Dataset,
    columns: Columns,
    filter_: pc.Expression,
    limit: int | None,
    options: dict[str, Any],
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Returns the schema and the rows of ``data`` for which ``filter_`` is TRUE.

    ``data`` must not have a filter of its own.
    """
    names = [] if isinstance(columns, dict) else list(columns or ())
    paths = paths_of(data.schema, names)
    needed = dict.fromkeys(path[0] for path in paths)
    for expression in (*expressions_of(columns), filter_):
        used = field_paths(read_expression(expression))
        known = data.schema.names if used is None else [path[0] for path in sorted(used)]
        needed |= dict.fromkeys(known)
    scanner = pads.FileSystemDataset.scanner(data, list(needed), **options)
    plain = filterable_schema(scanner.projected_schema)
    filter_ = to_expression(with_comparable_constants(read_expression(filter_), data.schema))
    if isinstance(columns, dict):
        project = partial(compute_columns, columns)
    else:
        project = partial(fields_at, paths, plain)

    def filtered_tables() -> Iterator[pa.Table]:
        batches = scanner.to_batches()
        for batch in completed(batches, partial(data._get_fragments, None), lambda _: None):
            deadline.check()
            table = with_whole_maps(pa.Table.from_batches([batch]))
            yield project(evaluate(filter_, table.cast(plain)))

    tables = filtered_tables() if limit is None else limited(filtered_tables(), limit)
    restore = restorer_of(data.schema)
    return restore(without_rows(project(without_rows(plain)).schema)).schema, map(restore, tables)
