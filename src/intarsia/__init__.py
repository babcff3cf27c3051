"""Intarsia: indexes inlaid in Parquet.

Adds page indexes and user-defined indexes to Parquet files, which ordinary readers can still read.
Selective queries then read only the pages that can match.

Public names are imported on first use, so ``import intarsia`` is fast, and a program loads only
what it uses. ``from intarsia import *`` imports all of them at once. A program needs this before it
loses access to its own installation.
"""

import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING

from intarsia.process_state import importing
from intarsia.version import __version__

if TYPE_CHECKING:  # for type checkers and editors; at run time ``__getattr__`` imports
    from intarsia.advisor.advice import Advice
    from intarsia.advisor.advise import advise
    from intarsia.catalog.build import build_catalog, drop_catalog
    from intarsia.catalog.describe import show_catalog
    from intarsia.commit.recover import recover_dataset
    from intarsia.dataset.dataset import Dataset
    from intarsia.dataset.discovery import dataset
    from intarsia.dataset.prepared_query import PreparedQuery
    from intarsia.engines import polars
    from intarsia.engines.duckdb.explain import explain_sql
    from intarsia.engines.duckdb.sql import sql
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
        QueryTimeoutError,
        UnsupportedError,
    )
    from intarsia.expr.functions import (
        contains_words,
        json_extract_string,
        list_contains,
        list_contains_all,
        list_contains_any,
        map_contains,
    )
    from intarsia.file.corrupt_data import CorruptData
    from intarsia.index.index import Index
    from intarsia.index.kinds.distinct import Distinct
    from intarsia.index.kinds.distinct_idx1 import DistinctIDX1
    from intarsia.index.kinds.elements import Elements
    from intarsia.index.kinds.entries import Entries
    from intarsia.index.kinds.lookup import Lookup
    from intarsia.index.kinds.minmax import MinMax
    from intarsia.index.kinds.ngram import NGram
    from intarsia.index.kinds.words import Words
    from intarsia.index.parquet_indexes import Bloom, PageIndex
    from intarsia.index.registry import register_index_kind
    from intarsia.indexing.add import add_indexes, list_indexes
    from intarsia.indexing.drop import drop_indexes
    from intarsia.indexing.export import export_index
    from intarsia.maintenance.maintain import maintain
    from intarsia.maintenance.status import status
    from intarsia.memory import memory_limit, set_memory_limit
    from intarsia.recovery.recover import Recovery, recover
    from intarsia.rewrite.rewrite import RewriteReport, rewrite
    from intarsia.row_ranges import RowRanges
    from intarsia.scan.parquet_file import ParquetFile
    from intarsia.tables.delta import delta
    from intarsia.tables.iceberg import iceberg
    from intarsia.usage_counts import usage
    from intarsia.verify.file import verify
    from intarsia.verify.finding import Finding, Severity
    from intarsia.writer.dataset import write_dataset
    from intarsia.writer.parquet_writer import ParquetWriter, write_table

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
    "Index",
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
    "PreparedQuery",
    "QueryTimeoutError",
    "Recovery",
    "RewriteReport",
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
    "delta",
    "drop_catalog",
    "drop_indexes",
    "explain_sql",
    "export_index",
    "iceberg",
    "json_extract_string",
    "list_contains",
    "list_contains_all",
    "list_contains_any",
    "list_indexes",
    "maintain",
    "map_contains",
    "memory_limit",
    "polars",
    "recover",
    "recover_dataset",
    "register_index_kind",
    "rewrite",
    "set_memory_limit",
    "show_catalog",
    "sql",
    "status",
    "usage",
    "verify",
    "write_dataset",
    "write_table",
]

_NAMES = {
    "intarsia.usage_counts": ("usage",),
    "intarsia.dataset.dataset": ("Dataset",),
    "intarsia.dataset.discovery": ("dataset",),
    "intarsia.dataset.prepared_query": ("PreparedQuery",),
    "intarsia.engines": ("polars",),
    "intarsia.engines.duckdb.explain": ("explain_sql",),
    "intarsia.engines.duckdb.sql": ("sql",),
    "intarsia.errors": (
        "CorruptDataWarning",
        "FormatError",
        "IndexSpecError",
        "IntarsiaError",
        "IntarsiaWarning",
        "MissingDependencyError",
        "OutOfMemoryError",
        "PathError",
        "PredicateError",
        "QueryTimeoutError",
        "UnsupportedError",
    ),
    "intarsia.index.index": ("Index",),
    "intarsia.index.kinds.distinct": ("Distinct",),
    "intarsia.index.kinds.elements": ("Elements",),
    "intarsia.index.kinds.entries": ("Entries",),
    "intarsia.index.kinds.distinct_idx1": ("DistinctIDX1",),
    "intarsia.index.kinds.lookup": ("Lookup",),
    "intarsia.index.kinds.minmax": ("MinMax",),
    "intarsia.index.kinds.ngram": ("NGram",),
    "intarsia.index.registry": ("register_index_kind",),
    "intarsia.index.parquet_indexes": (
        "Bloom",
        "PageIndex",
    ),
    "intarsia.index.kinds.words": ("Words",),
    "intarsia.memory": (
        "memory_limit",
        "set_memory_limit",
    ),
    "intarsia.advisor.advice": ("Advice",),
    "intarsia.expr.functions": (
        "contains_words",
        "json_extract_string",
        "list_contains",
        "list_contains_all",
        "list_contains_any",
        "map_contains",
    ),
    "intarsia.row_ranges": ("RowRanges",),
    "intarsia.file.corrupt_data": ("CorruptData",),
    "intarsia.scan.parquet_file": ("ParquetFile",),
    "intarsia.tables.delta": ("delta",),
    "intarsia.tables.iceberg": ("iceberg",),
    "intarsia.verify.file": ("verify",),
    "intarsia.verify.finding": (
        "Finding",
        "Severity",
    ),
    "intarsia.advisor.advise": ("advise",),
    "intarsia.catalog.build": (
        "build_catalog",
        "drop_catalog",
    ),
    "intarsia.catalog.describe": ("show_catalog",),
    "intarsia.commit.recover": ("recover_dataset",),
    "intarsia.rewrite.rewrite": (
        "RewriteReport",
        "rewrite",
    ),
    "intarsia.writer.dataset": ("write_dataset",),
    "intarsia.indexing.drop": ("drop_indexes",),
    "intarsia.indexing.add": (
        "add_indexes",
        "list_indexes",
    ),
    "intarsia.indexing.export": ("export_index",),
    "intarsia.maintenance.maintain": ("maintain",),
    "intarsia.maintenance.status": ("status",),
    "intarsia.recovery.recover": (
        "Recovery",
        "recover",
    ),
    "intarsia.writer.parquet_writer": (
        "ParquetWriter",
        "write_table",
    ),
}
"""The public names of each module."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

_NAMED_AS_PACKAGES = ("dataset", "rewrite", "sql", "verify")
"""Functions that have the name of a package inside this one."""


class _Package(types.ModuleType):
    """This package. An import of ``intarsia.sql.scope`` does not bind ``sql`` to a package."""

    def __setattr__(self, name: str, value: object) -> None:
        is_package = name in _NAMED_AS_PACKAGES and isinstance(value, types.ModuleType)
        if not is_package:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name, or a package or module of this one, on first use."""
        with importing:
            value = _public(name) if name in _MODULE_OF else _submodule(name)
            globals()[name] = value
        return value


def _public(name: str) -> object:
    """Imports a public name as ``from module import name`` does, submodules included."""
    return getattr(__import__(_MODULE_OF[name], fromlist=[name]), name)


def _submodule(name: str) -> object:
    """Returns the package or module ``intarsia.name``, or raises ``AttributeError``."""
    path = f"{__name__}.{name}"
    if name.startswith("_") or importlib.util.find_spec(path) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(path)
    if hasattr(module, "__path__"):  # its modules become attributes when they are imported
        for public_name in _MODULE_OF:
            _public(public_name)
    return module


def __dir__() -> list[str]:
    """Returns the public names. Packages and modules can be accessed too; they are not public."""
    return __all__
