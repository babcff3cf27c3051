"""``ia.sql`` reads only the rows needed by LIMIT, ORDER BY … LIMIT, min, max and count(*)."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset import top_k
from intarsia.sql.query.limit_pushdown import UNKNOWN_LIMIT, First, Need
from intarsia.sql.query.scans import scans_of

SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us"),
        "I": pa.int64(),
        "s": pa.string(),
        "st": pa.struct({"a": pa.int64()}),
        "l": pa.list_(pa.int64()),
        "ns": pa.timestamp("ns"),
    }
)
LATEST = Need(firsts=(First("ts", 5, descending=True),))
NEEDS = {
    "SELECT * FROM t LIMIT 5": Need(limit=5),
    "FROM t LIMIT 5 OFFSET 2": Need(limit=7, offset=2),
    "FROM t OFFSET 2 LIMIT 5": Need(limit=7, offset=2),
    "FROM t WHERE i > 3 LIMIT 5 OFFSET 2": Need(limit=7, offset=2),
    "FROM t WHERE i + 1 > 3 LIMIT 5 OFFSET 2": Need(limit=UNKNOWN_LIMIT),
    "FROM t LIMIT 5 OFFSET (SELECT 2)": None,
    "FROM t OFFSET 2": None,
    "SELECT i + 1 FROM t LIMIT 5": None,  # which may overflow
    "SELECT st.a, lower(s), 7 AS x FROM t AS o WHERE o.i > 3 LIMIT 0": Need(limit=0),
    "SELECT i FROM t WHERE s LIKE 'a%' LIMIT 5": Need(limit=5),
    "SELECT i FROM t WHERE i + 1 > 3 LIMIT 5": Need(limit=UNKNOWN_LIMIT),
    "SELECT i FROM t WHERE i > 3 AND s ~ 'a' LIMIT 5": Need(limit=5),
    "SELECT i FROM t WHERE i > 3 AND reverse(s) = 'a' LIMIT 5": Need(limit=UNKNOWN_LIMIT),
    "SELECT i FROM t WHERE random() < 0.5 LIMIT 5": Need(limit=UNKNOWN_LIMIT),
    "SELECT i FROM t WHERE year(ns) = 2020 LIMIT 5": Need(limit=UNKNOWN_LIMIT),
    "SELECT i FROM t WHERE 1 = 1 LIMIT 5": Need(limit=UNKNOWN_LIMIT),
    "SELECT * FROM t LIMIT 10%": None,
    "SELECT * FROM t LIMIT (SELECT 3)": None,
    "SELECT * FROM t LIMIT NULL": None,
    "SELECT DISTINCT i FROM t LIMIT 5": None,
    "SELECT unnest(l) FROM t LIMIT 5": None,
    "SELECT sum(i) FROM t LIMIT 5": None,
    "SELECT first(i) FROM t LIMIT 5": None,
    "SELECT anything(i) FROM t LIMIT 5": None,
    "SELECT count(*) FROM t LIMIT 5": None,
    "SELECT row_number() OVER () FROM t LIMIT 5": None,
    "SELECT i FROM t GROUP BY i LIMIT 5": None,
    "SELECT i FROM t QUALIFY row_number() OVER () < 9 LIMIT 5": None,
    "SELECT a.i FROM t a, range(2) LIMIT 5": None,
    "SELECT i FROM t UNION ALL SELECT 1 LIMIT 5": None,
    "SELECT * FROM (SELECT * FROM t) LIMIT 5": None,
    "WITH c AS (SELECT 1) SELECT * FROM t LIMIT 5": None,
    "SELECT * FROM t USING SAMPLE 5": None,
    "SELECT * FROM t ORDER BY ts DESC LIMIT 5": LATEST,
    "SELECT * FROM t ORDER BY t.ts DESC, lower(s) LIMIT 3 OFFSET 2": LATEST,
    "SELECT s, ts FROM t ORDER BY 2 DESC LIMIT 5": LATEST,
    "SELECT ts AS i FROM t ORDER BY i DESC LIMIT 5": LATEST,
    "SELECT i AS ts, ts AS i FROM t ORDER BY t.ts DESC LIMIT 5": LATEST,
    "SELECT * FROM t ORDER BY i NULLS FIRST LIMIT 5": Need(firsts=(First("I", 5, False, True),)),
    "SELECT lower(s) AS s FROM t ORDER BY s LIMIT 5": None,
    "SELECT s AS i, i AS i FROM t ORDER BY i LIMIT 5": None,
    "SELECT * FROM t ORDER BY -i LIMIT 5": None,
    "SELECT * FROM t ORDER BY st.a LIMIT 5": None,
    "SELECT * FROM t ORDER BY s COLLATE nocase LIMIT 5": None,
    "SELECT * FROM t ORDER BY ALL LIMIT 5": None,
    "SELECT * FROM t ORDER BY 9 LIMIT 5": None,
    "SELECT * FROM t ORDER BY ts": None,
    "SELECT * FROM t WHERE i + 1 > 3 ORDER BY ts LIMIT 5": None,
    "SELECT i::INT FROM t ORDER BY ts LIMIT 5": None,
    "SELECT min(ts), max(t.i) AS x FROM t": Need(firsts=(First("ts", 1), First("I", 1, True))),
    "SELECT max(ts) - INTERVAL 1 HOUR, (max(i) - min(i)) * 2 FROM t": Need(
        firsts=(First("ts", 1, True), First("I", 1, True), First("I", 1))
    ),
    "SELECT max(i)::DOUBLE / 2, 7 FROM t": Need(firsts=(First("I", 1, True),)),
    "SELECT 7 FROM t": None,
    "SELECT max(i + 1), max(ts) FROM t": None,
    "SELECT max(i) + count(*) FROM t": None,
    "SELECT max(i) + product(2) FROM t": None,
    "SELECT max(max(i)) OVER () FROM t": None,
    "SELECT max(i) + (SELECT 1) FROM t": None,
    "SELECT max(i) + i FROM t": None,
    "SELECT min(ts), sum(i) FROM t": None,
    "SELECT max(i, 3) FROM t": None,
    "SELECT max(i) FILTER (WHERE i < 3) FROM t": None,
    "SELECT max(i + 1) FROM t": None,
    "SELECT max(i) OVER () FROM t": None,
    "SELECT max(i) FROM t GROUP BY s": None,
    "SELECT count(*) FROM t": Need(is_number=True),
    "SELECT count(*) AS n FROM t WHERE NOT i > 3": Need(is_number=True),
    "SELECT count(*), count(*) FROM t": Need(is_number=True),
    "SELECT count(i) FROM t": None,
    "SELECT count(DISTINCT i) FROM t": None,
    "SELECT count(*) FROM t WHERE i + 1 > 3": None,
    "SELECT count(*) + 1 FROM t": None,
    "SELECT count(*) FROM t HAVING count(*) > 1": None,
    "EXPLAIN SELECT count(*) FROM t": None,
    # Names that look like other columns.
    "SELECT count(*) FROM t AS o(ts, i) WHERE i > 3": None,
    "SELECT max(i) FROM t AS o(i, ts)": None,
    "SELECT i FROM t AS o(i, ts) ORDER BY i LIMIT 5": None,
    "SELECT count(*) FROM t AS st WHERE st.a > 3": None,
    "SELECT max(nope) FROM t": None,
    "SELECT max(t) FROM t": None,
    "SELECT i FROM t ORDER BY rowid LIMIT 5": None,
}


@pytest.mark.parametrize(("query", "expected"), NEEDS.items(), ids=NEEDS)
def test_the_rows_a_query_needs_are_computed(query, expected):
    (scan,) = scans_of(query, {"t": SCHEMA}).scans
    assert scan.need == expected


ROWS, PAGE = 100_000, 1000


@pytest.fixture(scope="module")
def logs() -> pa.Table:
    random = np.random.default_rng(3)
    rare = np.full(ROWS, "fine")
    rare[random.choice(ROWS, 7, replace=False)] = "bad"
    return pa.table(
        {
            "ts": pa.array(np.arange(ROWS) * 1000, pa.timestamp("us")),
            "n": random.permutation(ROWS),
            "code": random.integers(0, 100, ROWS),
            "rare": rare,
            "x": random.random(ROWS),
            "name": [f"{n:x}" for n in random.integers(0, 2**40, ROWS)],
            "few": pa.array(range(ROWS), mask=np.arange(ROWS) % 3 > 0),
        }
    )


@pytest.fixture(scope="module")
def folder(logs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("needs")
    options = {"max_rows_per_page": PAGE, "row_group_size": 20_000}
    ia.write_table(logs.slice(0, 50_000), folder / "a.parquet", **options)
    ia.write_table(logs.slice(50_000), folder / "b.parquet", **options)
    return folder


PAGES = {
    "SELECT * FROM t LIMIT 10": (7, 7 * 20),
    "SELECT * FROM t LIMIT 10 OFFSET 995": (7, 7 * 20),
    "SELECT * FROM t LIMIT 10 OFFSET 70000": (7, 7),
    "SELECT n, x FROM t AS o LIMIT 3000 OFFSET 70000 -- LIMIT 5": (6, 6),
    "FROM t SELECT ts OFFSET 99990 LIMIT 5000": (1, 1),
    "SELECT ts FROM t LIMIT 5 OFFSET 100000": (0, 0),
    "SELECT n AS offset FROM t LIMIT 2 OFFSET 99999": (1, 1),
    "SELECT ts FROM t WHERE rare = 'bad' LIMIT 1": (1, 120),
    "SELECT * FROM t ORDER BY ts DESC LIMIT 10": (7, 50),
    "SELECT * FROM t ORDER BY ts LIMIT 10 OFFSET 990": (7, 50),
    "SELECT ts, n FROM t ORDER BY n DESC LIMIT 5": (5, 40),
    "SELECT ts, n FROM t WHERE code = 7 ORDER BY n LIMIT 3": (5, 300),
    "SELECT ts FROM t WHERE code = 7 ORDER BY ts DESC LIMIT 5": (2, 60),
    "SELECT name FROM t ORDER BY name LIMIT 3": (3, 40),
    "SELECT x FROM t ORDER BY x LIMIT 3": (3, 40),
    "SELECT min(ts), max(ts), max(n) FROM t": (3, 80),
    "SELECT few FROM t ORDER BY few DESC LIMIT 4": (1, 40),
    "SELECT count(*) FROM t": (0, 0),
    "SELECT count(*) AS n, count(*) FROM t WHERE ts < '1970-01-01 00:00:05.5'": (0, 1),
    "SELECT count(*), count(*) FROM t": (0, 0),
    "SELECT count(*) FROM t WHERE code = 7": (1, 110),
}


@pytest.mark.parametrize(("query", "pages"), PAGES.items(), ids=PAGES)
def test_few_pages_are_read(query, pages, logs, folder):
    data = ia.dataset(folder, reader="pages")
    actual = ia.sql(query, t=data)
    with duckdb.connect() as connection:
        connection.register("t", logs)
        expected = connection.sql(query).to_arrow_table()
    assert actual.equals(expected)
    read = sum(data.scan_source.cache.get(path).pages_read for path in data.files)
    least, most = pages
    assert least <= read <= most


def test_bounds_of_several_columns_are_those_of_duckdb(logs, folder):
    data = ia.dataset(folder)
    query = "SELECT min(ts), max(n) - min(n) AS d FROM t"
    actual = ia.sql(query, t=data)
    with duckdb.connect() as connection:
        connection.register("t", logs)
        assert actual.equals(connection.sql(query).to_arrow_table())


def in_memory(query, table):
    with duckdb.connect() as connection:
        connection.register("t", table)
        return connection.sql(query).to_arrow_table()


def outcome(ask):
    """The rows, or the error."""
    try:
        return ask().to_pylist()
    except duckdb.Error as error:
        return type(error)


def test_other_spellings_of_offset_are_understood(logs, folder, tmp_path):
    data = ia.dataset(folder)
    plan = ia.sql("EXPLAIN SELECT n FROM t LIMIT 2 OFFSET 70000", t=data)
    assert plan.num_rows
    with pytest.raises(duckdb.ParserException):
        ia.sql("SELECT n FROM t LIMIT 70000, 2", t=data)
    query = "SELECT n FROM t LIMIT 2 OFFSET 9223372036854775808"
    assert outcome(lambda: ia.sql(query, t=data)) == outcome(lambda: in_memory(query, logs))
    for name in ("a", "b", "c"):
        ia.write_table(logs.slice(0, 70_000), tmp_path / f"{name}.parquet")
    data = ia.dataset(tmp_path)
    (tmp_path / "c.parquet").write_bytes(b"torn")
    actual = ia.sql("SELECT n FROM t LIMIT 2 OFFSET 70000", t=data)
    assert actual["n"].equals(logs["n"].slice(0, 2))


def test_an_offset_skips_rows_that_pass_the_filter(logs, folder):
    data, query = ia.dataset(folder), "SELECT n FROM t LIMIT 2 OFFSET 70000"
    matching = logs.filter(pc.field("code") < 90)["n"]
    assert ia.sql(query, t=data.filter("code < 90"))["n"].equals(matching.slice(70_000, 2))
    actual = ia.sql(query.replace(" LIMIT", " WHERE code < 90 LIMIT"), t=data)
    assert actual["n"].equals(matching.slice(70_000, 2))
    assert ia.sql(query, t=data.to_table())["n"].equals(logs["n"].slice(70_000, 2))
    assert ia.sql(query, t=ia.dataset(folder, on_corrupt="skip")).num_rows == 2


def test_unprofitable_bounds_are_not_looked_up(logs, folder, tmp_path):
    pq.write_table(logs, tmp_path / "one.parquet", row_group_size=ROWS)
    whole, paged = ia.dataset(tmp_path / "one.parquet"), ia.dataset(folder)

    def first_rows(data, count=5, filter_=None, column="ts"):
        return top_k.first_rows(data, First(column, count, descending=True), filter_)

    assert first_rows(paged) is not None
    assert first_rows(whole) is None  # a row group without pages
    assert first_rows(paged, count=0) is None
    assert first_rows(paged, count=ROWS) is None
    rare = ia.dataset(folder).filter("rare = 'bad'")
    assert first_rows(rare) is None  # an eighth of the rows have lower values
    assert first_rows(paged.filter("n < 500")) is not None
    assert first_rows(paged.filter("ts < '1970-01-01 00:00:01'")) is None  # few rows are left
    few = tmp_path / "few.parquet"
    ia.write_table(logs.slice(0, 1000), few)
    assert first_rows(ia.dataset(few)) is None


def test_order_by_a_value_that_is_no_column_of_the_file(logs, tmp_path):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        ia.write_table(logs, tmp_path / f"day={day}" / "a.parquet")
    for query in (
        "SELECT day, n FROM t ORDER BY day DESC, n LIMIT 2",
        "SELECT max(day) FROM t",
        "SELECT count(*) FROM t WHERE day = 2",
    ):
        actual = ia.sql(query, t=tmp_path)
        assert list(actual.to_pylist()[0].values()) in ([2, 0], [2], [ROWS])


def test_order_by_a_column_of_a_narrower_type_in_one_file(tmp_path):
    wide = pa.table({"n": pa.array(range(ROWS), pa.int64())})
    ia.write_table(wide, tmp_path / "a.parquet", max_rows_per_page=PAGE)
    narrow = pa.table({"n": pa.array(range(ROWS, ROWS + 9), pa.int32())})
    ia.write_table(narrow, tmp_path / "b.parquet")
    ia.write_table(pa.table({"m": [1]}), tmp_path / "c.parquet")
    answer = ia.sql("SELECT n FROM t ORDER BY n DESC LIMIT 2", t=tmp_path)
    assert answer.to_pydict() == {"n": [ROWS + 8, ROWS + 7]}
    (tmp_path / "b.parquet").unlink()
    data = ia.dataset(tmp_path)
    assert ia.sql("SELECT max(n) AS n FROM t", t=data).to_pydict() == {"n": [ROWS - 1]}
    assert data.scan_source.cache.get(data.files[0]).pages_read < 40


def test_errors_are_those_of_reading(folder, tmp_path):
    torn = tmp_path / "a.parquet"
    torn.write_bytes((folder / "a.parquet").read_bytes())
    data = ia.dataset(tmp_path)
    torn.write_bytes(b"PAR1")
    for query in ("SELECT count(*) FROM t WHERE n = 3", "SELECT * FROM t ORDER BY n LIMIT 3"):
        with pytest.raises(ia.FormatError, match=r"a\.parquet"):
            ia.sql(query, t=data)


def test_rows_of_damaged_pages_are_left_out_as_before(folder, tmp_path):
    damaged = bytearray((folder / "a.parquet").read_bytes())
    page = ia.ParquetFile(folder / "a.parquet").pages(0, "n")[3]
    damaged[page.offset + page.header_size + 20] ^= 0xFF
    (tmp_path / "a.parquet").write_bytes(damaged)
    data = ia.dataset(tmp_path / "a.parquet", on_corrupt="skip")
    with pytest.warns(ia.CorruptDataWarning):
        actual = ia.sql("SELECT count(*) AS n FROM t WHERE n >= 0", t=data)
    assert actual.to_pydict() == {"n": [49_000]}
    assert ia.sql("SELECT max(n) AS n FROM t", t=data)["n"][0].as_py() > 90_000


CASES = {
    "SELECT count(*) AS n FROM t WHERE x < 10": [{"n": 10}],
    "SELECT max(x) AS n FROM t WHERE x < 10": [{"n": 9}],
    "SELECT s FROM t WHERE s LIKE '%77' LIMIT 2": [{"s": "s77"}, {"s": "s177"}],
    "SELECT x FROM t WHERE x < 50 ORDER BY x DESC LIMIT 2": [{"x": 49}, {"x": 48}],
}


@pytest.mark.parametrize(("query", "expected"), CASES.items(), ids=CASES)
@pytest.mark.parametrize("names", ["aA", "éÉ", "kK"])
def test_columns_that_differ_by_case_take_no_filter_and_are_all_read(
    names, query, expected, tmp_path
):
    one, other = names
    columns = {"x": range(ROWS), one: range(ROWS), other: range(1, ROWS + 1)}
    table = pa.table(columns | {"s": [f"s{i}" for i in range(ROWS)]})
    ia.write_table(table, tmp_path / "a.parquet", max_rows_per_page=PAGE)
    assert ia.sql(query, t=tmp_path).to_pylist() == expected


def test_an_alias_may_name_columns_anew(logs, folder):
    query = "SELECT max(ts) AS a, min(n) AS b FROM t AS o(n, ts)"
    (actual,) = ia.sql(query, t=folder).to_pylist()
    assert actual == {"a": ROWS - 1, "b": logs["ts"][0].as_py()}
