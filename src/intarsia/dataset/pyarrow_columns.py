"""Scans with a filter of what only pyarrow's own scan knows: which batch of which file a row is of.

That scan passes over row groups by statistics that know nothing of NaN, so it gets no filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia import deadline
from intarsia.dataset.request_builder import Columns, expressions_of, fields_at, paths_of
from intarsia.dataset.row_count_check import completed
from intarsia.expr.comparison_constants import with_comparable_constants
from intarsia.expr.evaluate import compute_columns, evaluate
from intarsia.expr.filterable_types import filterable_schema, restorer_of
from intarsia.expr.nested_types import with_whole_maps
from intarsia.expr.tree import field_paths, read_expression
from intarsia.scan.request import without_rows
from intarsia.scan.scan import limited


def special_scan(
    data: pads.Dataset,
    columns: Columns,
    filter_: pc.Expression,
    limit: int | None,
    options: dict[str, Any],
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The rows of ``data``, which has no filter of its own, for which ``filter_`` holds."""
    names = [] if isinstance(columns, dict) else list(columns or ())
    paths = paths_of(data.schema, names)
    needed = dict.fromkeys(path[0] for path in paths)
    for expression in (*expressions_of(columns), filter_):
        used = field_paths(read_expression(expression))
        known = data.schema.names if used is None else [path[0] for path in sorted(used)]
        needed |= dict.fromkeys(known)
    scanner = pads.FileSystemDataset.scanner(data, list(needed), **options)
    plain = filterable_schema(scanner.projected_schema)
    filter_ = with_comparable_constants(filter_, data.schema)
    if isinstance(columns, dict):
        project = partial(compute_columns, columns)
    else:
        project = partial(fields_at, paths, plain)

    def found() -> Iterator[pa.Table]:
        batches = scanner.to_batches()
        for batch in completed(batches, partial(data._get_fragments, None), lambda _: None):
            deadline.check()
            table = with_whole_maps(pa.Table.from_batches([batch]))
            yield project(evaluate(filter_, table.cast(plain)))

    tables = found() if limit is None else limited(found(), limit)
    restore = restorer_of(data.schema)
    return restore(without_rows(project(without_rows(plain)).schema)).schema, map(restore, tables)
