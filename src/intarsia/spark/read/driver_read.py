"""Reading on the driver, if a plan leaves little to read: Spark gets the rows, and no task starts.

A job with a Python task takes longer than reading a few pages, and the driver has just opened the
files to plan. The rows are those at planning time.
"""

from __future__ import annotations

import itertools
from functools import partial

import pyarrow as pa

from intarsia.dataset.record_batches import copied
from intarsia.errors import IntarsiaError
from intarsia.plan.plan import FilePlan, Plan, ScanPlan
from intarsia.scan.request import Filter, Request
from intarsia.scan.scan import Part, scan
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.partition_packing import OPENING_BYTES, SPLIT_BYTES
from intarsia.spark.read.query import Query
from intarsia.spark.read.variant_type import as_output, check_whole

MOST_ROWS = 1024 * 1024
"""Maximum candidate rows that the driver reads. Few bytes can hold many repeated rows."""
MAX_DRIVER_BYTES = 256 * 1024
"""Maximum bytes of Arrow memory that the driver passes to Spark.

Above it, a grouped query is slower with rows from the driver than with rows from a task. Queries
that only collect rows would gain up to some megabytes.
"""


def _is_small_plan(plan: Plan) -> bool:
    """True if the plan fits a single task that would not be divided."""
    num_bytes = sum(file.figures.bytes.selected + OPENING_BYTES for file in plan.files)
    return num_bytes <= SPLIT_BYTES and sum(f.rows.num_rows for f in plan.files) <= MOST_ROWS


def read_on_driver(source: Source, query: Query, plan: Plan) -> pa.Table | None:
    """Returns the rows in Spark's types; None if there are many, or reading fails."""
    if not _is_small_plan(plan):
        return None
    filters = None if query.where is None else Filter.of(query.where, query.schema)
    request = Request(query.schema, query.columns, filters)
    tables, num_bytes = [], 0
    try:
        for table in scan(
            (_part(source, query, file) for file in plan.files), request, is_far=source.is_far
        ):
            tables.append(as_output(table, query.output))
            num_bytes += table.nbytes
            if num_bytes > MAX_DRIVER_BYTES:
                return None
    except (IntarsiaError, pa.ArrowException, OSError):
        return None
    # PySpark rejects slices of lists and maps that contain NULLs.
    return copied(pa.concat_tables(tables)) if tables else query.output.empty_table()


def _part(source: Source, query: Query, file: FilePlan) -> Part:
    """Returns a file to scan: with its planned rows if it is unchanged, else planned again."""
    next_handle = partial(source.lease, file.path)
    first_handle = next_handle()
    check_whole(first_handle.file, query.output)
    is_same = first_handle.file.binding == file.binding
    handles = itertools.chain([first_handle], iter(next_handle, None))
    plan = ScanPlan(file.rows) if is_same else None
    return Part(partial(next, handles), file.constants, planned=plan)
