"""Checks the contract of index kinds on data that is made to break it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from intarsia.errors import IntarsiaWarning
from intarsia.file.open_file import OpenedFile
from intarsia.index.registry import EmbeddedIndex, make
from intarsia.index.value_predicates import TEXT_SEARCHES
from intarsia.indexing.file_layout import compose
from intarsia.io.external_sort import Workspace
from intarsia.io.source import BufferSource
from intarsia.scan.parquet_file import ParquetFile
from intarsia.testing.cases import BLOCK_ROWS, all_conditions, blocks_of, cells_of
from intarsia.testing.strategies import arrays, conditions
from intarsia.verify.indexes import check_sections

_COLUMN = "value"


def check_index_kind(
    kind: Callable[[str], EmbeddedIndex],
    *types: pa.DataType,
    values: Sequence[Any] = (),
    searches: Sequence[str] | None = None,
    patterns: Sequence[str] = (),
    subjects: Sequence[Callable[[pc.Expression], pc.Expression]] = (),
    max_examples: int = 50,
) -> None:
    """Checks that a kind of index meets the contract of kinds, on columns of each type.

    The contract:

    - An indexed file gives the rows that pyarrow gives for the same data. This holds for
      comparisons, ``IN``, ``IS NULL``, NaN tests, their negations and ``searches``.
    - So does a file whose index is damaged.
    - The stored parameters make the same index again, and ``verify`` finds nothing wrong.

    Fixed cases come first: granules of one value, of NULL or of NaN, with all conditions. Lists are
    only compared with NULL. Then data are made at random, so results may differ between runs. They
    have NULLs, NaNs, empty and long strings, and characters of many scripts.

    Parameters
    ----------
    kind : callable
        Makes an index on a column of a name: a registered class, or a function that sets
        parameters.
    *types : pyarrow.DataType
        The types of columns to check, at least one.
    values : sequence, optional
        Values of the types that occur often.
    searches : sequence of str, optional
        Names of ``pyarrow.compute`` functions such as ``"match_substring"``. By default, for
        strings, those that the kind ``serves``.
    patterns : sequence of str, optional
        Patterns to search for, besides parts of values.
    subjects : sequence of callables, optional
        Functions of the column that conditions are on, besides the column itself.
    max_examples : int, default 50
        The number of random examples for each type.

    Raises
    ------
    AssertionError
        If the kind breaks the contract. The example is as small as Hypothesis can make it.
    IndexSpecError
        If the kind does not accept one of ``types``.
    TypeError
        If there are no ``types``.

    Examples
    --------
    >>> from intarsia.testing import check_index_kind
    >>> check_index_kind(ia.MinMax, pa.int64(), max_examples=5)
    """
    if not types:
        raise TypeError("nothing is checked without a type: check_index_kind(kind, pa.string())")
    for type_ in types:
        search_names = _served(kind(_COLUMN), type_) if searches is None else searches
        _check_cases(kind, type_, values, search_names, subjects)
        _check(kind, type_, values, search_names, patterns, subjects, max_examples)


def _served(index: EmbeddedIndex, type_: pa.DataType) -> list[str]:
    """Returns the string searches that an index serves."""
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    served = (how for how in TEXT_SEARCHES if is_text and how in index.serves)
    return [TEXT_SEARCHES[how].__name__ for how in served]


def _check_cases(
    kind: Callable[[str], EmbeddedIndex],
    type_: pa.DataType,
    values: Sequence[Any],
    searches: Sequence[str],
    subjects: Sequence[Callable[[pc.Expression], pc.Expression]],
) -> None:
    cells = cells_of(type_, values)
    column_values = blocks_of(type_, cells)
    file_bytes = _indexed(kind(_COLUMN), column_values, BLOCK_ROWS, BLOCK_ROWS)
    table = pa.table({_COLUMN: column_values})
    column = pc.field(_COLUMN)
    for subject in [column, *(change(column) for change in subjects)]:
        for condition in all_conditions(subject, type_, cells, searches):
            try:
                expected = table.filter(condition)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                continue
            _check_whole(file_bytes, expected, condition, column_values)


def _check(
    kind: Callable[[str], EmbeddedIndex],
    type_: pa.DataType,
    values: Sequence[Any],
    searches: Sequence[str],
    patterns: Sequence[str],
    subjects: Sequence[Callable[[pc.Expression], pc.Expression]],
    max_examples: int,
) -> None:
    @settings(
        max_examples=max_examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        column_values = data.draw(arrays(type_, values))
        page_rows = data.draw(st.integers(1, 20))
        file_bytes = _indexed(
            kind(_COLUMN), column_values, page_rows, max(len(column_values) // 2, 1)
        )
        table = pa.table({_COLUMN: column_values})
        subject = pc.field(_COLUMN)
        all_subjects = [subject, *(change(subject) for change in subjects)]
        damaged = _damaged(data, file_bytes)
        for _ in range(3):
            chosen_subject = data.draw(st.sampled_from(all_subjects))
            condition = data.draw(conditions(chosen_subject, column_values, searches, patterns))
            try:
                expected = table.filter(condition)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                reject()
            _check_whole(file_bytes, expected, condition, column_values)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IntarsiaWarning)
                rows = _rows(damaged, condition)
            _check_rows("damaged, ", rows, expected, condition, column_values)

    holds()


def _check_whole(
    file_bytes: bytes, expected: pa.Table, condition: pc.Expression, column_values: pa.Array
) -> None:
    """Checks the rows of a file whose index is whole, and that there are no warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", IntarsiaWarning)
        _check_rows("", _rows(file_bytes, condition), expected, condition, column_values)


def _check_rows(
    state: str, rows: str, expected: pa.Table, condition: pc.Expression, column_values: pa.Array
) -> None:
    expected_rows = repr(expected.to_pylist())
    assert rows == expected_rows, (
        f"{state}the index leaves {rows}, not {expected_rows}, "
        f"for {condition} of {column_values.type} values {column_values.to_pylist()!r}"
    )


def _indexed(
    index: EmbeddedIndex, column_values: pa.Array, page_rows: int, group_rows: int
) -> bytes:
    """Returns a file of one column with ``index``, after checking how the index is stored."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({_COLUMN: column_values}), sink, row_group_size=group_rows,
        write_page_index=True, max_rows_per_page=page_rows, write_batch_size=1,
    )  # fmt: skip
    plain_file = OpenedFile(BufferSource(memoryview(sink.getvalue())), _COLUMN)
    with Workspace() as work:
        parts = compose(plain_file, [index], (), work).parts
        file_bytes = b"".join([bytes(sink.getvalue()), *map(bytes, parts)])
    file = OpenedFile(BufferSource(memoryview(file_bytes)), _COLUMN)
    (entry,) = file.sections.entries
    again = make(entry.kind, entry.on, entry.params)
    assert again == index, f"{index} is stored as {again}"
    findings = list(check_sections(file))
    assert not findings, "; ".join(map(str, findings))
    return file_bytes


def _damaged(data: st.DataObject, file_bytes: bytes) -> bytes:
    """Returns the file with a few bytes of its index changed."""
    (entry,) = ParquetFile(BufferSource(memoryview(file_bytes))).indexes
    changed = bytearray(file_bytes)
    for _ in range(data.draw(st.integers(1, 3))):
        at = entry.offset + data.draw(st.integers(0, entry.length - 1))
        changed[at] ^= data.draw(st.integers(1, 255))
    return bytes(changed)


def _rows(file_bytes: bytes, condition: pc.Expression) -> str:
    file = ParquetFile(BufferSource(memoryview(file_bytes)))
    return repr(file.read(filter=condition).to_pylist())
