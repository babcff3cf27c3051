"""``ias.sql`` gives Spark's answers and reads only the rows that conditions leave."""

import datetime as dt
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
import tpch_data

import intarsia as ia
import intarsia.spark as ias
from intarsia.spark.sql.spark_dialect import condition_translator
from intarsia.sql.query.scans import scans_of

pytestmark = pytest.mark.spark
HERE = Path(__file__).parent
QUERIES = {path.stem: path.read_text() for path in sorted((HERE / "tpch").glob("*.sql"))}


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark):
    """Disables code generation, which takes far longer here than the queries."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


@pytest.fixture(scope="module")
def tpch(tmp_path_factory):
    """Each table is a folder of files with pages of 250 rows."""
    folder, actual = tmp_path_factory.mktemp("tpch"), tpch_data.tables()
    for name, table in actual.items():
        (folder / name).mkdir()
        half = -(-table.num_rows // 2)
        for number, start in enumerate(range(0, table.num_rows, half)):
            pq.write_table(
                table.slice(start, half),
                folder / name / f"{number}.parquet",
                write_page_index=True,
                data_page_size=1,
                write_batch_size=250,
            )
    return {name: folder / name for name in actual}


@pytest.fixture(scope="module")
def own(spark, tpch):
    """Spark's own answers."""
    for name, path in tpch.items():
        spark.read.parquet(str(path)).createOrReplaceTempView(f"own_{name}")

    def answer(query):
        tree = sqlglot.parse_one(query, dialect="spark")
        names = {table.name for table in tree.find_all(sqlglot.exp.Table)} & set(tpch)
        views = {name: spark.table(f"own_{name}") for name in names}
        for name, view in views.items():
            view.createOrReplaceTempView(name)
        try:
            return spark.sql(query).toArrow()
        finally:
            for name in views:
                spark.catalog.dropTempView(name)

    yield answer
    for name in tpch:
        spark.catalog.dropTempView(f"own_{name}")


@pytest.mark.parametrize("name", QUERIES)
def test_answers_to_tpch_equal_sparks(name, spark, tpch, own):
    query = QUERIES[name]
    actual, expected = ias.sql(spark, query, **tpch).toArrow(), own(query)
    assert expected.num_rows > 0
    assert actual.schema.equals(expected.schema)
    assert actual.to_pylist() == expected.to_pylist()


def pushed(spark, query, tables):
    schemas = {name: ia.dataset(path).schema for name, path in tables.items()}
    return scans_of(query, schemas, "spark", condition_translator(spark, query)).scans


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("q03", "lineitem"),
        ("q03", "orders"),
        ("q04", "orders"),
        ("q06", "lineitem"),
        ("q07", "lineitem"),
        ("q08", "orders"),
        ("q10", "orders"),
        ("q12", "lineitem"),
        ("q14", "lineitem"),
        ("q15", "lineitem"),
        ("q20", "lineitem"),
    ],
)
def test_conditions_reach_the_tables(name, table, spark, tpch):
    scans = [scan for scan in pushed(spark, QUERIES[name], tpch) if scan.table == table]
    assert scans
    for scan in scans:
        rows = ia.dataset(tpch[table]).plan(scan.columns, scan.filter).figures.rows
        assert 0 < rows.selected < 0.7 * rows.total


@pytest.mark.parametrize(
    ("name", "table", "share"),
    [("q07", "nation", 2 / 25), ("q19", "lineitem", 0.2), ("q19", "part", 0.2)],
)
def test_conditions_implied_by_an_or_reach_each_table(name, table, share, spark, tpch):
    scans = [scan for scan in pushed(spark, QUERIES[name], tpch) if scan.table == table]
    assert len(scans) == (2 if table == "nation" else 1)
    rows = ia.dataset(tpch[table])
    for scan in scans:
        assert 0 < rows.count_rows(filter=scan.filter) <= share * rows.count_rows()


def test_columns_are_those_the_query_uses(spark, tpch):
    [scan] = pushed(spark, QUERIES["q06"], tpch)
    used = {"l_shipdate", "l_discount", "l_quantity", "l_extendedprice"}
    assert set(scan.columns) == used
    assert str(scan.filter).count("l_shipdate") == 2


def test_the_two_readers_share_a_query(spark, tpch):
    query = """SELECT count(*) AS n FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND o_orderkey = 7"""
    frame = ias.sql(spark, query, **tpch)
    assert "LocalRelation" in frame._jdf.queryExecution().toString()
    assert frame.first().n > 0


def test_a_table_used_twice_is_read_twice(spark, tpch):
    query = """SELECT (SELECT count(*) FROM orders WHERE o_orderkey <= 10) AS few,
        (SELECT count(*) FROM orders WHERE o_orderkey > 10) AS many"""
    assert len(pushed(spark, query, tpch)) == 2
    assert tuple(ias.sql(spark, query, orders=tpch["orders"]).first()) == (10, 2990)


def test_dataframes_and_views_of_the_session_join_in(spark, tpch):
    spark.range(5).createOrReplaceTempView("wanted")
    frame = spark.createDataFrame([(1, "one"), (2, "two")], "k bigint, word string")
    query = """SELECT word, o_orderkey FROM orders JOIN words ON o_orderkey = k
        JOIN wanted ON wanted.id = k WHERE words.k < 2"""
    actual = ias.sql(spark, query, orders=tpch["orders"], words=frame)
    assert [tuple(row) for row in actual.collect()] == [("one", 1)]
    spark.catalog.dropTempView("wanted")


def test_the_session_does_not_change(spark, tpch):
    before = {table.name for table in spark.catalog.listTables()}
    query = "SELECT count(*) AS n FROM region WHERE r_name = '{x}' OR r_regionkey < 3"
    frame = ias.sql(spark, query, region=tpch["region"])
    assert {table.name for table in spark.catalog.listTables()} == before
    assert frame.first().n == 3
    assert frame.where("n > 3").count() == 0


def test_tables_that_sqlglot_cannot_rename_are_read_whole(spark, tpch):
    spark.range(3).createOrReplaceTempView("region")
    query = "SELECT count(*) AS n FROM region TABLESAMPLE (100 PERCENT)"
    assert ias.sql(spark, query, region=tpch["region"]).first().n == 5
    assert spark.table("region").columns == ["id"]
    spark.catalog.dropTempView("region")


NAMED = {
    "SELECT id, current_user AS x FROM named": [(0, "me"), (1, "me")],
    "SELECT id FROM named WHERE current_date < DATE '2001-01-01'": [(0,), (1,)],
    "SELECT id FROM named WHERE list[0] = 1": [(1,)],
    "SELECT n.array[0] FROM named AS n WHERE id = 1": [(1,)],
    "SELECT k FROM u WHERE EXISTS (SELECT 1 FROM named WHERE id = 1 AND list[0] = 7)": [],
    "SELECT id FROM (TABLE named) WHERE id = 1": [(1,)],
}


@pytest.mark.parametrize(("query", "expected"), NAMED.items(), ids=NAMED)
def test_columns_may_have_names_of_functions(query, expected, spark, tmp_path):
    lists = pa.array([[0], [1]])
    columns = {"id": [0, 1], "current_user": ["me"] * 2, "list": lists, "array": lists}
    days = pa.array([dt.date(2000, 1, 1)] * 2)
    pq.write_table(pa.table({**columns, "current_date": days}), tmp_path / "a.parquet")
    other = spark.createDataFrame([([7], 1)], "list array<bigint>, k int")
    actual = ias.sql(spark, query, named=tmp_path, u=other).collect()
    assert sorted(map(tuple, actual)) == expected


def test_counting_needs_no_column(spark, tpch):
    assert ias.sql(spark, "SELECT count(*) FROM nation", nation=tpch["nation"]).first()[0] == 25


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    micros = dt.datetime(2024, 1, 1, 12)
    table = pa.table(
        {
            "n": [1, 2, 3, None],
            "f64": [math.nan, -0.0, 1.5, None],
            "f32": pa.array([math.nan, 0.1, 1.5, None], pa.float32()),
            "s": ["a\\b", "a%b", "É", None],
            "d": [dt.date(2024, 1, 1), dt.date(2024, 2, 29), dt.date(1500, 1, 1), None],
            "ts": pa.array([micros, micros, micros, None], pa.timestamp("us", "UTC")),
            "ntz": pa.array([micros, dt.datetime(2024, 1, 2), dt.datetime(1, 1, 1), None]),
            "ns": pa.array([1, 1500, 2000, None], pa.timestamp("ns")),
            "flag": [True, False, True, None],
            "u": pa.array([1, 2, 3, None], pa.uint32()),
            "b": pa.array([b"", b"a", b"ab", None]),
            "m": pa.array(
                [[("k", "x")], [("k", None), ("j", "x")], [], None], pa.map_("string", "string")
            ),
        }
    )
    pq.write_table(table, folder / "a.parquet")
    return folder


PUSHED = {
    "n = 2": True,
    "n <=> 2": True,
    "n IN (1, NULL)": True,
    "NOT n BETWEEN 2 AND 3": True,
    "n = '2'": False,
    "n = 2.0": True,
    "n <= 2.5": True,
    "NOT n IN (1.5, 2)": True,
    "n < 2e0": False,
    "n + 1 = 3": False,
    "u = 2": False,
    "b = X''": False,
    "b IN (X'', X'61')": False,
    "f64 > 1": True,
    "f64 = 0": True,
    "f64 = double('NaN')": False,
    "f32 = 0.1": False,
    "s = 'É'": True,
    "s LIKE 'a%'": True,
    "s LIKE 'a\\\\%b'": False,
    "s = 'a\\\\b'": False,
    "s RLIKE 'a.b'": False,
    "s ILIKE 'A%'": False,
    "lower(s) = 'é'": False,
    "startswith(s, 'a')": True,
    "d = '2024-02-29'": True,
    "d = '2024-2-29'": False,
    "d < DATE '2024-01-31' + INTERVAL '1' MONTH": True,
    "d < DATE '2024-01-01' + INTERVAL 12 HOURS": False,
    "d > '2024-01-01 05:00:00'": False,
    "ts = '2024-01-01 12:00:00'": True,
    "ts >= TIMESTAMP '2024-01-01 12:00:00'": True,
    "to_date(ts) = '2024-01-01'": True,
    "CAST(ts AS DATE) IN (DATE '2024-01-01', DATE '2024-02-01')": True,
    "date(ts) < DATE '2024-01-01' + INTERVAL '1' MONTH": True,
    "ntz::date <= '2024-01-01'": True,
    "NOT ntz::date > '2024-01-01'": False,
    "year(ts) = 2024": True,
    "extract(YEAR FROM d) BETWEEN 1500 AND 2023": True,
    "date_trunc('MONTH', ts) = '2024-01-01'": True,
    "date_trunc('hour', ntz) >= TIMESTAMP '2024-01-01 12:00:00'": True,
    "date_trunc('years', ts) = '2024-01-01'": True,  # NULL in Spark
    "date_trunc('MONTH', d) = '2024-01-01'": False,
    "trunc(ts, 'MONTH') >= '2024-01-01 12:00:00'": False,
    "to_date(ts, 'yyyy') = '2024-01-01'": False,
    "to_date(ts) = d": False,
    "try_cast(s AS DATE) = '2024-01-01'": False,
    "year(ts) = '2024'": False,
    "month(ts) = 1": False,
    "to_date(ns) = '1970-01-01'": False,
    "ns = '1970-01-01 00:00:00.000001'": False,
    "m['k'] = 'x'": True,
    "NOT m['k'] = 'y'": True,
    "m['k'] LIKE 'x%' OR m['j'] IS NOT NULL": True,
    "m['nothing'] IS NULL": True,
    "m['k'] = s": True,
    "m[s] = 'x'": False,
    "flag": True,
    "NOT flag": True,
    "flag IS NULL": True,
    "s IS NOT NULL AND n = '2'": True,
}


@pytest.mark.parametrize(("condition", "is_pushed"), PUSHED.items(), ids=PUSHED)
def test_conditions_mean_what_spark_means(condition, is_pushed, spark, odd):
    query = f"SELECT * FROM t WHERE {condition}"
    [scan] = pushed(spark, query, {"t": odd})
    assert (scan.filter is not None) == is_pushed
    actual = ias.sql(spark, query, t=odd).toArrow()
    everything = ias.read(spark, odd, reader="intarsia")
    assert str(actual.to_pylist()) == str(everything.where(condition).toArrow().to_pylist())


@pytest.mark.parametrize("condition", ["ts = '2024-01-01 13:00:00'", "to_date(ts) = '2024-01-01'"])
def test_timestamps_are_not_pushed_down_in_other_time_zones(condition, spark, setting, odd):
    query = f"SELECT count(*) AS n FROM t WHERE {condition}"
    setting("spark.sql.session.timeZone", "Europe/Paris")
    [scan] = pushed(spark, query, {"t": odd})
    assert scan.filter is None
    assert ias.sql(spark, query, t=odd).first().n == 3


def test_days_of_timestamps_without_a_zone_are_pushed_down_in_any_zone(spark, setting, odd):
    setting("spark.sql.session.timeZone", "Europe/Paris")
    query = "SELECT n FROM t WHERE to_date(ntz) <= '2024-01-01' ORDER BY n"
    [scan] = pushed(spark, query, {"t": odd})
    assert "(ntz < 2024-01-02" in str(scan.filter)
    assert [row.n for row in ias.sql(spark, query, t=odd).collect()] == [1, 3]


@pytest.mark.parametrize("column", ["t", "ntz"])
@pytest.mark.parametrize("members", ["'1970-01-02'", "DATE '1970-01-01', '1970-01-02'"])
def test_without_ansi_mode_timestamp_conditions_are_not_pushed_down(
    column, members, spark, setting, tmp_path
):
    setting("spark.sql.ansi.enabled", "false")
    moment = "timestamp_seconds(id * 86400)"
    data = spark.range(5).selectExpr(
        "id", f"{moment} AS t", f"CAST({moment} AS TIMESTAMP_NTZ) AS ntz"
    )
    data.write.parquet(f"{tmp_path}/lake")
    condition = f"{column} NOT IN ({members})"
    actual = ias.sql(spark, f"SELECT * FROM t WHERE {condition}", t=tmp_path / "lake")
    own = spark.read.parquet(f"{tmp_path}/lake").where(condition)
    assert actual.sort("id").collect() == own.sort("id").collect()


def test_case_sensitive_names_resolve_as_in_spark(spark, setting, tmp_path):
    u, v = str(tmp_path / "u"), str(tmp_path / "v")
    spark.range(10).selectExpr("id AS A", "id AS k").write.parquet(u)
    spark.range(10).selectExpr("id + 100 AS a", "id AS k").write.parquet(v)
    query = "SELECT * FROM u WHERE {} (SELECT 1 FROM v WHERE v.k = u.k AND A < 5)"
    setting("spark.sql.caseSensitive", "true")
    for word in ("EXISTS", "NOT EXISTS"):
        actual = ias.sql(spark, query.format(word), u=u, v=v).collect()
        assert len(actual) == 5


@pytest.fixture
def letters(tmp_path):
    pq.write_table(pa.table({"k": range(6), "s": list("aabbcc")}), tmp_path / "letters.parquet")
    return str(tmp_path / "letters.parquet")


def test_variable_substitution_is_not_ignored(spark, setting, letters):
    spark.conf.set("wanted", "b")
    spark.conf.set("column", "s")
    of_others = "SELECT 1 FROM (SELECT 'x' AS s) o WHERE EXISTS"
    for query, count in (
        ("SELECT k FROM t WHERE s = '${wanted}'", 2),
        ("SELECT k FROM t WHERE s IN ('${wanted}', 'c')", 4),
        ("SELECT k FROM t WHERE ${column} = 'a'", 2),
        (f"{of_others} (SELECT 1 FROM t WHERE ${{column}} = 'a')", 1),
    ):
        assert len(ias.sql(spark, query, t=letters).collect()) == count
    setting("spark.sql.variable.substitute", "false")
    assert not ias.sql(spark, "SELECT k FROM t WHERE s = '${wanted}'", t=letters).collect()


def test_double_quoted_identifiers_follow_sparks_setting(spark, setting, letters):
    setting("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    of_others = "SELECT 1 FROM (SELECT 'x' AS s) o WHERE EXISTS"
    for query, count in (
        ("""SELECT k FROM t WHERE "s" = 'b'""", 2),
        (f"""{of_others} (SELECT 1 FROM t WHERE "s" = 'b')""", 1),
    ):
        assert len(ias.sql(spark, query, t=letters).collect()) == count


def test_regex_column_names_follow_sparks_setting(spark, setting, letters):
    setting("spark.sql.parser.quotedRegexColumnNames", "true")
    actual = ias.sql(spark, "SELECT `K|s` FROM t WHERE k < 2", t=letters)
    assert actual.columns == ["k", "s"]
    assert [tuple(row) for row in actual.collect()] == [(0, "a"), (1, "a")]


def test_a_table_is_a_path_or_a_dataframe(spark):
    with pytest.raises(TypeError, match="not int"):
        ias.sql(spark, "SELECT 1", t=5)


def test_table_names_must_differ_by_more_than_case(spark, odd):
    with pytest.raises(ia.PredicateError, match="not told apart by case"):
        ias.sql(spark, "SELECT 1", t=odd, T=odd)
