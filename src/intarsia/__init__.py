"""Intarsia: indexes inlaid in Parquet.

Adds page indexes and user-defined indexes to Parquet files that every ordinary reader still reads,
and answers selective questions by reading only the pages that can match.
"""

from intarsia.data.dataset import Dataset
from intarsia.data.discover import dataset
from intarsia.engines import polars
from intarsia.engines.sql import sql
from intarsia.errors import (
    CorruptDataWarning,
    FormatError,
    IndexSpecError,
    IntarsiaError,
    IntarsiaWarning,
    MissingDependencyError,
    OutOfMemoryError,
    PathError,
    PredicateError,
    UnsupportedError,
)
from intarsia.index.distinct import Distinct
from intarsia.index.elements import Elements
from intarsia.index.entries import Entries
from intarsia.index.idx1 import DistinctIDX1
from intarsia.index.lookup import Lookup
from intarsia.index.minmax import MinMax
from intarsia.index.ngram import NGram
from intarsia.index.registry import register_index_kind
from intarsia.index.standard import Bloom, PageIndex
from intarsia.index.words import Words
from intarsia.plan.advice import Advice
from intarsia.predicate.functions import (
    contains_words,
    list_contains,
    list_contains_all,
    list_contains_any,
    map_contains,
)
from intarsia.ranges import RowRanges
from intarsia.read.damage import CorruptData
from intarsia.read.file import ParquetFile
from intarsia.verify.file import verify
from intarsia.verify.findings import Finding, Severity
from intarsia.version import __version__
from intarsia.write.advise import advise
from intarsia.write.catalog import build_catalog, drop_catalog
from intarsia.write.catalog_show import show_catalog
from intarsia.write.drop import drop_indexes
from intarsia.write.embed import add_indexes, list_indexes
from intarsia.write.export import export_index
from intarsia.write.recover import Recovery, recover
from intarsia.write.writer import ParquetWriter, write_table

__all__ = [
    "Advice",
    "Bloom",
    "CorruptData",
    "CorruptDataWarning",
    "Dataset",
    "Distinct",
    "DistinctIDX1",
    "Elements",
    "Entries",
    "Finding",
    "FormatError",
    "IndexSpecError",
    "IntarsiaError",
    "IntarsiaWarning",
    "Lookup",
    "MinMax",
    "MissingDependencyError",
    "NGram",
    "OutOfMemoryError",
    "PageIndex",
    "ParquetFile",
    "ParquetWriter",
    "PathError",
    "PredicateError",
    "Recovery",
    "RowRanges",
    "Severity",
    "UnsupportedError",
    "Words",
    "__version__",
    "add_indexes",
    "advise",
    "build_catalog",
    "contains_words",
    "dataset",
    "drop_catalog",
    "drop_indexes",
    "export_index",
    "list_contains",
    "list_contains_all",
    "list_contains_any",
    "list_indexes",
    "map_contains",
    "polars",
    "recover",
    "register_index_kind",
    "show_catalog",
    "sql",
    "verify",
    "write_table",
]


def __dir__() -> list[str]:
    """What is there for users; the rooms are, too, and are not for them."""
    return __all__
