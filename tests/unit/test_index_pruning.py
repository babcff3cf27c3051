"""Index pages alone exclude the files without a value from many indexed files.

::

    file     0 … 11: 4,000 rows each, ``id`` random, ``n`` ascending, ``k`` ≡ file (mod 4)
    id       one row each       k   every fourth file       NULL in row 7 of each file
"""

import warnings
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.expr.tree import read_expression
from intarsia.index.section.reader import Section
from intarsia.io import storage
from intarsia.plan import planner
from intarsia.plan.file_keys import required_predicates
from intarsia.pruning.builder import pruning_of
from intarsia.sql.where_clause import parse_where

FILES, ROWS = 12, 4000


def table_of(number):
    ids = np.random.default_rng(number).bytes(16 * ROWS).hex()
    texts = [ids[32 * i : 32 * i + 32] for i in range(ROWS)]
    texts[7] = None
    start = number * ROWS
    kinds = [number % 4 + 4 * (i % 500) for i in range(ROWS)]
    return pa.table({"id": texts, "n": pa.array(range(start, start + ROWS)), "k": kinds})


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    path = tmp_path_factory.mktemp("lookups")
    for number in range(FILES):
        indexes = [ia.Lookup("id", granule_rows=512), ia.Lookup("k", granule_rows=512)]
        ia.write_table(table_of(number), path / f"{number:02}.parquet", indexes=indexes)
    return path


@pytest.fixture(scope="module")
def whole(lake):
    return pa.concat_tables([table_of(number) for number in range(FILES)])


def value(number, row):
    return table_of(number).column("id")[row].as_py()


FILTERS = {
    "one row": pc.field("id") == value(5, 3000),
    "no row": pc.field("id") == "0" * 32,
    "two files": pc.field("id").isin([value(0, 0), value(11, 3999)]),
    "two files, and a range": pc.field("id").isin([value(0, 0), value(11, 9)])
    & (pc.field("n") > 9),
    "either": (pc.field("id") == value(3, 1)) | (pc.field("n") == 4001),
    "every fourth file": pc.field("k") == 2,
    "both": (pc.field("k") == 2) & (pc.field("id") == value(6, 8)),
    "both, in no row": (pc.field("k") == 1) & (pc.field("id") == value(6, 8)),
    "two values at once": (pc.field("id") == value(6, 8)) & (pc.field("id") == value(7, 8)),
    "or NULL": (pc.field("id") == value(6, 8)) | pc.field("id").is_null(),
    "not": ~(pc.field("id") == value(6, 8)) & (pc.field("n") < 30),
    "other than NULL": (pc.field("id") == value(6, 8)).is_valid() & (pc.field("n") < 30),
    "many values": pc.field("id").isin([value(2, row) for row in range(8, 60)]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_answers_are_those_of_the_table(lake, whole, name):
    data, expected = ia.dataset(lake), whole.filter(FILTERS[name])
    for _ in range(2):
        assert data.to_table(filter=FILTERS[name]).equals(expected)
        assert data.count_rows(FILTERS[name]) == expected.num_rows
    left = {file.path for file in data.plan_of_left(["n"], FILTERS[name]).files}
    planned = {file.path for file in data.plan(["n"], FILTERS[name]).files}
    assert left == planned


@pytest.fixture
def planned(monkeypatch):
    """How often each file was planned by itself."""
    actual, original = Counter(), planner._Planner.run

    def run(self, *args):
        if self._group.is_single:
            actual[self._group.file.name] += 1
        return original(self, *args)

    monkeypatch.setattr(planner._Planner, "run", run)
    return actual


@pytest.mark.parametrize(("name", "files"), [("one row", 1), ("no row", 0), ("two files", 2)])
def test_only_files_that_contain_the_value_are_planned(lake, planned, name, files):
    data = ia.dataset(lake)
    data.to_table(filter=FILTERS[name])
    assert len(planned) == files


def test_one_page_of_keys_is_read_of_each_other_file(lake, monkeypatch):
    requests = Counter()
    original = storage.FileSource._read_at

    def read_at(self, offset, length):
        requests[self.path] += 1
        return original(self, offset, length)

    data = ia.dataset(lake)
    monkeypatch.setattr(storage.FileSource, "_read_at", read_at)
    assert data.to_table(filter=FILTERS["no row"]).num_rows == 0
    assert len(requests) == FILES
    # The tail; the section's metadata if it is before the tail; the page.
    assert max(requests.values()) <= 3
    requests.clear()
    assert data.to_table(filter=FILTERS["no row"]).num_rows == 0
    assert max(requests.values(), default=0) <= 1


def test_no_index_page_is_read_for_a_frequent_value(tmp_path, monkeypatch):
    rows, fetched = 60_000, []
    random = np.random.default_rng(3)
    for number in range(6):
        values = np.where(random.random(rows) < 0.5, 7, random.integers(100, 1 << 40, rows))
        table = pa.table({"k": values, "n": range(number * rows, number * rows + rows)})
        index = ia.Lookup("k", granule_rows=2)
        ia.write_table(table, tmp_path / f"{number}.parquet", indexes=[index])
    original = Section.fetched
    monkeypatch.setattr(
        Section,
        "fetched",
        lambda self, names, pages: fetched.append((names, pages)) or original(self, names, pages),
    )
    data, whole = ia.dataset(tmp_path), pads.dataset(tmp_path).to_table()
    for value in (7, 8, whole.column("k")[1].as_py()):
        where = pc.field("k") == value
        assert data.to_table(filter=where).equals(whole.filter(where))
        alone = [pages for names, pages in fetched if names == ["key"]]
        assert sum(map(len, alone)) <= (0 if value == 7 else 6)
        fetched.clear()


@pytest.mark.filterwarnings("ignore:of 1. files looked into")
def test_files_of_other_schemas_or_without_an_index_are_planned(tmp_path, planned):
    for number in range(FILES):
        table, path = table_of(number), tmp_path / f"{number:02}.parquet"
        if number % 3 == 0:
            pq.write_table(table, path)
        elif number % 3 == 1:
            wide = table.set_column(0, "id", table.column("id").cast(pa.large_string()))
            ia.write_table(wide, path, indexes=[ia.Lookup("id", granule_rows=900)])
        else:
            ia.write_table(table.drop_columns("k"), path, indexes=[ia.Lookup("id")])
    data = ia.dataset(tmp_path)
    for number in range(FILES):
        where = pc.field("id") == value(number, 11)
        assert data.to_table(columns=["n"], filter=where)["n"].to_pylist() == [number * ROWS + 11]


@pytest.mark.parametrize("at", ["page", "metadata"])
def test_a_damaged_index_costs_no_answer(lake, whole, tmp_path, at):
    damaged = 4
    for number in range(FILES):
        data = bytearray((lake / f"{number:02}.parquet").read_bytes())
        if number == damaged:
            file = ia.ParquetFile(lake / f"{number:02}.parquet")._opened
            entry = next(entry for entry in file.sections.entries if entry.on == "id")
            end = entry.offset + entry.length
            place = entry.offset + 100 if at == "page" else end - entry.meta_length // 2
            data[place] ^= 0x55
        (tmp_path / f"{number:02}.parquet").write_bytes(data)
    only_there = pc.field("id") == value(damaged, 70)
    for where in (only_there, *(FILTERS[name] for name in FILTERS)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            actual = ia.dataset(tmp_path).to_table(filter=where)
        assert actual.equals(whole.filter(where))
        messages = [str(w.message) for w in caught if "id:lookup is ignored" in str(w.message)]
        assert len(messages) <= 1
        assert messages or where is not only_there


def test_a_kind_that_fails_costs_no_answer(lake, whole, monkeypatch):
    def keys_for(self, predicate, of):
        raise ZeroDivisionError

    monkeypatch.setattr(ia.Lookup, "keys_for", keys_for)
    with pytest.warns(ia.IntarsiaWarning, match="its kind failed"):
        actual = ia.dataset(lake).to_table(filter=FILTERS["one row"])
    assert actual.equals(whole.filter(FILTERS["one row"]))


def test_no_index_is_used_after_the_small_file_filter(tmp_path, monkeypatch):
    for number in range(FILES):
        table = table_of(number).slice(0, 100)
        ia.write_table(table, tmp_path / f"{number:02}.parquet", indexes=[ia.Lookup("id")])
    calls = []
    monkeypatch.setattr(planner, "file_keys", lambda *args: calls.append(args))
    actual = ia.dataset(tmp_path).to_table(filter=pc.field("id") == value(3, 5))
    assert actual["n"].to_pylist() == [3 * ROWS + 5]
    assert not calls


def test_no_index_is_used_if_all_rows_match(tmp_path, monkeypatch):
    for number in range(FILES):
        table = pa.table({"k": [7] * ROWS})
        # its bloom filter makes it too large for the small-file filter
        path = tmp_path / f"{number:02}.parquet"
        ia.write_table(table, path, indexes=[ia.Lookup("k"), ia.Bloom("k")])
    calls = []
    monkeypatch.setattr(planner, "file_keys", lambda *args: calls.append(args))
    assert ia.dataset(tmp_path).to_table(filter=pc.field("k") == 7).num_rows == FILES * ROWS
    assert not calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", ["a"]),
        ("a = 1 AND b = 2", ["a", "b"]),
        ("a = 1 OR b = 2", []),
        ("a = 1 AND (b = 2 OR c = 3)", ["a"]),
        ("(a = 1 AND b = 2) OR (a = 1 AND c = 3)", ["a"]),
        ("a IN (1, 2, 3)", ["a"]),
        ("a = 1 OR a IS NULL", []),
        ("a <> 1", []),
        ("NOT (a <> 1)", ["a"]),
        ("a > 1", []),
    ],
)
def test_costs_decide_whether_indexes_are_used(text, expected):
    schema = pa.schema([(name, pa.int64()) for name in "abc"])
    pruning = pruning_of(read_expression(parse_where(text, schema)))
    assert sorted({str(test.term) for test in required_predicates(pruning)}) == expected
