"""Intarsia: indexes inlaid in Parquet.

Adds page indexes and user-defined indexes to Parquet files that every ordinary reader still reads,
and answers selective questions by reading only the pages that can match.
"""

from intarsia.engines import polars
from intarsia.engines.sql import sql
from intarsia.errors import (
    FormatError,
    IndexSpecError,
    IntarsiaError,
    IntarsiaWarning,
    MissingDependencyError,
    PathError,
    PredicateError,
    UnsupportedError,
)
from intarsia.index.lookup import Lookup
from intarsia.index.standard import Bloom, PageIndex
from intarsia.ranges import RowRanges
from intarsia.read.dataset import Dataset
from intarsia.read.discover import dataset
from intarsia.read.file import ParquetFile
from intarsia.verify.file import verify
from intarsia.verify.findings import Finding, Severity
from intarsia.version import __version__
from intarsia.write.embed import add_indexes, list_indexes
from intarsia.write.recover import Recovery, recover
from intarsia.write.writer import ParquetWriter, write_table

__all__ = [
    "Bloom",
    "Dataset",
    "Finding",
    "FormatError",
    "IndexSpecError",
    "IntarsiaError",
    "IntarsiaWarning",
    "Lookup",
    "MissingDependencyError",
    "PageIndex",
    "ParquetFile",
    "ParquetWriter",
    "PathError",
    "PredicateError",
    "Recovery",
    "RowRanges",
    "Severity",
    "UnsupportedError",
    "__version__",
    "add_indexes",
    "dataset",
    "list_indexes",
    "polars",
    "recover",
    "sql",
    "verify",
    "write_table",
]
