"""Columns of few texts, which are read for engines as Arrow dictionaries: their codes are sooner
decoded than texts, and DuckDB groups, compares and joins by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from intarsia.data.asked import request_of
from intarsia.data.dataset import Dataset
from intarsia.data.survey import File, in_folders
from intarsia.errors import FormatError, IntarsiaError
from intarsia.format.page_header import read_page_header
from intarsia.predicate.expression import field_paths, read_expression
from intarsia.predicate.nested import Path, type_at
from intarsia.read.codes import coded_field, coded_type, may_be_coded
from intarsia.read.opened import OpenedFile
from intarsia.read.projection import pruned_to_fields
from intarsia.read.request import Request, pruned_schema

T = TypeVar("T")

_LEAST_ROWS = 50_000
"""Of a chunk: with fewer, dictionaries are handed over more often than that saves."""
_ROWS_A_TEXT, _DICTIONARY_BYTES = 16, 256 * 1024
"""Each batch of rows comes with all of a dictionary, which is to be small beside it."""
_MOST_COLUMNS = 64
"""Who asks for more texts than that hardly groups by them, and to look at each takes a while."""
_HEADER_BYTES = 256
"""A dictionary page has a shorter header."""


class CodedDataset(Dataset):
    """A data set; what ``coded`` makes of it reads some of its texts as Arrow dictionaries."""

    _is_ours = False
    """Are scans without a filter no matter for pyarrow's own?"""

    @classmethod
    def wrap(cls, base: pads.FileSystemDataset, schema: pa.Schema | None = None) -> CodedDataset:
        """As ``Dataset.wrap``."""
        made = super().wrap(base, schema)
        assert isinstance(made, CodedDataset)
        made._is_ours = isinstance(base, CodedDataset) and base._is_ours
        return made

    def coded(self, paths: Iterable[Path], filter_: pc.Expression | None = None) -> CodedDataset:
        """The same rows, with dictionaries for columns and fields on ``paths`` that have few texts.

        ``filter_`` is that of the scan.
        """
        # pyarrow would decode texts, and look each up in a dictionary.
        return self.read_as(with_codes(self, paths, filter_))

    def of_fields(self, paths: Iterable[Path]) -> Self:
        """The same rows, of whose structs there are the fields on ``paths`` and in the filter."""
        wanted = self._wanted(None)
        used = set() if wanted is None else field_paths(read_expression(wanted))
        schema = self.schema
        if used is None or len({*schema.names}) < len(schema.names):
            return self
        # pyarrow would read the others, to drop them.
        pruned = pruned_schema(schema, schema.names, pruned_to_fields(schema, {*paths, *used}))
        return self.read_as(pruned.with_metadata(schema.metadata))

    def read_as(self, schema: pa.Schema) -> Self:
        """The same rows in the types of a schema, by scans of our own where these are others."""
        if schema == self.schema:
            return self
        made = self.wrap(self, schema)
        made._is_ours = True
        return made

    @property
    def _is_pyarrows(self) -> bool:
        return not self._is_ours and super()._is_pyarrows


def with_codes(
    data: Dataset, paths: Iterable[Path], filter_: pc.Expression | None = None
) -> pa.Schema:
    """The schema of a data set, in which those of ``paths`` are dictionaries that have few texts.

    That is told by three of the files that have to be opened for its rows: the first, the last and
    one in their middle. Columns that a folder fixes are left, and what a filter asks of: its own,
    or that of a scan.
    """
    schema = data.schema
    texts = [path for path in dict.fromkeys(paths) if _is_text(type_at(schema, path))]
    if not 0 < len(texts) <= _MOST_COLUMNS:
        return schema
    request = request_of(schema, [], data._wanted(filter_))
    files = _opened_anyway(data, request)
    fixed = {name for file in files for name in file.constants}
    asked = _asked_of(request)
    texts = [path for path in texts if path[0] not in fixed and not _are_under(path, asked)]
    if not files or not texts:
        return schema
    try:
        opened = [data._cache.get(file.path) for file in some_of(files)]
        few = {path for path in texts if all(_has_few(file, path) for file in opened)}
    except (IntarsiaError, OSError):  # of which the scan tells
        return schema
    return pa.schema([coded_field(field, few) for field in schema], schema.metadata)


def some_of(items: Sequence[T]) -> list[T]:
    """The first, one in the middle and the last, as far as there are so many."""
    places = dict.fromkeys((0, len(items) // 2, len(items) - 1)) if items else ()
    return [items[at] for at in places]


def _is_text(kind: pa.DataType | None) -> bool:
    return kind is not None and coded_type(kind) is not None


def _asked_of(request: Request) -> set[Path]:
    """What a request's filter asks of."""
    if request.filter is None:
        return set()
    paths = request.filter.paths
    return {(name,) for name in request.schema.names} if paths is None else paths


def _are_under(path: Path, others: Iterable[Path]) -> bool:
    """Is it, or something around it, among ``others``?"""
    return any(path[: len(other)] == other for other in others)


def _opened_anyway(data: Dataset, request: Request) -> list[File]:
    """The files that any scan opens: none that a catalog may leave out, or that are far."""
    cache = data._cache
    if not cache.is_local or (cache.catalog is not None and request.filter is not None):
        return []
    return list(in_folders(data._files, request.pruning))


def _has_few(file: OpenedFile, path: Path) -> bool:
    """Is a column of a file, or the field of a struct, all codes, of small dictionaries?"""
    leaf, count = file.schema.leaf(path), len(file.metadata.row_groups)
    if leaf is None or not count or not _is_text(type_at(file.schema_arrow, path)):
        return False
    groups = some_of(range(count))
    return may_be_coded(file, groups, leaf.index) and all(
        _is_small(file, group, leaf.index) for group in groups
    )


def _is_small(file: OpenedFile, group: int, leaf: int) -> bool:
    """Is a chunk's dictionary small beside its codes?"""
    chunk = file.chunk(group, leaf)
    size = chunk.data_page_offset - chunk.start
    if size <= 0 or chunk.num_values < _LEAST_ROWS:
        return False
    (data,) = file.source.read([(chunk.start, min(size, _HEADER_BYTES))])
    try:
        header, _ = read_page_header(data)
    except FormatError:
        return False
    told = header.dictionary_page_header
    is_small = header.uncompressed_page_size <= _DICTIONARY_BYTES
    return told is not None and is_small and told.num_values * _ROWS_A_TEXT <= chunk.num_values
