import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import intarsia as ia
from intarsia.file.page_index_cache import PageIndexes
from intarsia.plan.plan import Amount, Figures
from intarsia.scan.files.file_cache import FileCache
from intarsia.sql.where_clause import parse_where


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    for day in range(3):
        (folder / f"day={day}").mkdir()
        rows = range(day * 10_000, (day + 1) * 10_000)
        table = pa.table({"n": rows, "s": [f"s{i * 7919 % 30_011}" for i in rows]})
        options = {"row_group_size": 5000, "max_rows_per_page": 500, "write_batch_size": 100}
        where = folder / f"day={day}" / "a.parquet"
        ia.write_table(table, where, indexes=[ia.Lookup("s")], use_dictionary=False, **options)
    return folder


def test_a_plan_survives_pickling(lake):
    plan = ia.dataset(lake).plan(["n"], "s = 's7919' OR n BETWEEN 12000 AND 12100")
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_a_plan_names_the_rows_pages_and_bytes_of_an_answer(lake):
    (file,) = ia.dataset(lake).plan(["n"], pc.field("n") == 12_345).files
    assert file.path.endswith("day=1/a.parquet")
    assert list(file.rows) == [(2000, 2500)]
    (read,) = file.reads
    assert (read.row_group, read.column, read.selection.page_rows) == (0, "n", (500,))
    assert file.constants["day"].as_py() == 1
    assert [step.source for step in file.steps] == ["row-group statistics", "page index"]


def test_a_plans_figures_count_selected_and_total(lake):
    figures = ia.dataset(lake).explain(["n"], pc.field("n") == 12_345).planned
    assert (figures.files.selected, figures.files.total) == (1, 3)
    assert (figures.row_groups.selected, figures.row_groups.total) == (1, 6)
    assert (figures.pages.selected, figures.pages.total) == (1, 20)  # of the file that is read
    assert (figures.rows.selected, figures.rows.total) == (500, 30_000)
    assert figures.requests.selected == 1
    assert 0 < figures.bytes.selected < figures.bytes.total / 50


def test_folders_that_cannot_match_are_not_opened(lake, monkeypatch):
    opened = []
    original = FileCache.get
    monkeypatch.setattr(
        FileCache, "get", lambda self, path: opened.append(path) or original(self, path)
    )
    source = ia.dataset(lake)
    assert source.count_rows(pc.field("day") == 2) == 10_000
    assert source.plan(None, "day = 2 AND n = 1").files == ()
    assert {path.rsplit("/", 2)[1] for path in opened} == {"day=2"}


def test_the_explanation_shows_the_rows_left_by_each_source(lake):
    text = str(ia.dataset(lake).explain(filter="s = 's7919'", analyze=True))
    assert "row-group statistics  10,000 rows  100.00%  2 row groups" in text
    assert "index s:lookup           500 rows    5.00%  1 row group" in text
    assert "  rows        1 of 30,000" in text


def test_only_planned_bytes_and_metadata_are_read(lake):
    explanation = ia.dataset(lake).explain(filter="s = 's7919'", analyze=True)
    assert explanation.read.pages.selected <= explanation.planned.pages.selected
    assert explanation.read.files.selected == 3, "every footer and index has to be asked"


def test_figures_are_added():
    one = Figures(files=Amount(1, 2), rows=Amount(3, 4))
    assert one + one == Figures(files=Amount(2, 4), rows=Amount(6, 8))


def test_batches_are_no_larger_than_asked_for(lake):
    batches = list(ia.dataset(lake).to_batches(filter=pc.field("n") >= 0, batch_size=700))
    assert max(batch.num_rows for batch in batches) == 700
    assert sum(batch.num_rows for batch in batches) == 30_000


@pytest.mark.parametrize("indexes", [[], [ia.Lookup("id")]], ids=["bare", "indexed"])
def test_the_plan_covers_the_files_not_yet_read(tmp_path, monkeypatch, indexes):
    for number in range(12):
        start = number * 1000
        ids = [i * 7919 % 12_000 for i in range(start, start + 1000)]
        table = pa.table({"n": range(start, start + 1000), "id": ids})
        options = {"max_rows_per_page": 100, "write_batch_size": 100, "write_page_index": True}
        ia.write_table(table, tmp_path / f"{number:02}.parquet", indexes=indexes, **options)
    decoded, original = [], PageIndexes._offset_index
    monkeypatch.setattr(
        PageIndexes, "_offset_index", lambda *args: decoded.append(args) or original(*args)
    )
    for text in ("id = 7919", "id IN (1, 5, 77)", "n < 2500", "n >= 0", "id = -1"):
        data = ia.dataset(tmp_path)
        where = parse_where(text, data.schema)
        holding = {path for path in data.files if ia.dataset(path).count_rows(filter=where)}
        decoded.clear()
        left = data.plan_of_left(["n", "id"], where).files
        needed = sum(file.rows.num_rows < 1000 for file in left)
        assert {file.path for file in left} == holding
        assert len(decoded) <= len(left) + needed, "one a filter, another where a part is read"
        whole = {file.path: file for file in ia.dataset(tmp_path).plan(["n", "id"], where).files}
        for file in left:
            known = whole[file.path]
            assert (file.rows, file.reads, file.binding) == (known.rows, known.reads, known.binding)
            assert [c.bytes for c in file.columns] == [c.bytes for c in known.columns]


@pytest.mark.parametrize("files", [3, 4])
def test_plans_and_scans_use_the_catalog_of_the_same_folders(files, tmp_path):
    for number in range(files):
        table = pa.table({"n": range(number * 10, number * 10 + 10)})
        ia.write_table(table, tmp_path / f"{number}.parquet")
    ia.build_catalog(tmp_path)
    opened = []
    for query in (ia.Dataset.plan, ia.Dataset.to_table):
        data = ia.dataset(tmp_path, reader="pages").profiled()
        result = query(data, filter=pc.field("n") == 25)
        opened.append(sorted(data.scan_source.cache.profiled))
        if query is ia.Dataset.plan:
            assert result.figures.rows == Amount(10, files * 10)
            assert result.figures.files == Amount(1, files)
    assert opened[0] == opened[1]
    assert len(opened[0]) == (files if files < 4 else 1)


def test_no_pages_are_counted_of_files_without_candidate_rows(lake, monkeypatch):
    loaded = []
    load = PageIndexes.load

    def watched(self, offsets, columns):
        offsets, columns = list(offsets), list(columns)
        loaded.extend(offsets)
        return load(self, offsets, columns)

    monkeypatch.setattr(PageIndexes, "load", watched)
    plan = ia.dataset(lake).plan(["n"], pc.field("n") == -1)
    assert plan.figures.pages == Amount(0, 0)
    assert plan.figures.rows == Amount(0, 30_000)
    assert not loaded
