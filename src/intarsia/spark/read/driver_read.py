"""What little a plan leaves is read by the driver: Spark gets its rows, and starts no Python.

A job with a task in Python takes longer than a few pages do, and the driver has just opened their
files to plan. The rows are those there are when it plans.
"""

from __future__ import annotations

import itertools
from functools import partial

import pyarrow as pa

from intarsia.dataset.record_batches import copied
from intarsia.errors import IntarsiaError
from intarsia.plan.plan import FilePlan, Plan
from intarsia.scan.request import Filter, Request
from intarsia.scan.scan import Part, scan
from intarsia.spark.read.dataset_files import Source
from intarsia.spark.read.partition_packing import OPENING_BYTES, SPLIT_BYTES
from intarsia.spark.read.query import Query
from intarsia.spark.read.variant_type import as_output, check_whole

MOST_ROWS = 1024 * 1024
"""Of candidates: pages of few bytes may hold many."""
MOST_FOUND = 256 * 1024
"""Bytes of Arrow memory. Of more rows, a grouped query takes longer when they come from the driver
than when a task has them; to collect them, the driver is faster up to some megabytes."""


def is_little(plan: Plan) -> bool:
    """Is it no more than a task that would not be divided?"""
    num_bytes = sum(file.figures.bytes.selected + OPENING_BYTES for file in plan.files)
    return num_bytes <= SPLIT_BYTES and sum(f.rows.num_rows for f in plan.files) <= MOST_ROWS


def rows_of_little(source: Source, query: Query, plan: Plan) -> pa.Table | None:
    """The rows of a query, in Spark's types; None where they are left to tasks.

    That is where there is much to read or much was found, and where reading fails: what is to be
    said of that is for the job to say, which tries again.
    """
    if not is_little(plan):
        return None
    wanted = None if query.where is None else Filter.of(query.where, query.schema)
    request = Request(query.schema, query.columns, wanted)
    found, num_bytes = [], 0
    try:
        for table in scan(
            (_part(source, query, file) for file in plan.files), request, is_far=source.is_far
        ):
            found.append(as_output(table, query.output))
            num_bytes += table.nbytes
            if num_bytes > MOST_FOUND:
                return None
    except (IntarsiaError, pa.ArrowException, OSError):
        return None
    # Slices of lists and maps with NULLs are refused by PySpark.
    return copied(pa.concat_tables(found)) if found else query.output.empty_table()


def _part(source: Source, query: Query, file: FilePlan) -> Part:
    """A file as it was planned, if it is still the one that was; else it is planned again."""
    lease = partial(source.lease, file.path)
    first = lease()
    check_whole(first.file, query.output)
    is_same = first.file.binding == file.binding
    leases = itertools.chain([first], iter(lease, None))
    return Part(partial(next, leases), file.constants, None, file.rows if is_same else None)
