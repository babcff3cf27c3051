"""Conditions that many rows pass: rows are picked where that spares pages, else at the end."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.ranges import RowRanges
from intarsia.read.condition import are_everywhere

ROWS, PAGE = 100_000, 1_000


def runs_that_fail(flags):
    length = 0
    for flag in [*flags, True]:
        if flag:
            yield length
        length = 0 if flag else length + 1


@given(
    st.lists(st.tuples(st.sampled_from([True, False, None]), st.sampled_from([1, 3, 255, 256]))),
    st.integers(0, 9),
)
def test_rows_are_everywhere_where_no_long_run_fails(runs, parts):
    flags = [flag for flag, count in runs for _ in range(count)]
    edges = [len(flags) * part // (parts + 1) for part in range(parts + 2)]
    chunks = [pa.array(flags[a:b], pa.bool_()) for a, b in itertools.pairwise(edges)]
    passing = sum(flag is True for flag in flags)
    expected = passing > len(flags) / 4 and max(runs_that_fail(flags)) < 256
    assert are_everywhere(pa.chunked_array(chunks)) == expected


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Pages of 1,000 rows without bounds. Of ``half``, 0 is in the first half of the rows alone."""
    at = tmp_path_factory.mktemp("many") / "a.parquet"
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "odd": pa.array(numbers % 2, mask=numbers % 5 == 4),
            "half": numbers // (ROWS // 2),
            "n": numbers,
            "t": [f"{number:06}" for number in numbers],
        }
    )
    options = {"max_rows_per_page": PAGE, "write_batch_size": PAGE, "use_dictionary": False}
    pq.write_table(table, at, write_statistics=["n"], write_page_index=True, **options)
    file = ia.ParquetFile(at)
    file.read(rows=RowRanges.of((7, 8)))  # which takes all offset indexes: then pages are counted
    return file, table, at


def read(stored, condition, columns=("n", "t")):
    """What matches, and how many pages were read for it."""
    file, table, _ = stored
    before = file._opened.pages_read
    found = file.read(columns, filter=condition)
    assert found.equals(table.filter(condition).select(columns))
    return found, file._opened.pages_read - before


IS_ODD, IN_FIRST = pc.field("odd") == 1, pc.field("half") == 0


@pytest.mark.parametrize(
    ("condition", "pages"),
    [
        (IS_ODD, 300),
        (IN_FIRST, 200),
        (IS_ODD & IN_FIRST, 300),
        (IS_ODD & (pc.field("half") == 2), 200),
        (IS_ODD & (pc.field("t") < "01"), 210),
        (IS_ODD & (pc.field("t") != "000001"), 300),
        (pc.field("n") >= 50_500, 100),
    ],
)
def test_pages_without_a_row_that_passes_are_not_read(stored, condition, pages):
    _, found = read(stored, condition)
    assert found == pages


def test_rows_that_were_marked_are_counted_and_shown(stored):
    _, table, at = stored
    condition = IS_ODD & IN_FIRST & (pc.field("t") > "000100")
    assert ia.dataset(at).count_rows(condition) == table.filter(condition).num_rows
    assert read(stored, condition, ("odd",))[0].num_rows == table.filter(condition).num_rows
