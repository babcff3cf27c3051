"""Indexes lost or stale after a rewrite cause one warning, and the remaining ones are used."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia import errors

ROWS, FILES = 3000, 5


def table_of(i):
    start = i * ROWS
    keys = [f"k{row * 7919 % 100_003:06}" for row in range(start, start + ROWS)]
    return pa.table({"k": keys, "n": range(start, start + ROWS)})


def key(row):
    return pc.field("k") == f"k{row * 7919 % 100_003:06}"


@pytest.fixture
def lake(tmp_path):
    """Five files: two with the index, one stale, one that never had it, and one that lost it."""
    folder = tmp_path / "lake"
    folder.mkdir()
    for i in range(FILES):
        path = folder / f"{i}.parquet"
        indexes = [] if i == 3 else [ia.Lookup("k", granule_rows=100)]
        ia.write_table(table_of(i), path, indexes=indexes, row_group_size=1000)
    metadata = pq.read_schema(folder / "2.parquet").metadata or {}
    key_values = pq.ParquetFile(folder / "2.parquet").metadata.metadata
    pq.write_table(table_of(2).replace_schema_metadata(metadata | key_values), folder / "2.parquet")
    pq.write_table(table_of(4), folder / "4.parquet")
    return folder


def test_a_data_set_warns_once_and_says_how_many_files_and_what_to_do(lake):
    source = ia.dataset(lake)
    expected = table_of(0).slice(7, 1)
    message = (
        r"of 5 files looked into, 1 have indexes from before a rewrite, "
        r"and 2 lack k:lookup, such as .*2\.parquet: they are read without these indexes; "
        r"intarsia\.add_indexes\(path, \['lookup\(k, granule_rows=100\)'\], replace=False\) "
        r"adds them"
    )
    with pytest.warns(ia.IntarsiaWarning, match=message) as caught:
        assert source.to_table(filter=key(7)).equals(expected)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for row in (7, ROWS + 3, 2 * ROWS + 5, 3 * ROWS, 5 * ROWS - 1):
            assert source.to_table(filter=key(row)).column("n").to_pylist() == [row]
            assert source.count_rows(filter=key(row)) == 1
        assert "the file was rewritten since" in str(source.explain(filter=key(7)))


@pytest.mark.parametrize(
    "ask",
    [
        lambda source: source.count_rows(filter=key(7)),
        lambda source: source.plan(filter=key(7)),
        lambda source: source.explain(filter=key(7)),
        lambda source: list(source.to_batches(filter=key(7))),
        lambda source: source.filter(key(7)).to_table(),
    ],
    ids=["count_rows", "plan", "explain", "to_batches", "filter"],
)
def test_everything_that_uses_indexes_warns(lake, ask):
    with pytest.warns(ia.IntarsiaWarning, match="1 have indexes .* 2 lack k:lookup"):
        ask(ia.dataset(lake))


def test_files_that_have_the_index_are_read_by_it_and_the_others_without(lake):
    source = ia.dataset(lake)
    expected = pc.field("k").isin([f"k{i * ROWS * 7919 % 100_003:06}" for i in range(FILES)])
    with pytest.warns(ia.IntarsiaWarning):
        plan = source.plan(filter=expected)
    rows = {file.path[-9]: file.figures.rows.selected for file in plan.files}
    steps = {file.path[-9]: [s.source for s in file.steps] for file in plan.files}
    assert {name: "index k:lookup" in own for name, own in steps.items()} == {
        "0": True,
        "1": True,
        "2": False,
        "3": False,
        "4": False,
    }
    assert max(rows["0"], rows["1"]) <= 100
    assert all(rows[name] > 100 for name in "234")
    actual = source.to_table(filter=expected).column("n").to_pylist()
    assert actual == [i * ROWS for i in range(FILES)]


def test_no_warning_if_all_files_have_an_index_or_none_has(tmp_path):
    for folder, indexes in (("all", [ia.Lookup("k")]), ("none", [])):
        (tmp_path / folder).mkdir()
        for i in range(3):
            ia.write_table(table_of(i), tmp_path / folder / f"{i}.parquet", indexes=indexes)
        assert ia.dataset(tmp_path / folder).to_table(filter=key(7)).num_rows == 1


def test_a_scan_without_a_filter_does_not_warn(lake):
    source = ia.dataset(lake)
    assert source.to_table().equals(pads.dataset(lake).to_table())
    assert source.count_rows() == FILES * ROWS


def test_verify_and_the_list_report_it(lake):
    findings = {}
    for finding in ia.verify(lake):
        findings.setdefault(finding.where.file[-9], []).append(str(finding))
    assert set(findings) == {"2", "3", "4"}
    assert "the file was rewritten since" in findings["2"][0]
    assert all("no index k:lookup, which 2 of the 5 files have" in findings[i][-1] for i in "234")
    reports = ia.list_indexes(lake)
    assert [bool(report.indexes) for report in reports] == [True, True, False, False, False]
    assert [bool(report.problems) for report in reports] == [False, False, True, False, False]


def test_verify_asks_for_no_index_on_a_column_that_a_file_lacks(tmp_path):
    people = pa.table({"name": ["a"], "home": [{"city": "b"}], "tags": [["c"]]})
    indexes = [ia.Lookup("name"), ia.Lookup("home.city"), ia.Elements("tags")]
    ia.write_table(people, tmp_path / "a.parquet", indexes=indexes)
    ia.write_table(people, tmp_path / "b.parquet", indexes=indexes[:1])
    others = pa.table({"named": [1], "home": [{"street": 2}]})
    ia.write_table(others, tmp_path / "c.parquet")
    findings = ia.verify(tmp_path)
    assert {finding.where.file for finding in findings} == {str(tmp_path / "b.parquet")}
    assert [finding.message for finding in findings] == [
        f"it has no index {name}, which 1 of the 2 files have"
        for name in ("home.city:lookup", "tags:elements")
    ]


def test_listing_and_verifying_in_threads_leave_warning_filters_unchanged(lake):
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ia.list_indexes(lake), range(40)))
        list(pool.map(lambda _: ia.verify(lake), range(8)))
    assert warnings.filters == before
    with pytest.warns(ia.IntarsiaWarning):
        ia.dataset(lake).to_table(filter=key(7))


def test_the_call_in_the_warning_adds_the_index_with_the_same_settings(tmp_path):
    for part in range(3):
        pq.write_table(table_of(part), tmp_path / f"{part}.parquet")
    ia.add_indexes(tmp_path, ["ngram(k, granule_rows=512)", "n:lookup"])
    ia.drop_indexes(tmp_path / "1.parquet", ["k:ngram"])
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    with pytest.warns(ia.IntarsiaWarning) as caught:
        ia.dataset(tmp_path).count_rows(filter=key(7))
    said = str(caught[0].message).partition("intarsia.add_indexes(path, ")[2].partition(")'], ")
    assert (said[0], said[2][:13]) == ("['ngram(k, granule_rows=512", "replace=False")
    reports = ia.add_indexes(tmp_path, ["ngram(k, granule_rows=512)", "n:lookup"], replace=False)
    assert {(e.name, e.params["granule_rows"]) for r in reports for e in r.indexes} == {
        ("k:ngram", 512),
        ("n:lookup", reports[0].indexes[-1].params["granule_rows"]),
    }
    now = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert [name for name in now if now[name] != before[name]] == ["1.parquet"]


def test_adding_the_index_again_ends_the_warning(lake):
    ia.add_indexes(lake, ["k:lookup"])
    source = ia.dataset(lake)
    assert source.to_table(filter=key(2 * ROWS + 5)).column("n").to_pylist() == [2 * ROWS + 5]
    assert ia.verify(lake) == []


@pytest.mark.parametrize("apart", [False, True])
def test_a_stale_sidecar_is_reported_and_can_be_rebuilt_or_dropped(tmp_path, apart):
    folder = tmp_path / "lake"
    folder.mkdir()
    sidecar = str(tmp_path / "beside") if apart else True
    for part in range(2):
        pq.write_table(table_of(part), folder / f"{part}.parquet")
    ia.add_indexes(folder, ["n:lookup"])
    ia.add_indexes(folder, ["k:lookup", "n:minmax"], sidecar=sidecar)
    pq.write_table(table_of(2), folder / "1.parquet")
    options = {"sidecar": sidecar} if apart else {}

    with pytest.warns(ia.IntarsiaWarning) as caught:
        actual = ia.dataset(folder, **options).to_table(filter=key(2 * ROWS + 5))
    assert actual.column("n").to_pylist() == [2 * ROWS + 5]
    (said,) = [str(one.message) for one in caught]
    assert "2 files looked into, 1 have indexes from before a rewrite" in said
    call = f"intarsia.add_indexes(path, ['k:lookup', 'n:minmax'], sidecar={sidecar!r}, replace"
    assert call in said
    assert "intarsia.add_indexes(path, ['n:lookup'], replace=False)" in said

    ia.drop_indexes(folder / "1.parquet", ["k:lookup"], sidecar=sidecar)
    assert len(list(tmp_path.rglob("*.intarsia"))) == 1
    with pytest.warns(ia.IntarsiaWarning, match="1 lack k:lookup"):
        ia.dataset(folder, **options).to_table(filter=key(2 * ROWS + 5))
    ia.add_indexes(folder, ["n:lookup"], replace=False)
    ia.add_indexes(folder, ["k:lookup", "n:minmax"], sidecar=sidecar, replace=False)
    actual = ia.dataset(folder, **options).to_table(filter=key(2 * ROWS + 5))
    assert actual.column("n").to_pylist() == [2 * ROWS + 5]
    assert ia.verify(folder, sidecar=sidecar if apart else None) == []


@pytest.mark.parametrize("use_threads", [False, True])
def test_a_warning_names_the_line_that_called(lake, use_threads):
    for ask in (
        lambda ds: ds.to_table(filter=key(7), use_threads=use_threads),
        lambda ds: list(ds.to_batches(filter=key(7), use_threads=use_threads)),
        lambda ds: ds.count_rows(filter=key(7), use_threads=use_threads),
    ):
        with pytest.warns(ia.IntarsiaWarning, match="lack k:lookup") as caught:
            ask(ia.dataset(lake))
        assert {warning.filename for warning in caught} == {__file__}


def test_a_warning_from_another_thread_names_a_line_of_intarsia():
    with ThreadPoolExecutor(1) as pool, pytest.warns(ia.IntarsiaWarning, match="told") as caught:
        pool.submit(errors.warn, "told").result()
    assert [warning.filename for warning in caught] == [errors.__file__]


def test_files_without_the_column_lack_no_index_on_it(tmp_path):
    maps = pa.array([[("k", "v")]] * 10, pa.map_(pa.string(), pa.string()))
    indexes = ["attrs:entries", "lookup(attrs['k'])", "s.x:lookup", "n:lookup"]
    rows = {"n": range(10), "attrs": maps, "s": [{"x": i} for i in range(10)]}
    ia.write_table(pa.table(rows), tmp_path / "0.parquet", indexes=indexes)
    ia.write_table(pa.table({"n": range(10)}), tmp_path / "1.parquet", indexes=["n:lookup"])
    source = ia.dataset(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ia.IntarsiaWarning)
        assert source.count_rows(filter="attrs['k'] = 'v' AND n = 3 AND s.x = 3") == 1
        assert source.count_rows(filter="n = 3") == 2
    assert ia.verify(tmp_path) == []
    ia.write_table(pa.table(rows), tmp_path / "2.parquet", indexes=["n:lookup"])
    with pytest.warns(ia.IntarsiaWarning, match="1 lack attrs:entries") as caught:
        ia.dataset(tmp_path).count_rows(filter="attrs['k'] = 'v'")
    assert "1 lack attrs['k']:lookup" in str(caught[0].message)
    actual = [str(finding) for finding in ia.verify(tmp_path)]
    assert len(actual) == 3
    assert all("2.parquet" in one and "1 of the 2 files" in one for one in actual)


LIST, STRUCT = pa.list_(pa.string()), pa.struct({"x": pa.string()})
COLUMNS = {
    pa.string(): ["v001"] * 10,
    pa.int64(): range(10),
    LIST: [["v001"]] * 10,
    STRUCT: [{"x": "v001"}] * 10,
}


@pytest.mark.parametrize(
    ("index", "fitting", "other"),
    [
        ("w:ngram", pa.string(), pa.int64()),
        ("w:words", pa.string(), pa.int64()),
        ("w:lookup", pa.string(), LIST),
        ("w:lookup", pa.int64(), STRUCT),
        ("w.x:lookup", STRUCT, pa.string()),
        ("lookup(lower(w))", pa.string(), pa.int64()),
        ("w:elements", LIST, pa.string()),
    ],
)
def test_files_whose_column_has_another_type_lack_no_index_on_it(index, fitting, other, tmp_path):
    for number, kind in enumerate((fitting, fitting, other, other)):
        indexes = ["n:lookup", index] if number == 0 else ["n:lookup"]
        table = pa.table({"n": range(10), "w": pa.array(COLUMNS[kind], kind)})
        ia.write_table(table, tmp_path / f"{number}.parquet", indexes=indexes)
    (_, name), *_ = ([entry.name for entry in one.indexes] for one in ia.list_indexes(tmp_path))

    with pytest.warns(ia.IntarsiaWarning) as caught:
        ia.dataset(tmp_path).plan(filter="n = 3")
    assert f"of 4 files looked into, 1 lack {name}, such as " in str(caught[0].message)
    (actual,) = ia.verify(tmp_path)
    assert actual.message == f"it has no index {name}, which 1 of the 2 files have"
    assert [bool(one.unfit) for one in ia.list_indexes(tmp_path)] == [False, False, True, True]

    ia.add_indexes(tmp_path / "1.parquet", [index], replace=False)
    assert ia.verify(tmp_path) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ia.dataset(tmp_path).plan(filter="n = 3")
