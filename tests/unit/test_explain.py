"""``explain``: its figures, its tree, and the measurements that analyzing adds."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.file import page_index_cache
from intarsia.indexing import build
from intarsia.plan.explanation import Explanation
from intarsia.plan.file_account import (
    Activity,
    FileAccount,
    FileRead,
    Filtered,
    QueryRun,
    Stage,
)
from intarsia.plan.plan import Amount, ColumnPlan, Figures, FilePlan, Step
from intarsia.row_ranges import RowRanges
from intarsia.scan import predicate_order

PAGES = {"row_group_size": 2000, "max_rows_per_page": 500, "write_batch_size": 100}
ROWS = 4000


def figures(files=0, row_groups=0, pages=0, rows=0, size=0, requests=0):
    """Figures of a file of 2 row groups, 40 pages, 1,000 rows and 5,000 bytes."""
    totals = ((files, 1), (row_groups, 2), (pages, 40), (rows, 1000), (size, 5000), (requests, 0))
    return Figures(*(Amount(*amount) for amount in totals))


def planned(path, steps, matches, rows=(), columns=()):
    ranges = RowRanges.of(*rows)
    return FilePlan(path, "b1nd", ranges, {}, (), tuple(steps), matches, tuple(columns))


def fixed(is_analyzed):
    """Three files: one is read, one is excluded by its footer, one by its folder."""
    steps = [Step("row-group statistics", 1000, 2), Step("index id:lookup", 50, 1)]
    columns = [
        ColumnPlan("id", Amount(1, 20), Amount(200, 3000), 0),
        ColumnPlan("at", Amount(2, 20), Amount(1000, 1000), 2),
    ]
    plan = planned("lake/a=1/x.parquet", steps, figures(1, 1, 3, 50, 1200, 2), [(0, 50)], columns)
    spent = dict(zip(Activity, (0.004, 0.001, 0.003, 0.0015, 0.0005), strict=True))
    passed = (Filtered("(id == 7)", Amount(4, 50)),)
    read = FileRead(figures(1, 1, 2, 4, 2400, 5), spent, passed)
    stages = Stage("(id == 7)", ("id",)), Stage('(at > "a\nb")', ("at", "id"))
    remarks = ("index at:lookup not used: it cannot answer at > 3",)
    by_footer = planned("lake/a=1/y.parquet", [Step("row-group statistics", 0, 0)], figures())
    only_footer = FileRead(figures(1, size=600, requests=1), dict.fromkeys(Activity, 0.0), ())
    by_folder = planned("lake/a=2/x.parquet", [Step("folders", 0, 0)], figures())
    files = (
        FileAccount(plan, stages, remarks, read if is_analyzed else None),
        FileAccount(by_footer, (), (), only_footer if is_analyzed else None, reader="none"),
        FileAccount(by_folder, reader="none"),
    )
    condition = "((id == 7) and (at > 3))"
    reason = "pages that can match have 8.0% of the bytes an engine decodes"
    run = QueryRun(4, 0.01) if is_analyzed else None
    return Explanation(files, condition, ("id", "at"), "pages", reason, run=run)


PLANNED = """\
verdict  reads 8 % of the bytes; row-group statistics decided
filter   ((id == 7) and (at > 3))
columns  id, at
readers
  pages       1 file: 5.00% of their rows might match
  none        1 file: excluded by row-group statistics
  none        1 file: excluded by folders
readers, if an engine such as DuckDB runs the query
  pages       pages that can match have 8.0% of the bytes an engine decodes
planned
  files       1 of 3 (33.33%)
  row_groups  1 of 6 (16.67%)
  pages       3 of 120 (2.50%)
  rows        50 of 3,000 (1.67%)
  bytes       1,200 of 15,000 (8.00%)
  requests    2
files in lake
├─ a=1/x.parquet: 1,000 rows, 2 row groups
│  ├─ 50 rows might match
│  │  ├─ row-group statistics  1,000 rows  100.00%  2 row groups
│  │  └─ index id:lookup          50 rows    5.00%  1 row group
│  ├─ conditions are evaluated in this order
│  │  ├─ 1. (id == 7)  on id
│  │  └─ 2. (at > "a\\nb")  on at, id
│  ├─ to read: 3 of 40 pages, 1,200 of 5,000 bytes, 2 requests
│  │  ├─ id  1 of 20 pages    200 of 3,000 bytes
│  │  └─ at  2 of 20 pages  1,000 of 1,000 bytes  no page index: whole chunks
│  └─ index at:lookup not used: it cannot answer at > 3
└─ 2 files without a row that might match
   ├─ by row-group statistics  1 file
   └─ by folders               1 file"""

READ = """\
read
  files       2 of 3 (66.67%)
  row_groups  1 of 6 (16.67%)
  pages       2 of 120 (1.67%)
  rows        4 of 3,000 (0.13%)
  bytes       3,000 of 15,000 (20.00%)
  requests    6
  seconds     0.0100
seconds in all threads
  planning    0.0040 (40.0%)
  reading     0.0010 (10.0%)
  decoding    0.0030 (30.0%)
  filtering   0.0015 (15.0%)
  other       0.0005 (5.0%)
files in lake"""

READ_OF_A_FILE = """\
│  └─ was read: 4 rows, 2 pages, 2,400 bytes, 5 requests, 0.0100 s
│     ├─ 4 of 50 rows passed (id == 7)
│     └─ planning 40%, reading 10%, decoding 30%, filtering 15%, other 5%
└─ 2 files without a row that might match
   ├─ by row-group statistics  1 file
   ├─ by folders               1 file
   └─ was read: 0 rows, 0 pages, 600 bytes, 1 request, 0.0000 s"""


def test_a_plan_is_a_tree_under_its_figures():
    assert str(fixed(is_analyzed=False)) == repr(fixed(is_analyzed=False)) == PLANNED


def test_analyzing_adds_bytes_read_and_times():
    text = str(fixed(is_analyzed=True))
    assert READ in text
    assert text.endswith(READ_OF_A_FILE)
    assert max(map(len, text.splitlines())) <= 80


def test_json_contains_every_file():
    document = json.loads(json.dumps(fixed(is_analyzed=True).to_dict()))
    assert list(document) == [
        *("verdict", "filter", "columns", "reader", "reason", "readers", "planned", "read"),
        *("seconds", "elapsed_seconds", "files"),
    ]
    assert document["read"]["bytes"] == {"selected": 3000, "total": 15_000}
    assert [file["path"] for file in document["files"]] == [
        "lake/a=1/x.parquet",
        "lake/a=1/y.parquet",
        "lake/a=2/x.parquet",
    ]
    first, _, by_folder = document["files"]
    assert first["conditions"] == [{"condition": "(id == 7)", "rows": {"selected": 4, "total": 50}}]
    assert first["columns"][1]["without_page_index"] == 2
    assert "read" not in by_folder
    assert "read" not in fixed(is_analyzed=False).to_dict()


def test_twenty_files_are_shown_and_twenty_columns_of_each():
    columns = [ColumnPlan(f"c{i}", Amount(1, 1), Amount(i, i), 0) for i in range(25)]
    plans = [
        planned(f"/d/{i:02}.parquet", [Step("page index", 9, 1)], figures(1), [(0, 9)], columns)
        for i in range(23)
    ]
    lines = str(Explanation(tuple(map(FileAccount, plans)), "none", ("c",))).splitlines()
    assert lines[-1] == "└─ … and 3 more files"
    assert sum(".parquet" in line for line in lines) == 20
    assert sum("… and 5 that take less" in line for line in lines) == 20
    assert not any("─ c4 " in line for line in lines)


# --- real files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Two folders, an indexed file in each; ``n`` is sorted, ``s`` is not."""
    folder = tmp_path_factory.mktemp("lake")
    for day in (1, 2):
        (folder / f"day={day}").mkdir()
        rows = range(day * ROWS, (day + 1) * ROWS)
        table = pa.table({"n": rows, "s": [f"s{i * 7919 % 12_007:05}" for i in rows]})
        indexes = [ia.Lookup("s", granule_rows=100), ia.Lookup("n")]
        path = folder / f"day={day}" / "a.parquet"
        ia.write_table(table, path, indexes=indexes, use_dictionary=False, **PAGES)
    return folder


def remarks(explanation):
    return [remark for file in explanation.files for remark in file.remarks]


def test_reads_are_shown_file_by_file(lake):
    actual = ia.dataset(lake).explain(["n"], "s = 's00001' OR n = 4001", analyze=True)
    matching = ia.dataset(lake).to_table(
        filter=(pc.field("s") == "s00001") | (pc.field("n") == 4001)
    )
    assert actual.read.rows.selected == len(matching)
    reads = [file.read.figures for file in actual.files]
    for name in ("files", "row_groups", "pages", "rows", "bytes", "requests"):
        parts = [getattr(figures, name).selected for figures in reads]
        assert sum(parts) == getattr(actual.read, name).selected, name
    condition = actual.files[0].read.conditions[0]
    assert condition.rows.selected == reads[0].rows.selected
    assert condition.rows.total == actual.files[0].plan.rows.num_rows


def test_every_activity_takes_time_and_no_more_than_two_threads_have(lake):
    pa.set_cpu_count(2)
    shares = []
    for _ in range(5):  # other processes take time from each run
        actual = ia.dataset(lake).explain(filter="s >= 's00001'", analyze=True)
        assert sum(actual.activities.values()) < 3 * actual.seconds
        assert all(seconds > 0 for seconds in actual.activities.values())
        shares.append(actual.activities[Activity.OTHER] / actual.seconds)
    assert min(shares) < 0.5


def test_folders_that_cannot_match_are_not_read(lake):
    actual = ia.dataset(lake).explain(["n"], "day = 2 AND n < 0", analyze=True)
    assert [file.plan.steps[-1].source for file in actual.files] == [
        "folders",
        "row-group statistics",
    ]
    assert [file.read is None for file in actual.files] == [True, False]
    assert (actual.read.files.selected, actual.read.files.total) == (1, 2)
    assert "└─ 2 files without a row that might match" in str(actual)


def test_nothing_is_read_where_no_folder_can_match(lake):
    actual = ia.dataset(lake).explain(["n"], "day = 7", analyze=True)
    assert actual.read.bytes == Amount(0, actual.planned.bytes.total)
    assert set(actual.activities.values()) == {0}
    assert "by folders  2 files" in str(actual)


def test_without_a_filter_all_rows_are_read(lake):
    actual = ia.dataset(lake).explain(["n"], analyze=True)
    assert actual.read.rows == Amount(2 * ROWS, 2 * ROWS)
    assert remarks(actual) == []
    assert "filter   none" in str(actual)


def test_without_columns_no_column_is_read(lake):
    for analyze in (False, True):
        actual = ia.dataset(lake).explain([], analyze=analyze)
        assert "to read: 0 of 0 pages, 0 of " in str(actual)


def test_an_index_that_does_not_help_is_named_with_the_reason(lake):
    actual = ia.dataset(lake).explain(["n"], "s > 's12000'")
    assert remarks(actual)[:2] == [
        "index s:lookup not used: it cannot answer s > s12000",
        "index n:lookup not used: no condition on n it could answer",
    ]


def test_an_index_on_a_column_read_as_another_type_is_named(lake):
    schema = pa.schema([("n", pa.float64()), ("s", pa.string())])
    actual = ia.dataset(lake / "day=1", schema=schema).explain(["n"], "n = 4001")
    assert "index n:lookup not used: n is read as a type that may compare in another way" in (
        remarks(actual)
    )


@pytest.mark.parametrize(
    ("kind", "version", "reason"),
    [
        ("lookup", 7, "version 7 of lookup is not known here, 1 is"),
        ("sketch", 1, "kind sketch is not known here"),
    ],
)
def test_an_index_of_an_unknown_kind_or_version_is_named(
    tmp_path, monkeypatch, kind, version, reason
):
    made = build.IndexEntry
    monkeypatch.setattr(
        build,
        "IndexEntry",
        lambda *args: replace(made(*args), kind=kind, kind_version=version),
    )
    path = tmp_path / "a.parquet"
    ia.write_table(pa.table({"s": ["a", "b"]}), path, indexes=[ia.Lookup("s")])
    actual = ia.dataset(path).explain(filter="s = 'a'")
    assert remarks(actual)[0] == f"index s:{kind} not used: {reason}"


def test_a_damaged_index_is_shown_with_the_text_of_its_warning(lake, tmp_path):
    stored = bytearray((lake / "day=1" / "a.parquet").read_bytes())
    path = tmp_path / "a.parquet"
    entry = ia.ParquetFile(lake / "day=1" / "a.parquet").indexes[0]
    stored[entry.offset + entry.length - entry.meta_length] ^= 0x41
    path.write_bytes(stored)
    with pytest.warns(ia.IntarsiaWarning, match="index s:lookup is ignored"):
        actual = ia.dataset(path).explain(["n"], "s = 's06000'")
    assert "index s:lookup is ignored: the metadata does not match its checksum" in remarks(actual)


def test_a_page_index_that_contradicts_its_pages_is_shown_after_reading(lake, monkeypatch):
    decode = page_index_cache.read_offset_index
    starts = np.array([0, 400, 1000, 1500])
    monkeypatch.setattr(
        page_index_cache,
        "read_offset_index",
        lambda data: replace(decode(data), first_row_index=starts),
    )
    with pytest.warns(ia.IntarsiaWarning, match="page 0 of those read has 500 rows"):
        actual = ia.dataset(lake / "day=1").explain(["n"], "n = 4001", analyze=True)
    problem = "page 0 of those read has 500 rows, but the offset index says 400 rows"
    assert remarks(actual) == [
        f"a page index is ignored: row group 0, column n: {problem}",
        "index s:lookup not used: no condition on s it could answer",
    ]
    assert str(actual).count(problem) == 1
    assert actual.read.rows.selected == 1


def test_a_missing_page_index_is_shown(tmp_path):
    table = pa.table({"n": range(ROWS), "s": [str(i) for i in range(ROWS)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
    actual = ia.dataset(tmp_path).explain(["s"], "n = 1500 AND s <> 'x'")
    assert remarks(actual) == [
        "n has no column index: no page is skipped by its bounds",
        "s has no column index: no page is skipped by its bounds",
    ]
    assert [(c.column, c.without_page_index) for c in actual.files[0].plan.columns] == [
        ("s", 1),
        ("n", 1),
    ]
    assert str(actual).count("no page index: whole chunks") == 2


def test_the_order_of_conditions_is_shown_for_staged_evaluation(lake, monkeypatch):
    source = ia.dataset(lake / "day=1")
    condition = "s <> 's00001' AND n >= 0 AND n <> 5"
    assert "all conditions are evaluated at once" in str(source.explain(["n"], condition))
    monkeypatch.setattr(predicate_order, "STAGED_ROWS", 1000)
    actual = source.explain(["n"], condition, analyze=True)
    stages = actual.files[0].stages
    assert [stage.columns for stage in stages] == [("n",), ("s",)]
    conditions = actual.files[0].read.conditions
    assert [condition.condition for condition in conditions] == [s.condition for s in stages]
    assert conditions[1].rows.total == conditions[0].rows.selected


def test_only_leaves_that_are_read_count_in_nested_columns(tmp_path):
    points = [{"x": i, "y": f"{i:0100}", "z": i % 7} for i in range(ROWS)]
    table = pa.table({"n": range(ROWS), "point": points})
    ia.write_table(table, tmp_path / "a.parquet", use_dictionary=False, **PAGES)
    source = ia.dataset(tmp_path / "a.parquet")

    def columns(names, expected):
        return {read.column for read in source.plan(names, expected).files[0].reads}

    x = pc.field("point", "x") == 3
    assert columns(["n"], x) == {"n", "point.x"}
    assert columns(["n"], x & (pc.field("point", "z") > 0)) == {"n", "point.x", "point.z"}
    assert columns(["point"], x) == {"point.x", "point.y", "point.z"}
    actual = source.explain(["n"], x, analyze=True)
    assert actual.planned.pages.total == 16
    assert actual.read.pages.selected == actual.planned.pages.selected == 2
    assert [column.column for column in actual.files[0].plan.columns] == ["n", "point.x"]


def test_a_scan_without_analyze_reads_no_clock(lake, monkeypatch):
    monkeypatch.setattr("time.perf_counter", None)
    assert ia.dataset(lake).to_table(filter=pc.field("n") == 4001).num_rows == 1


def test_indexes_of_structs_are_used_whatever_their_other_fields_are_read_as(tmp_path):
    """For example if one file has large_string fields, and the first has string fields."""
    kinds = [pa.string(), pa.large_string()]
    for number, kind in enumerate(kinds):
        usr = [{"id": i + number * ROWS, "country": f"c{i % 7}"} for i in range(ROWS)]
        users = pa.array(usr, pa.struct([("id", pa.int64()), ("country", kind)]))
        names = pa.array([f"Name {i}" for i in range(ROWS)], kind)
        table = pa.table({"usr": users, "name": names})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    expected = [ia.Lookup("usr.id"), "lookup(lower(name))", "lookup(lower(usr.country))"]
    ia.add_indexes(tmp_path, expected)
    ds = ia.dataset(tmp_path)
    for condition in ("usr.id = -7", "lower(name) = 'x'", "lower(usr.country) = 'x'"):
        assert ds.explain(filter=condition).planned.rows.selected == 0
    assert ds.to_table(filter=f"usr.id = {ROWS + 3}")["name"].to_pylist() == ["Name 3"]
    assert ds.count_rows(filter="lower(name) = 'name 5' AND lower(usr.country) = 'c5'") == 2


def test_a_filter_is_shown_as_it_was_given(tmp_path):
    maps = pa.array([[("a b", "x")]], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"m": maps, "n": [1]}), tmp_path / "t.parquet")
    source = ia.dataset(tmp_path / "t.parquet")
    given = "m['a b']  =  'x' AND n < 2"
    assert source.explain(filter=given).filter == given
    assert source.filter(pc.field("n") > 0).explain(filter=given).filter != given
    condition = pc.map_lookup(pc.field("m"), "a b", "first") == "x"
    assert source.explain(filter=condition).filter == """(m['a b'] == "x")"""
    assert source.explain().filter == "none"


def test_pages_located_by_headers_are_counted(tmp_path):
    count = 200_000
    table = pa.table({"n": range(count), "s": [f"{i % 100_000:06}" for i in range(count)]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, write_page_index=False, row_group_size=count)
    ia.add_indexes(path, ["s:lookup"])
    actual = ia.dataset(path).explain(filter=pc.field("s") == "000007", analyze=True)
    assert actual.read.rows.selected == 2
    assert actual.read.pages == actual.planned.pages
    assert 2 <= actual.read.pages.selected < actual.read.pages.total


def test_pages_of_an_unfiltered_scan_are_those_of_the_page_index(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(50_000)}), path, write_page_index=True)
    actual = ia.dataset(path).explain(analyze=True)
    assert actual.read.pages == actual.planned.pages
    assert actual.read.pages.selected == len(ia.ParquetFile(path).pages(0, "n")) - 1
