"""Conditions that many rows pass: rows are selected early if that skips pages, else at the end."""

import itertools
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import intarsia as ia
from intarsia.row_ranges import RowRanges
from intarsia.scan import column_reader, unit_reader
from intarsia.scan.filter.condition import are_in_most_pages, rows_where
from intarsia.scan.integrity import page_guard
from intarsia.scan.schema_adapter import read_columns

ROWS, PAGE = 100_000, 1_000


def runs_that_fail(flags):
    length = 0
    for flag in [*flags, True]:
        if flag:
            yield length
        length = 0 if flag else length + 1


@given(
    st.lists(st.tuples(st.sampled_from([True, False, None]), st.sampled_from([1, 3, 15, 16]))),
    st.integers(0, 9),
)
def test_rows_are_everywhere_where_no_run_fails_that_is_half_a_page(runs, parts):
    flags = [flag for flag, count in runs for _ in range(count)]
    edges = [len(flags) * part // (parts + 1) for part in range(parts + 2)]
    chunks = [pa.array(flags[a:b], pa.bool_()) for a, b in itertools.pairwise(edges)]
    passing = sum(flag is True for flag in flags)
    expected = passing > len(flags) / 4 and max(runs_that_fail(flags)) < 16
    assert are_in_most_pages(pa.chunked_array(chunks), 32) == expected


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Pages of 1,000 rows without bounds. ``half`` is 0 only in the first half of the rows."""
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
    file.read(rows=RowRanges.of((7, 8)))  # reads all offset indexes, after which pages are counted
    return file, table, at


def read(stored, condition, columns=("n", "t")):
    """Returns the matching rows, and the number of pages read for them."""
    file, table, _ = stored
    before = file._opened.pages_read
    actual = file.read(columns, filter=condition)
    assert actual.equals(table.filter(condition).select(columns))
    return actual, file._opened.pages_read - before


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
def test_pages_without_a_passing_row_are_not_read(stored, condition, pages):
    _, actual = read(stored, condition)
    assert actual == pages


@pytest.fixture(scope="module")
def random(tmp_path_factory):
    """Three files of numbers in random order; in each, 9 of 10 are below 9."""
    folder, rng = tmp_path_factory.mktemp("random"), np.random.default_rng(0)
    parts = []
    for number in range(3):
        part = pa.table({name: rng.integers(0, 10, ROWS) for name in "abc"})
        parts.append(part.append_column("t", [[f"{i:06}" for i in range(ROWS)]]))
        pq.write_table(parts[-1], folder / f"{number}.parquet")
    return ia.dataset(folder), pa.concat_tables(parts)


LOW = {name: pc.field(name) < 9 for name in "abc"}
WITH_TEXT = pc.match_substring(pc.field("t"), "9")


@pytest.mark.parametrize(
    "condition",
    [
        LOW["a"] & LOW["b"],
        LOW["a"] & LOW["b"] & LOW["c"],
        LOW["a"] & LOW["b"] & (pc.field("c") == 3),
        LOW["a"] & WITH_TEXT,
        LOW["a"] & WITH_TEXT & LOW["b"],
        LOW["a"] & (pc.field("b") + 1 < 9),
        LOW["a"] & (pc.field("b") > 90),
    ],
    ids=str,
)
def test_what_was_marked_first_is_picked_last(random, condition):
    ds, table = random
    expected = table.filter(condition)
    for columns in (["a"], ["a", "c"], ["t", "b"], ["c", "c", "t"]):
        assert ds.to_table(columns, filter=condition).equals(expected.select(columns))
        few = ds.head(100_000, columns, filter=condition)
        assert few.equals(expected.select(columns).slice(0, 100_000))
    assert ds.count_rows(filter=condition) == expected.num_rows


@pytest.fixture
def steps(monkeypatch):
    """The columns read in each step, and the columns whose rows were selected."""
    actual = {"read": [], "picked": []}

    def read(file, schema, columns, *others):
        actual["read"].append(sorted(columns))
        return read_columns(file, schema, columns, *others)

    def pick(mask, table, rows):
        actual["picked"].append(sorted(table.column_names))
        return rows_where(mask, table, rows)

    monkeypatch.setattr(unit_reader, "read_columns", read)
    monkeypatch.setattr(unit_reader, "rows_where", pick)
    return actual


def test_conditions_that_may_fail_are_evaluated_on_remaining_rows(random, steps):
    ds, _ = random
    ds.to_table(["t"], filter=LOW["a"] & (pc.field("b") + 1 < 9), use_threads=False)
    assert sorted(steps["read"][-3:]) == [["a"], ["b"], ["t"]]


def test_files_with_known_matching_rows_do_not_influence_others(tmp_path, steps):
    """The small-file filter finds the rows of small files, which are then read without a filter."""
    rng = np.random.default_rng(1)
    for number in range(30):
        small = pa.table({"k": np.arange(2_000) % 500, "t": ["x"] * 2_000})
        pq.write_table(small, tmp_path / f"{number:02}.parquet")
    large = pa.table({"k": rng.integers(0, 500, ROWS), "t": ["y"] * ROWS})
    pq.write_table(large, tmp_path / "last.parquet")
    ds = ia.dataset(tmp_path)
    actual = ds.to_table(["t", "__filename"], filter=pc.field("k") == 7, use_threads=False)
    assert actual.num_rows == 30 * 4 + pc.sum(pc.equal(large["k"], 7)).as_py()
    assert steps["read"][-2:] == [["k"], ["__filename", "t"]]


def test_columns_of_conditions_that_were_asked_are_not_picked(random, steps):
    ds, _ = random
    condition = (pc.field("a") == 3) & (pc.field("b") == 3)
    ds.to_table(["t"], filter=condition, use_threads=False)
    assert steps["picked"] == [["a"], ["b"]] * 3
    steps["picked"].clear()
    ds.to_table(["a", "t"], filter=condition, use_threads=False)
    assert steps["picked"] == [["a"], ["a"]] * 3


def test_columns_that_a_later_condition_asks_of_are_read_once(random, steps):
    ds, _ = random
    condition = (pc.field("a") == 3) & (pc.field("a") + pc.field("b") < 5)
    ds.to_table(["t"], filter=condition, use_threads=False)
    assert steps["read"] == [["a"], ["b"], ["t"]] * 3


def test_pages_with_few_rows_are_skipped(tmp_path):
    """Pages are 4 KB; runs of 200 rows fail."""
    rows = 70_000
    numbers = np.arange(rows) // 100 % 3
    text = pa.array([f"{number:06}" * 600 for number in range(400)]).take(
        pa.array(np.arange(rows) % 400)
    )
    pq.write_table(
        pa.table({"k": numbers, "t": text}),
        tmp_path / "a.parquet",
        use_dictionary=False,
        max_rows_per_page=25,
        write_batch_size=25,
        write_page_index=True,
    )
    ds = ia.dataset(tmp_path / "a.parquet")
    actual = ds.explain(["t"], filter=pc.field("k") == 0, analyze=True)
    assert actual.read.rows.selected == pc.sum(pc.equal(pa.array(numbers), 0)).as_py()
    assert actual.read.pages.selected < 0.7 * actual.read.pages.total


def test_a_damaged_page_without_a_matching_row_is_not_read(tmp_path):
    """However the files before it were read."""
    for number in range(3):
        k = np.zeros(ROWS, np.int64)
        if number == 2:
            k[100:] = np.arange(ROWS - 100) % 2 * 2 - 1  # bounds exclude no page
        table = pa.table({"k": k, "t": [f"{i:06}" for i in range(ROWS)]})
        options = {"compression": "none", "use_dictionary": False}
        ia.write_table(table, tmp_path / f"{number}.parquet", **options)
    damaged = tmp_path / "2.parquet"
    last = list(ia.ParquetFile(damaged).pages(0, "t"))[-1]
    data = bytearray(damaged.read_bytes())
    data[last.offset : last.offset + 40] = b"\xff" * 40
    damaged.write_bytes(data)
    for what in ("raise", "skip"):
        ds = ia.dataset(tmp_path, on_corrupt=what)
        actual = ds.to_table(["t"], filter=pc.field("k") == 0, use_threads=False)
        assert actual.num_rows == 2 * ROWS + 100
        assert ds.corrupt == []


def test_values_of_rows_that_do_not_pass_need_not_fit(tmp_path):
    """Both if many rows pass, and in a file after one in which many rows passed."""
    numbers = np.arange(ROWS)
    pq.write_table(
        pa.table({"k": numbers % 2, "v": numbers.astype(np.int32)}), tmp_path / "0.parquet"
    )
    large = np.where(numbers == 50_000, 2**40, numbers)
    pq.write_table(pa.table({"k": numbers % 2, "v": large}), tmp_path / "1.parquet")
    for threads in (False, True):
        actual = ia.dataset(tmp_path).to_table(
            ["v"], filter=pc.field("k") == 1, use_threads=threads
        )
        assert actual.schema.types == [pa.int32()]
        assert actual["v"].to_pylist() == [*range(1, ROWS, 2)] * 2
    with pytest.raises(ia.FormatError, match=r"1\.parquet, column v: int64 cannot be read"):
        ia.dataset(tmp_path).to_table(["v"], filter=pc.field("k") == 0)


def test_pages_of_row_groups_that_are_wanted_whole_are_not_asked_for_their_rows(
    stored, monkeypatch
):
    file, table, _ = stored
    monkeypatch.setattr(page_guard, "_counts", None)
    assert file.read(["odd", "t"]).equals(table.select(["odd", "t"]))
    with pytest.raises(TypeError):
        file.read(["t"], RowRanges.of((0, 10)))


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """Pages of 100 rows with a lookup: three flat columns and a list of structs."""
    path = tmp_path_factory.mktemp("nested") / "t.parquet"
    rows = np.arange(10_000)
    table = pa.table(
        {
            "key": rows * 7919 % 10_007,
            "flat": rows,
            "text": [f"row {row}" for row in rows],
            "items": pa.array([[{"x": row, "y": 1}, {"x": 2, "y": row}] for row in rows.tolist()]),
        }
    )
    ia.write_table(table, path, max_rows_per_page=100, indexes=[ia.Lookup("key")])
    return path, table


def test_a_lookup_reads_no_next_page_of_a_repeated_column(nested):
    path, table = nested
    condition = pc.field("key").isin(table["key"].take([150, 2_050, 7_950]).to_pylist())
    explained = ia.dataset(path).explain(filter=condition, analyze=True)
    assert explained.read.rows.selected == 3
    assert explained.read.pages.selected == 3 * 5
    answer = ia.dataset(path).to_table(filter=condition)
    assert answer.sort_by("flat").equals(table.take([150, 2_050, 7_950]))


@pytest.mark.parametrize(
    "columns", [["flat", "text", "items"], ["items", "text", "flat"], ["text", "items"]]
)
def test_flat_columns_are_decoded_together_beside_a_repeated_one(nested, columns):
    path, table = nested
    decode = column_reader.decode_roots
    with mock.patch.object(column_reader, "decode_roots", side_effect=decode) as together:
        actual = ia.ParquetFile(path).read(columns=columns, rows=RowRanges.of((250, 470)))
    assert actual.equals(table.select(columns).slice(250, 220))
    counts = [call.args[0].num_roots for call in together.call_args_list]
    assert counts == [2] * ("flat" in columns)
