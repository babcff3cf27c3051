"""Advice on tables for which the best indexes are known."""

import json
import os
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.advisor import advise
from intarsia.advisor.read_cost import Member, ReadCostEstimator
from intarsia.advisor.row_group_sample import ExtendedSource, indexed, sample_of
from intarsia.dataset.request_builder import request_of
from intarsia.io.external_sort import Workspace
from intarsia.io.source import BufferSource
from intarsia.pruning.term import field_term
from intarsia.writer.defaults import INDEXED_PAGE_ROWS

ROWS = 60_000


@pytest.fixture(scope="module")
def table():
    chance = np.random.default_rng(3)
    return pa.table(
        {
            "ts": np.arange(ROWS),
            "id": chance.permutation(ROWS * 97)[:ROWS],
            "status": chance.integers(0, 10, ROWS),
            "mail": [f"User{i}@Example.org" for i in chance.permutation(ROWS)],
            "lon": np.repeat(np.arange(60), 1000) + chance.random(ROWS),
        }
    )


@pytest.fixture(scope="module")
def plain(table, tmp_path_factory):
    """Pages of 1,000 rows without any index."""
    path = tmp_path_factory.mktemp("advise") / "plain.parquet"
    settings = {"row_group_size": 20_000, "max_rows_per_page": 1000, "write_batch_size": 100}
    pq.write_table(table, path, use_dictionary=False, **settings)
    return path


@pytest.fixture(scope="module")
def paged(plain):
    path = plain.with_name("paged.parquet")
    path.write_bytes(plain.read_bytes())
    ia.add_indexes(path, [ia.PageIndex()])
    return path


def test_a_sorted_column_needs_a_page_index_and_no_more(plain, paged):
    advice = ia.advise(plain, ["ts = 12345", "ts BETWEEN 100 AND 900"])
    assert advice.indexes == ["page_index(ts)"]
    assert advice.proposals[0].filters == (0, 1)
    assert all(one.then < one.now / 5 for one in advice.filters)
    advice = ia.advise(paged, "ts = 12345")
    assert advice.indexes == []
    assert advice.filters[0].reason == "statistics and existing indexes leave little to read"


def test_ten_scattered_values_need_nothing(plain, paged):
    for path in (plain, paged):
        advice = ia.advise(path, [pc.field("status") == 3, "status IN (1, 2)", "status <> 4"])
        assert advice.indexes == []
        assert all(one.then == one.now == one.total for one in advice.filters)
        assert all(one.reason.startswith("no index pays: ") for one in advice.filters)
        assert "no index pays" in str(advice)


def test_many_scattered_values_need_a_lookup(table, paged):
    advice = ia.advise(paged, [f"id = {table['id'][i]}" for i in (5, 30_000, 59_999)])
    assert advice.indexes == ["id:lookup"]
    assert advice.proposals[0].filters == (0, 1, 2)
    absent = ia.advise(paged, "id = -1")
    assert absent.indexes == []  # known by statistics


def test_a_lookup_that_needs_a_page_index_comes_with_it(table, plain):
    advice = ia.advise(plain, f"id = {table['id'][5]}")
    assert advice.indexes == ["page_index(id)", "id:lookup"]
    assert {proposal.filters for proposal in advice.proposals} == {(0,)}


def test_functions_and_ranges_of_clustered_values_get_suitable_indexes(table, paged):
    lowered = pc.utf8_lower(pc.field("mail")) == table["mail"][7].as_py().lower()
    advice = ia.advise(paged, [lowered, "lon BETWEEN 7.2 AND 8.1"])
    assert advice.indexes == ["lower(mail):lookup"]
    assert advice.filters[1].reason == "statistics and existing indexes leave little to read"


def test_proposed_indexes_save_the_estimated_bytes(table, plain, tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(plain.read_bytes())
    row = 41_234
    filters = [f"id = {table['id'][row]}", f"ts = {row}", "status = 3"]
    advice = ia.advise(path, filters)
    assert path.read_bytes() == plain.read_bytes()
    before = path.stat().st_size
    ia.add_indexes(path, advice.indexes)
    added = path.stat().st_size - before
    assert sum(p.bytes for p in advice.proposals) == pytest.approx(added, rel=0.25)
    source = ia.dataset(path)
    for condition, one in zip(filters, advice.filters, strict=True):
        figures = source.plan([], condition).figures
        assert figures.bytes.selected == pytest.approx(one.then, rel=0.5, abs=10_000)
    again = ia.advise(path, filters)
    assert again.indexes == []
    then = [one.then for one in advice.filters]
    assert [one.now for one in again.filters] == pytest.approx(then, rel=0.01)


def test_many_row_groups_are_judged_by_a_sample(table, tmp_path):
    for day in range(3):
        os.makedirs(tmp_path / f"day={day}")
        path = tmp_path / f"day={day}" / "t.parquet"
        part = table.slice(day * 20_000, 20_000)
        ia.write_table(part, path, row_group_size=2000, max_rows_per_page=500)
    filters = [f"id = {table['id'][30_000]}", f"day = 1 AND id = {table['id'][30_000]}", "day = 2"]
    advice = ia.advise(tmp_path, filters)
    assert advice.indexes == ["id:lookup"]
    assert (advice.files, advice.rows, advice.row_groups) == (3, ROWS, 30)
    assert 4 <= advice.sampled <= 12
    assert advice.filters[1].now == pytest.approx(advice.filters[0].now / 3, rel=0.2)
    assert advice.filters[2].reason == "partition values answer it"
    assert ia.advise(tmp_path, filters) == advice
    ia.add_indexes(tmp_path, advice.indexes)
    size = sum(e.length for r in ia.list_indexes(tmp_path) for e in r.indexes)
    assert advice.proposals[0].bytes == pytest.approx(size, rel=0.3)


def test_files_of_each_writer_are_weighted(tmp_path):
    """One file has one row group and a dictionary, the other many row groups of one page each."""
    draw = np.random.default_rng(3)
    users, others = (pa.table({"user": draw.integers(0, 10**9, n)}) for n in (200_000, 100_000))
    pq.write_table(users, tmp_path / "a.parquet", write_page_index=True, max_rows_per_page=2000)
    copy = f"COPY others TO '{tmp_path}/b.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)"
    with duckdb.connect() as connection:
        connection.register("others", others)
        connection.sql(copy)
    condition = f"user = {users['user'][777]}"
    advice = ia.advise(tmp_path, filters=[condition])
    assert advice.indexes == ["user:lookup"]
    (advised,) = advice.filters
    actual = []
    for _ in ("without", "with"):
        actual.append(ia.dataset(tmp_path).explain(filter=condition).planned.bytes.selected)
        ia.add_indexes(tmp_path, advice.indexes)
    assert [advised.now, advised.then] == pytest.approx(actual, rel=0.1)
    assert advised.is_guess  # the other writer's sample has no such user
    assert str(advice).splitlines()[-1].startswith("~ a guess")


def test_the_bytes_read_today_cover_all_files(tmp_path):
    """Even if none of the sampled rows match."""
    draw = np.random.default_rng(7)
    for number in range(12):
        table = pa.table({"day": [number] * 5000, "user": draw.integers(0, 10**9, 5000)})
        indexes = [ia.Distinct("day"), ia.Lookup("user", granule_rows=500)]
        path = tmp_path / f"{number}.parquet"
        ia.write_table(table, path, max_rows_per_page=500, indexes=indexes)
    user = pq.read_table(tmp_path / "7.parquet")["user"][4]
    for condition in (f"user = {user}", "day + 0 = 7", "day = 7 OR user < 0"):
        (advised,) = ia.advise(tmp_path, condition).filters
        planned = ia.dataset(tmp_path).plan([], condition).figures.bytes
        assert advised.now == planned.selected


@pytest.mark.parametrize("page_rows", [ROWS, 20_000])
def test_a_rewrite_is_proposed_for_long_pages_and_saves_the_estimated_bytes(
    page_rows, table, tmp_path
):
    path = tmp_path / "t.parquet"
    ia.write_table(table, path, max_rows_per_page=page_rows)
    filters = [f"id = {table['id'][41_234]}", "ts = 5", "status = 3"]
    advice = ia.advise(path, filters)
    assert advice.page_rows == pytest.approx(page_rows, rel=0.1)
    layout = advice.layout
    assert layout.filters == (0, 1)
    assert (layout.page_rows, layout.bytes) == (INDEXED_PAGE_ROWS, path.stat().st_size)
    assert [proposal.index for proposal in layout.proposals] == ["id:lookup"]
    printed = str(advice).splitlines()
    assert any(line.startswith("intarsia rewrite ") for line in printed)
    assert any(line.startswith("+ id:lookup ") for line in printed)
    assert printed[-1] == f"  intarsia rewrite {path} --rows-per-page 2048 --index id:lookup"
    assert f"A page has up to {advice.page_rows:,} rows" in str(advice)
    rewritten = tmp_path / "rewritten.parquet"
    indexes = [proposal.index for proposal in layout.proposals]
    ia.write_table(table, rewritten, max_rows_per_page=INDEXED_PAGE_ROWS, indexes=indexes)
    whole = ("id > 0", "ts >= 0", "status >= 0")
    for condition, all_rows, one, read in zip(
        filters, whole, advice.filters, layout.reads, strict=True
    ):
        actual, total = (
            ia.dataset(rewritten).plan([], which).figures.bytes.selected
            for which in (condition, all_rows)
        )
        assert actual / total == pytest.approx(read / one.total, rel=0.4)
    (size,) = (e.length for r in ia.list_indexes(rewritten) for e in r.indexes)
    assert layout.proposals[0].bytes == pytest.approx(size, rel=0.3)


def test_no_rewrite_is_proposed_for_short_pages_or_if_it_saves_little(table, tmp_path):
    path = tmp_path / "t.parquet"
    ia.write_table(table, path, max_rows_per_page=INDEXED_PAGE_ROWS)
    assert ia.advise(path, ["id = 5", "ts = 5"]).layout is None
    ia.write_table(table, path, max_rows_per_page=ROWS)
    advice = ia.advise(path, "status = 3")
    assert advice.layout is None
    assert "intarsia rewrite" not in str(advice)
    assert "no index pays" in str(advice)


def test_the_sample_has_few_rows_however_many_filters_there_are(tmp_path, monkeypatch):
    rows = 600_000
    draw = np.random.default_rng(5)
    table = pa.table({name: draw.permutation(rows) for name in "abcdef"})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=50_000)
    built = []
    monkeypatch.setattr(
        advise, "indexed", lambda file, *rest: built.append(file) or indexed(file, *rest)
    )
    filters = [f"{name} = {number}" for name in "abcdef" for number in (7, 77)]
    advice = ia.advise(tmp_path, filters)
    assert 250_000 <= advice.sampled * 50_000 <= 300_000
    kinds, views = 4, advice.sampled
    assert len(built) <= 2 * len("abcdef") ** 2 * kinds * views
    assert len({file.num_rows for file in built if file.num_rows > 50_000}) <= 2


def test_advice_is_printed_as_json_and_as_a_table(paged):
    advice = ia.advise(paged, ["ts = 5", "status = 3"])
    actual = json.loads(json.dumps(advice.to_dict()))
    assert [one["filter"] for one in actual["filters"]] == ["ts = 5", "status = 3"]
    lines = str(advice).splitlines()
    assert lines[0].startswith(f"{paged}: 1 files, 60,000 rows, ")
    assert lines[-2].startswith("1  ts = 5")


def test_filters_may_be_tuples(paged):
    texts = [one.filter for one in ia.advise(paged, ["ts = 5", "status = 3"]).filters]
    actual = ia.advise(paged, [("ts", "=", 5), [("status", "=", 3)]])
    assert [one.filter for one in actual.filters] == ["(ts == 5)", "(status == 3)"]
    assert [one.now for one in actual.filters] == [
        one.now for one in ia.advise(paged, texts).filters
    ]
    with pytest.raises(TypeError, match="not int"):
        ia.advise(paged, [3])


def test_invalid_filters_are_refused(paged):
    with pytest.raises(ia.PredicateError, match="no filter was given"):
        ia.advise(paged, [])
    with pytest.raises(ia.PredicateError, match="nosuch"):
        ia.advise(paged, "nosuch = 1")


def test_a_source_extended_by_later_bytes_reads_as_one():
    whole = bytes(range(100))
    source = ExtendedSource(
        ExtendedSource(BufferSource(whole[:40]), [whole[40:50], b"", whole[50:70]]), [whole[70:]]
    )
    assert source.size == 100
    ranges = [(i, n) for i in range(0, 100, 3) for n in (0, 1, 7, 35) if i + n <= 100]
    assert [bytes(part) for part in source.read(ranges)] == [whole[i : i + n] for i, n in ranges]
    with pytest.raises(ia.FormatError):
        source.read([(99, 2)])


def test_a_sample_contains_the_rows_of_its_row_groups(table, plain):
    sample = sample_of(ia.ParquetFile(plain)._opened, [0, 2])
    assert sample.num_rows == 40_000
    actual = ia.ParquetFile(sample.source).read(["ts", "id"])
    expected = pa.concat_tables([table.slice(0, 20_000), table.slice(40_000, 20_000)])
    assert actual.equals(expected.select(["ts", "id"]))


def test_indexes_that_require_a_page_index_do_not_exclude_each_other(tmp_path):
    chance = np.random.default_rng(7)
    count = 100_000
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "u": [f"{number:032x}" for number in chance.integers(0, 2**62, count)],
            "z": pa.nulls(count, pa.int64()),
            "l": pa.array([[number % 1000, number] for number in range(count)]),
        }
    )
    pq.write_table(table, path, row_group_size=25_000)
    filters = ["z = 5", "lower(u) = 'x'", "list_contains(l, 77777)"]
    alone = ia.advise(path, filters[1:]).indexes
    assert "l:elements" in alone
    assert set(alone) <= set(ia.advise(path, filters).indexes)


def test_files_that_differ(tmp_path):
    rows = pa.table({"a": range(20_000), "b": np.random.default_rng(1).permutation(20_000)})
    settings = {"row_group_size": 10_000, "max_rows_per_page": 500, "write_batch_size": 100}
    pq.write_table(rows.select(["b"]), tmp_path / "0.parquet", **settings)
    pq.write_table(rows, tmp_path / "1.parquet", **settings)
    pq.write_table(rows.select(["b", "a"]), tmp_path / "2.parquet", **settings)
    ia.add_indexes(tmp_path / "1.parquet", ["a:lookup"])
    advice = ia.advise(tmp_path, ["b = 17", "b < 30"])
    assert advice.indexes == ["page_index(b)", "b:lookup"]
    ia.add_indexes(tmp_path, advice.indexes)
    reordered = pa.table({"a": range(9), "b": range(9)})
    pq.write_table(reordered, tmp_path / "3.parquet", write_page_index=True)
    assert ia.advise(tmp_path, ["b IS NULL"]).indexes == []


@pytest.mark.parametrize("name", ["a,b", "a=b", " a", 'a"b', "a'b", "a:b", "a(b", "lower", "x.y"])
def test_proposed_indexes_can_be_added_for_any_column_name(name, tmp_path):
    path = tmp_path / "a.parquet"
    values = np.random.default_rng(1).integers(0, 2**62, 40_000)
    settings = {"row_group_size": 20_000, "max_rows_per_page": 500, "write_batch_size": 100}
    pq.write_table(pa.table({name: values}), path, use_dictionary=False, **settings)
    proposed = ia.advise(path, [pc.field(name) == int(values[100])]).indexes
    assert proposed
    (report,) = ia.add_indexes(path, proposed)
    assert report.added == ("page_index", f"{name}:lookup")
    (report,) = ia.add_indexes(path, [ia.Bloom(name)])
    assert ia.drop_indexes(path, [f"{name}:bloom"])[0].path == str(path)


def test_a_column_without_a_name_does_not_fail(tmp_path):
    pq.write_table(pa.table({"": range(10), "a": range(10)}), tmp_path / "a.parquet")
    assert ia.advise(tmp_path, [pc.field("") == 3, pc.field("a") == 3]).indexes == []


def test_options_are_compared_by_the_filters_that_tell_them_apart():
    reads = [(5.0, 100.0, 1.0), (3.0, 100.0, 1.0)]
    assert advise._differing_reads(reads) == [[5.0], [3.0]]
    assert advise._differing_reads([(1.0, 2.0)]) == [[]]


def test_advice_says_if_all_useful_indexes_exist(tmp_path):
    path = tmp_path / "a.parquet"
    moments = pa.array(range(50_000), pa.timestamp("us"))
    ia.write_table(pa.table({"at": moments}), path)
    for kind in ("lookup", "distinct", "minmax"):
        ia.add_indexes(path, f"{kind}(minute(at))")
    (advised,) = ia.advise(path, "minute(at) = 0").filters
    assert advised.reason == "no other kind of index answers it"
    (advised,) = ia.advise(path, "minute(at) + second(at) = second(at)").filters
    assert advised.reason == "no kind of index answers it"


def test_no_filter_reads_less_than_the_least_that_it_can_read(tmp_path):
    path = tmp_path / "keys.parquet"
    ia.write_table(pa.table({"k": [f"k{n * 7919 % 20_000}" for n in range(20_000)]}), path)
    ia.add_indexes(path, "lookup(k)")
    source = ia.dataset(path)
    (file,) = source.scan_source.files
    requests = [request_of(source.schema, [], pc.field("k") == key) for key in ("k17", "k1x")]
    opened = source.scan_source.cache.as_opened(file.path)
    member = Member(opened, {}, ((0,), (0,)))
    estimator = ReadCostEstimator([member], requests)
    with Workspace() as work:
        index = opened.sections.about(field_term("k"))[0].kind
        views = [replace(view, file=indexed(view.file, [index], work)) for view in estimator.views]
        for measured in (estimator.start(views), estimator.measured(views)):
            assert measured.reads[0] > 0 == measured.reads[1]  # no row has k1x
            assert all(least <= read for read, least in zip(*measured, strict=True))
