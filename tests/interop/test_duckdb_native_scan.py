"""Files that ``ia.sql`` hands to DuckDB's own reader: the same answers as over tables in memory."""

from __future__ import annotations

import datetime
import math
import time
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset.engine_hand_over import HandOver, Refusal, hand_over
from intarsia.engines.duckdb import native_scan
from intarsia.engines.duckdb import sql as duckdb_sql
from intarsia.scan.scan import Part

ROWS = 4_000
NAN, INF = math.nan, math.inf
FLOATS = [1.5, NAN, -0.0, 0.0, None, INF, -INF, 2.0]
NUMBERS = list(range(ROWS))


def every(values: list) -> list:
    """Repeats values up to the number of rows."""
    return [values[n % len(values)] for n in NUMBERS]


def table() -> pa.Table:
    moments = [datetime.datetime(2026, 1, 1) + datetime.timedelta(minutes=n) for n in NUMBERS]
    return pa.table(
        {
            "i": NUMBERS,
            "mixed": [n * 7_919 % 4_001 for n in NUMBERS],
            "i8": pa.array(every([1, -128, None, 127]), pa.int8()),
            "u64": pa.array(every([0, 2**64 - 1, None]), pa.uint64()),
            "b": every([True, False, None]),
            "f": pa.array(every(FLOATS), pa.float32()),
            "d": pa.array(every(FLOATS), pa.float64()),
            "plain": pa.array([n / 7 for n in NUMBERS], pa.float64()),
            "s": every(["", "a", "it's", "ä€", None, "x" * 300]),
            "raw": every([b"", b"\x00\xff", None]),
            "day": every([datetime.date(1970, 1, 1), datetime.date(2026, 11, 28), None]),
            "ts": pa.array(moments, pa.timestamp("us")),
            "tz": pa.array(moments, pa.timestamp("us", "Europe/Berlin")),
            "dec": pa.array(every([Decimal("1.23"), Decimal("-9.99"), None]), pa.decimal128(5, 2)),
            "long": pa.array(every([Decimal(10) ** 30, None]), pa.decimal128(38, 2)),
            "u": pa.array(every([uuid.UUID(int=7).bytes, None]), pa.uuid()),
            "few": pa.array(every(["red", "blue", None])).dictionary_encode(),
            "l": pa.array(every([[1, None], [], None]), pa.list_(pa.int64())),
            "st": every([{"a": 1, "b": "x"}, {"a": None, "b": None}, None]),
            "m": pa.array(every([[("k", 1)], [], None]), pa.map_(pa.string(), pa.int64())),
        }
    )


QUERIES = """
SELECT * FROM t ORDER BY i
SELECT i FROM t WHERE d > 5 ORDER BY i
SELECT i FROM t WHERE d = 'nan' OR isnan(f) ORDER BY i
SELECT i FROM t WHERE d < 1 AND NOT f > 1 ORDER BY i
SELECT i FROM t WHERE f = 0.0 OR d = -0.0 ORDER BY i
SELECT min(plain), max(plain), max(d), max(f), min(f) = 'inf' FROM t
SELECT min(i8), max(u64), min(s), max(s), min(raw), max(day), min(ts), max(tz), max(dec) FROM t
SELECT i FROM t ORDER BY d DESC, i LIMIT 5
SELECT i FROM t ORDER BY plain DESC LIMIT 5
SELECT s, count(*), sum(i), round(avg(plain), 6) FROM t GROUP BY s ORDER BY s
SELECT few, b, max(f) FROM t GROUP BY ALL ORDER BY ALL
SELECT i FROM t WHERE i8 IN (1, 127) AND u64 > 0 ORDER BY i
SELECT i FROM t WHERE s = 'it''s' OR s LIKE 'ä%' ORDER BY i
SELECT i FROM t WHERE raw = '\\x00\\xFF'::BLOB ORDER BY i
SELECT i FROM t WHERE day > DATE '2000-01-01' AND ts < TIMESTAMP '2026-01-02' ORDER BY i
SELECT i FROM t WHERE tz >= TIMESTAMPTZ '2026-01-03 00:00:00+01' ORDER BY i
SELECT i FROM t WHERE dec = 1.23 OR long > 0 ORDER BY i
SELECT i FROM t WHERE u = '00000000-0000-0000-0000-000000000007' ORDER BY i
SELECT i FROM t WHERE list_contains(l, 1) AND st.b = 'x' AND m['k'] = 1 ORDER BY i
SELECT i, st.a, l[1] FROM t WHERE few = 'red' ORDER BY i
SELECT count(*) FROM t WHERE few IS NULL
SELECT i FROM t WHERE i = 77 OR i BETWEEN 3000 AND 3010 ORDER BY i
SELECT i FROM t WHERE mixed = 77 ORDER BY i
SELECT i, s, d FROM t WHERE mixed IN (3000, 7, -1) AND d > 0 ORDER BY i
SELECT DISTINCT i8, b FROM t ORDER BY ALL
SELECT a.i FROM t AS a JOIN t AS o ON a.i = o.i + 1 WHERE o.i < 20 ORDER BY 1
SELECT i, row_number() OVER (ORDER BY d DESC, i) AS n FROM t QUALIFY n < 5 ORDER BY n
SELECT i FROM t EXCEPT SELECT i FROM t WHERE i > 9 ORDER BY i
SELECT count(*) FROM (PIVOT t ON few USING count(*))
""".strip().splitlines()
WRITERS = ["pyarrow", "pyarrow, two files", "pages", "indexes", "DuckDB", "Polars"]


def written(writer: str, data: pa.Table, folder: Path) -> Path:
    """A folder with the rows of ``data``, as another tool writes them, in the same order."""
    folder.mkdir()
    path = folder / "a.parquet"
    if writer == "pyarrow":
        pq.write_table(data, path, row_group_size=1_000)
    elif writer == "pyarrow, two files":
        pq.write_table(data.slice(0, 1_500), path, data_page_version="2.0")
        pq.write_table(data.slice(1_500), folder / "b.parquet", use_dictionary=False)
    elif writer == "pages":
        ia.write_table(data, path, max_rows_per_page=100, row_group_size=1_000)
    elif writer == "indexes":
        pq.write_table(data, path, row_group_size=500)
        lookup = ia.Lookup("mixed", granule_rows=128)
        ia.add_indexes(path, [lookup, "s:lookup", "plain:minmax", "u:lookup"])
    elif writer == "DuckDB":
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("t", data)
            connection.execute(f"COPY t TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    else:
        pl.DataFrame(data.drop_columns(["m", "u"])).write_parquet(path, row_group_size=1_000)
    return folder


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("lakes")
    return {name: written(name, table(), root / str(n)) for n, name in enumerate(WRITERS)}


@pytest.fixture(scope="module")
def memory() -> dict[str, pa.Table]:
    """The rows in memory, which give the expected answer of each query."""
    return {"all": table()}


@pytest.mark.parametrize("writer", WRITERS)
def test_answers_are_those_over_tables_in_memory(writer: str, lakes: dict[str, Path]) -> None:
    data = ia.dataset(lakes[writer])
    rows = table().select(data.schema.names)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", rows)
        for query in QUERIES:
            try:
                expected = connection.sql(query).to_arrow_table()
            except duckdb.BinderException:  # the writer cannot write this column
                continue
            for reader in ("engine", "auto", "pages"):
                actual = ia.sql(query, t=data.with_options(reader=reader))
                assert str(actual.to_pylist()) == str(expected.to_pylist()), (query, reader)


@pytest.mark.parametrize("writer", WRITERS)
def test_plain_columns_of_all_writers_are_handed_over(writer: str, lakes: dict[str, Path]) -> None:
    data = ia.dataset(lakes[writer])
    handed = hand_over(data.scan_source, ["i", "s", "d", "ts", "dec"])
    assert isinstance(handed, HandOver)
    assert handed.files == tuple(data.files)
    assert handed.with_hidden_nan == (() if writer == "DuckDB" else ("d",))


def test_an_index_tells_duckdb_which_rows_to_read(lakes: dict[str, Path]) -> None:
    data = ia.dataset(lakes["indexes"], reader="engine")
    handed = hand_over(data.scan_source, data.schema.names, pc.field("mixed") == 3_333)
    assert isinstance(handed, HandOver)
    (rows,) = handed.rows.values()
    assert rows.num_rows <= 128
    assert data.head(ROWS)["mixed"].to_pylist().index(3_333) in rows.rows()
    query = "EXPLAIN SELECT * FROM t WHERE mixed = 3333"
    (plan,) = ia.sql(query, t=data)["explain_value"].to_pylist()
    assert "file_row_number" in plan


BY_BOUNDS = """
SELECT min(x), max(x), min(y), max(y) FROM t
SELECT max(y) FROM t
SELECT max(y) FROM t WHERE i > 2
SELECT "max"(y), y.max() FROM t GROUP BY y ORDER BY y
SELECT max/* a comment */(y) FROM t
SELECT max -- and
(y) FROM t
SELECT i FROM t WHERE y >= ALL (SELECT y FROM t)
SELECT i FROM t WHERE y = (SELECT max(y) FROM t)
SELECT i FROM t WHERE x > ANY (SELECT y FROM t) ORDER BY i
SELECT x FROM t ORDER BY x DESC NULLS LAST LIMIT 6
SELECT y FROM t ORDER BY y DESC LIMIT 2
SELECT y FROM (SELECT y, row_number() OVER (ORDER BY y DESC) AS n FROM t) WHERE n <= 1
SELECT i FROM t WHERE x > 100 ORDER BY i
SELECT i FROM t WHERE NOT x <= 100 ORDER BY i
SELECT i FROM t WHERE x <= 100 ORDER BY i
SELECT i FROM t WHERE x BETWEEN 2 AND 'nan' ORDER BY i
SELECT arg_max(i, y), quantile_disc(y, 1.0), last(y ORDER BY y) FROM t
SELECT a.i FROM t AS a JOIN t AS b ON a.y < b.x ORDER BY ALL
SELECT y > 1e6, x > 1e6, x < 1e6 FROM t ORDER BY i
SUMMARIZE SELECT y FROM t
SELECT * FROM (PIVOT t ON i % 2 USING max(y)) ORDER BY ALL
""".replace("and\n", "and\0").split("\n")[1:-1]


@pytest.mark.parametrize("query", [query.replace("\0", "\n") for query in BY_BOUNDS])
def test_bounds_that_ignore_nan_are_not_used_as_answers(query: str, tmp_path: Path) -> None:
    x = [1.0, 2.0, NAN, 3.0, None, -5.0, 7.0, 7.0, NAN, NAN, NAN, NAN]
    rows = pa.table({"i": range(12), "x": x, "y": [n + 0.5 for n in range(12)]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=3)
    actual = ia.sql(query, t=ia.dataset(tmp_path, reader="engine"))
    with duckdb.connect() as connection:
        connection.register("t", rows)
        expected = connection.sql(query).to_arrow_table()
    assert str(actual.to_pylist()) == str(expected.to_pylist())


def test_duckdb_skips_row_groups_by_float_bounds_but_does_not_answer_by_them(
    tmp_path: Path,
) -> None:
    rows = pa.table({"i": range(12), "y": [n + 0.5 for n in range(12)]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=3)
    data = ia.dataset(tmp_path, reader="engine")
    for query, is_pushed in {
        "SELECT count(*), avg(y) FROM t WHERE y > 9": True,
        "SELECT i FROM t WHERE y > 9 AND (i < 5 OR i IN (7, 9))": True,
        "SELECT max(i) FROM t WHERE y > 9": False,
    }.items():
        (plan,) = ia.sql(f"EXPLAIN {query}", t=data)["explain_value"].to_pylist()
        assert "READ_PARQUET" in plan
        assert ("CASE" not in plan) == is_pushed


def test_a_file_that_is_replaced_meanwhile_is_read_as_it_is(
    lakes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes((lakes["indexes"] / "a.parquet").read_bytes())
    data, begin = ia.dataset(path, reader="engine"), duckdb_sql.with_files

    def replaced(query: str, handed: Mapping[str, HandOver]) -> str:
        assert all(files.rows for files in handed.values())
        other = table().slice(3_000)  # other row numbers
        pq.write_table(other, tmp_path / "new", row_group_size=500)
        (tmp_path / "new").replace(path)
        return begin(query, handed)

    monkeypatch.setattr(duckdb_sql, "with_files", replaced)
    value = table()["mixed"][3_456].as_py()
    actual = ia.sql(f"SELECT i FROM t WHERE mixed = {value}", t=data)
    assert actual.to_pylist() == [{"i": 3_456}]


@pytest.mark.parametrize("text", ["x" * 200_000, "x (" * 60_000, " " * 200_000, "-(" * 90_000])
def test_a_long_string_in_a_query_takes_linear_time(text: str) -> None:
    handed = HandOver((), pa.schema([]), {}, {}, (), (), "")
    start = time.process_time()
    native_scan.with_files(f"SELECT s FROM t WHERE s <> '{text}'", {"t": handed})
    assert time.process_time() - start < 5  # for each character the rest of its word: minutes


HIVE = {
    "s": ("VARCHAR", ["a", "b-c", None]),
    "n": ("INTEGER", [7, -8, None]),
    "n64": ("BIGINT", [2**40, 0, None]),
    "d": ("DATE", ["2026-01-01", "1970-01-01", None]),
    "odd": ("VARCHAR", ["a b", "x/y=z", "ä"]),
    "ts": ("TIMESTAMP", ["2026-01-01 10:00:00", "2026-01-01 11:00:00", None]),
}


@pytest.mark.parametrize("key", HIVE)
def test_folders_give_the_same_values(key: str, tmp_path: Path) -> None:
    kind, values = HIVE[key]
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT unnest(?)::{kind} AS k, range AS v FROM range(10)", [values]
        )
        connection.execute(f"COPY t TO '{tmp_path / 'lake'}' (FORMAT parquet, PARTITION_BY (k))")
        for query in (
            "SELECT k, count(*), sum(v) FROM t GROUP BY k ORDER BY k",
            "SELECT v FROM t WHERE k IS NULL ORDER BY v",
            "SELECT v FROM t WHERE k = (SELECT min(k) FROM t) ORDER BY v",
        ):
            expected = connection.sql(query).fetchall()
            for reader in ("engine", "pages"):
                data = ia.dataset(tmp_path / "lake", reader=reader)
                actual = ia.sql(query, t=data)
                assert [tuple(row.values()) for row in actual.to_pylist()] == expected


REFUSED = {
    "milliseconds": pa.array([1, 2], pa.timestamp("ms")),
    "times": pa.array([1, 2], pa.time64("us")),
    "durations": pa.array([1, 2], pa.duration("us")),
    "half floats": pa.array([1.0, 2.0], pa.float16()),
    "JSON": pa.array(["{}", "1"], pa.json_()),
    "floats in lists": pa.array([[1.0, NAN], [2.0]], pa.list_(pa.float64())),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusual_columns_are_read_by_pages(name: str, tmp_path: Path) -> None:
    rows = pa.table({"i": [1, 2], "x": REFUSED[name]})
    pq.write_table(rows, tmp_path / "a.parquet")
    data = ia.dataset(tmp_path / "a.parquet", reader="engine")
    assert isinstance(hand_over(data.scan_source, ["i"]), HandOver)
    why = hand_over(data.scan_source, ["i", "x"])
    assert isinstance(why, Refusal)
    assert "x" in why.reason
    assert ia.sql("SELECT i, x FROM t ORDER BY i", t=data)["i"].to_pylist() == [1, 2]


def test_data_sets_that_only_our_reader_can_read(tmp_path: Path) -> None:
    for name, rows in (("a", {"i": [1], "n": [2]}), ("b", {"i": [3]})):
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    lacking = ia.dataset(tmp_path)
    pq.write_table(pa.table({"i": pa.array([3], pa.int32())}), tmp_path / "c.parquet")
    other_type = ia.dataset([tmp_path / "a.parquet", tmp_path / "c.parquet"])
    odd = tmp_path / "a*[1].parquet"
    pq.write_table(pa.table({"i": [1]}), odd)
    cases = {
        "missing": (lacking, ["i", "n"]),
        "read as": (other_type, ["i"]),
        "pattern": (ia.dataset([odd]), ["i"]),
        "twice": (ia.dataset([tmp_path / "a.parquet"] * 2), ["i"]),
        "filter of its own": (lacking.filter("i > 0"), ["i"]),
        "checked": (ia.dataset(tmp_path / "a.parquet", on_corrupt="raise"), ["i"]),
        "was given": (ia.dataset(tmp_path / "a.parquet", reader="pages"), ["i"]),
    }
    for message, (data, columns) in cases.items():
        why = hand_over(data.scan_source, columns)
        assert isinstance(why, Refusal)
        assert message in why.reason
        expected = pads.dataset(data.to_table(columns)).count_rows()
        assert ia.sql("SELECT i FROM t", t=data).num_rows == expected


def test_errors_name_the_place_as_our_reader_does(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"i": NUMBERS, "s": every(["some", "text"])}), path, use_dictionary=False
    )
    data = ia.dataset(path, reader="engine")
    assert ia.sql("SELECT sum(i) AS n FROM t", t=data).to_pylist() == [{"n": sum(NUMBERS)}]
    content = bytearray(path.read_bytes())
    content[40:1_000] = b"\xff" * 960
    path.write_bytes(content)
    for reader in ("engine", "pages"):
        with pytest.raises(ia.FormatError, match=r"a\.parquet, row group 0, column i"):
            ia.sql("SELECT sum(i), max(s) FROM t", t=ia.dataset(path, reader=reader))
    path.unlink()
    with pytest.raises(ia.PathError, match=r"a\.parquet"):
        ia.sql("SELECT sum(i) FROM t", t=data)


def test_an_unknown_reader_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reader is one of auto, pages, engine, not 'duckdb'"):
        ia.dataset(tmp_path, reader="duckdb")


@pytest.fixture(scope="module")
def needles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of which an index leaves few rows for most keys, and many for one."""
    path = tmp_path_factory.mktemp("needles") / "needles.parquet"
    numbers = range(60_000)
    rows = {
        "k": [f"{n * 7_919 % 60_000:08}" for n in numbers],
        "often": [n % 2 for n in numbers],
        "n": numbers,
        "st": [{"a": n, "b": str(n)} if n % 3 else None for n in numbers],
        "few": pa.array([("red", "blue")[n % 2] for n in numbers]).dictionary_encode(),
    }
    ia.write_table(pa.table(rows), path, indexes=["lookup(k)"], max_rows_per_page=1_000)
    return path


NEEDLE = f"{41_234 * 7_919 % 60_000:08}"
NEEDLE_QUERIES = (
    f"SELECT * FROM t WHERE k = '{NEEDLE}'",
    f"SELECT n, st.a FROM t WHERE k = '{NEEDLE}' AND few = 'red'",
    f"SELECT * FROM t WHERE k IN ('{NEEDLE}', '00000001') ORDER BY n DESC",
    f"SELECT few FROM t WHERE k = '{NEEDLE}' LIMIT 1",
    f"SELECT n FROM t WHERE k IN ('{NEEDLE}', '00000001') LIMIT 1 OFFSET 1",
    f"SELECT count(*) FROM t WHERE k = '{NEEDLE}'",
    f"SELECT 7 FROM t WHERE k = '{NEEDLE}'",
    f"SELECT a.n, b.n FROM t a JOIN t b ON a.n = b.n + 1 WHERE a.k = '{NEEDLE}' AND b.n > 9",
    f"SELECT n FROM t WHERE k = (SELECT max(k) FROM t WHERE k <= '{NEEDLE}' AND often = 0)",
    "SELECT * FROM t WHERE k = 'absent'",
)


@pytest.mark.parametrize("query", NEEDLE_QUERIES)
def test_few_rows_are_read_before_the_query_with_the_same_answers(
    query: str, needles: Path
) -> None:
    expected = ia.sql(query, t=ia.dataset(needles, reader="pages"))
    actual = ia.sql(query, t=ia.dataset(needles))
    assert actual.schema == expected.schema
    assert actual.to_pylist() == expected.to_pylist()


def test_few_rows_are_planned_and_read_once(needles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, plans = ia.dataset(needles), []
    plan_in = Part.plan
    monkeypatch.setattr(Part, "plan", lambda *of: plans.append(of) or plan_in(*of))
    assert ia.sql(NEEDLE_QUERIES[0], t=data)["n"].to_pylist() == [41_234]
    assert len(plans) == 1


def test_errors_of_few_rows_name_the_place(needles: Path, tmp_path: Path) -> None:
    raw = bytearray(needles.read_bytes())
    file = ia.ParquetFile(needles)
    leaf = file.schema.root("n").leaves[0]
    index = file.page_index(0, leaf).offset_index
    page = int(np.searchsorted(index.first_row_index, 41_234, side="right")) - 1
    stop = int(index.offset[page]) + int(index.compressed_page_size[page])
    raw[stop - 1_000 : stop] = b"\xff" * 1_000
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(raw)
    data = ia.dataset(damaged)
    other = NEEDLE_QUERIES[0].replace(NEEDLE, f"{7_919:08}")
    assert ia.sql(other, t=data)["n"].to_pylist() == [1]
    with pytest.raises(ia.IntarsiaError, match=r"damaged\.parquet.*column n, page 41"):
        ia.sql(NEEDLE_QUERIES[0], t=data)
