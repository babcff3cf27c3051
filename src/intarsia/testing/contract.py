"""What every kind of index must meet, checked on data made to find where it does not."""

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
    """Check that a kind of index meets the contract, on columns of each of ``types``.

    ``kind`` makes an index on a column of a name: a registered class, or a function that sets
    parameters. The contract:

    - an indexed file gives the rows that pyarrow finds in the same data, for comparisons, ``IN``,
      ``IS NULL``, NaN tests, their negations and the ``searches``, which are names of
      ``pyarrow.compute`` functions such as ``match_substring``: of texts, by default those that
      the kind ``serves``;
    - so does one whose index is damaged;
    - what is stored of an index makes the same index again, and ``verify`` finds nothing wrong.

    First come cases that are always the same: granules of one value, of NULL or NaN alone, under
    all conditions that compare or search; of lists these only ask for NULL. Then data are made at
    random, so that what one run passes another may not. They have NULLs, NaNs, empty and long
    texts, characters of many scripts. ``values`` are of the type as well, and come up often;
    ``patterns`` are looked for besides parts of values; ``subjects`` are functions of the column
    that conditions are on, besides the column itself.

    Raises ``AssertionError`` with an example as small as Hypothesis finds; ``IndexSpecError`` where
    the kind does not take one of ``types``, ``TypeError`` without any.
    """
    if not types:
        raise TypeError("nothing is checked without a type: check_index_kind(kind, pa.string())")
    for type_ in types:
        sought = _served(kind(_COLUMN), type_) if searches is None else searches
        _check_cases(kind, type_, values, sought, subjects)
        _check(kind, type_, values, sought, patterns, subjects, max_examples)


def _served(index: EmbeddedIndex, type_: pa.DataType) -> list[str]:
    """The searches in texts that an index serves."""
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
    held = blocks_of(type_, cells)
    stored = _indexed(kind(_COLUMN), held, BLOCK_ROWS, BLOCK_ROWS)
    table = pa.table({_COLUMN: held})
    column = pc.field(_COLUMN)
    for subject in [column, *(change(column) for change in subjects)]:
        for condition in all_conditions(subject, type_, cells, searches):
            try:
                expected = table.filter(condition)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                continue
            _check_whole(stored, expected, condition, held)


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
        held = data.draw(arrays(type_, values))
        page_rows = data.draw(st.integers(1, 20))
        stored = _indexed(kind(_COLUMN), held, page_rows, max(len(held) // 2, 1))
        table = pa.table({_COLUMN: held})
        subject = pc.field(_COLUMN)
        others = [subject, *(change(subject) for change in subjects)]
        damaged = _damaged(data, stored)
        for _ in range(3):
            about = data.draw(st.sampled_from(others))
            condition = data.draw(conditions(about, held, searches, patterns))
            try:
                expected = table.filter(condition)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                reject()
            _check_whole(stored, expected, condition, held)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IntarsiaWarning)
                found = _rows(damaged, condition)
            _check_rows("damaged, ", found, expected, condition, held)

    holds()


def _check_whole(
    stored: bytes, expected: pa.Table, condition: pc.Expression, held: pa.Array
) -> None:
    """Of a file whose index is whole, nothing is warned of either."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", IntarsiaWarning)
        _check_rows("", _rows(stored, condition), expected, condition, held)


def _check_rows(
    how: str, found: str, expected: pa.Table, condition: pc.Expression, held: pa.Array
) -> None:
    wanted = repr(expected.to_pylist())
    assert found == wanted, (
        f"{how}the index leaves {found}, not {wanted}, "
        f"for {condition} of {held.type} values {held.to_pylist()!r}"
    )


def _indexed(index: EmbeddedIndex, held: pa.Array, page_rows: int, group_rows: int) -> bytes:
    """A file of one column with ``index``, after checking how it is stored."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({_COLUMN: held}), sink, row_group_size=group_rows,
        write_page_index=True, max_rows_per_page=page_rows, write_batch_size=1,
    )  # fmt: skip
    bare = OpenedFile(BufferSource(memoryview(sink.getvalue())), _COLUMN)
    with Workspace() as work:
        parts = compose(bare, [index], (), work).parts
        stored = b"".join([bytes(sink.getvalue()), *map(bytes, parts)])
    file = OpenedFile(BufferSource(memoryview(stored)), _COLUMN)
    (entry,) = file.sections.entries
    again = make(entry.kind, entry.on, entry.params)
    assert again == index, f"{index} is stored as {again}"
    findings = list(check_sections(file))
    assert not findings, "; ".join(map(str, findings))
    return stored


def _damaged(data: st.DataObject, stored: bytes) -> bytes:
    """The file with a few bytes of its index changed."""
    (entry,) = ParquetFile(BufferSource(memoryview(stored))).indexes
    changed = bytearray(stored)
    for _ in range(data.draw(st.integers(1, 3))):
        at = entry.offset + data.draw(st.integers(0, entry.length - 1))
        changed[at] ^= data.draw(st.integers(1, 255))
    return bytes(changed)


def _rows(stored: bytes, condition: pc.Expression) -> str:
    file = ParquetFile(BufferSource(memoryview(stored)))
    return repr(file.read(filter=condition).to_pylist())
