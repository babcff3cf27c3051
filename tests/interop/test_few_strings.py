"""DuckDB and Polars over columns and fields of few distinct strings give the same answers."""

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import intarsia as ia
from intarsia.dataset.dataset import Dataset
from intarsia.errors import FormatError

CODED = pa.dictionary(pa.int32(), pa.string())

ROWS = 100_000
TEXTS = ["api", "web", "", "é", "db", "auth", "a" * 200]


def table_of(seed):
    rng = np.random.default_rng(seed)
    texts = pa.array(rng.permutation(TEXTS))
    codes = rng.integers(0, len(TEXTS), ROWS)
    return pa.table(
        {
            "row": pa.array(np.arange(ROWS) + seed * ROWS),
            "svc": texts.take(pa.array(codes, mask=codes == 3)),
            "level": pa.array(["low", "high"]).take(pa.array(np.arange(ROWS) // 9_000 % 2)),
            "none": pa.nulls(ROWS, pa.string()),
            "dots.in": pa.array(["x", "y", None] * (ROWS // 3) + ["z"] * (ROWS % 3)),
            "id": [f"{seed}-{i}" for i in range(ROWS)],
            "many": pa.array([f"{i % 9_000}" for i in range(ROWS)]),
            "large": pa.array(["a", "b"] * (ROWS // 2), pa.large_string()),
            "n": rng.integers(0, 100, ROWS),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Three folders of a file each, of several row groups; and the same rows in memory."""
    folder = tmp_path_factory.mktemp("coded")
    for seed in range(3):
        at = folder / f"day={seed}" / "a.parquet"
        at.parent.mkdir()
        options = {"row_group_size": 50_000, "max_rows_per_page": 2_000}
        ia.write_table(table_of(seed), at, write_batch_size=500, **options)
    return ia.dataset(folder), pq.read_table(folder)


QUERIES = """
SELECT svc, count(*) AS n, sum(n) AS s FROM t GROUP BY svc ORDER BY svc;
SELECT svc, level, min("dots.in") AS m, max(svc) AS x, count(none) AS c FROM t
    GROUP BY ALL ORDER BY ALL;
SELECT level, count(DISTINCT svc) AS c FROM t WHERE n < 50 GROUP BY level ORDER BY level;
SELECT DISTINCT svc, "dots.in" FROM t WHERE n BETWEEN 10 AND 20 ORDER BY ALL;
SELECT * FROM t WHERE n = 7 AND day = 1 ORDER BY row;
SELECT * FROM t WHERE row IN (5, 123456, 299999) ORDER BY row;
SELECT row, svc FROM t WHERE upper(svc) = 'É' OR svc || level = 'weblow' ORDER BY row LIMIT 99;
SELECT count(*) AS n FROM t WHERE svc = 'api';
SELECT count(*) AS n FROM t WHERE svc > 'b' AND level LIKE 'h%';
SELECT a.svc, count(*) AS n FROM t a JOIN (SELECT 'web' AS svc UNION SELECT '') b USING (svc)
    GROUP BY 1 ORDER BY 1;
SELECT svc, row FROM t WHERE svc IN (SELECT max(svc) FROM t WHERE n < 3) ORDER BY row LIMIT 7;
SELECT svc, row FROM t ORDER BY svc DESC NULLS LAST, row LIMIT 20;
SELECT svc, row, row_number() OVER (PARTITION BY svc ORDER BY row DESC) AS k FROM t
    QUALIFY k <= 2 ORDER BY ALL;
WITH c AS (SELECT * FROM t WHERE n > 90) SELECT x.level, count(*) AS n FROM c x, c y
    WHERE x.row = y.row + 1 AND x.svc = y.svc GROUP BY 1 ORDER BY 1;
SELECT svc FROM t WHERE n < 5 UNION SELECT level FROM t ORDER BY 1;
SELECT string_agg(DISTINCT svc, ',' ORDER BY svc) AS l, list(DISTINCT none) AS o FROM t;
SELECT length(svc) AS k, CASE level WHEN 'low' THEN svc ELSE none END AS w, count(*) AS n FROM t
    GROUP BY ALL ORDER BY ALL;
SELECT typeof(svc) AS a, typeof(id) AS b FROM t LIMIT 1;
SELECT day, svc, avg(n) AS a FROM t GROUP BY ALL ORDER BY ALL
""".strip().split(";\n")


@pytest.mark.parametrize("reader", ["auto", "pages"])
@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_duckdbs_over_strings(query, reader, lake):
    ds, whole = lake
    with duckdb.connect() as connection:
        connection.register("t", whole)
        expected = connection.sql(query).to_arrow_table()
    actual = ia.sql(query, t=ds.with_options(reader=reader))
    assert actual.schema == expected.schema
    assert actual.num_rows > 0
    assert actual.equals(expected)


def test_files_without_dictionary_encoding_give_the_same_answers(tmp_path):
    """No footer says so: of the first, a middle, or the last file."""
    for number, seed in enumerate([0, 3, 1, 4, 2]):
        options = {"use_dictionary": ["level"]} if seed > 2 else {}
        pq.write_table(table_of(seed), tmp_path / f"{number}.parquet", **options)
    ds, everything = ia.dataset(tmp_path), pq.read_table(tmp_path)
    query = "SELECT svc, level, count(*) AS n, min(row) AS m FROM t WHERE n > ? GROUP BY ALL"
    for least in (-1, 10, 98):
        with duckdb.connect() as connection:
            connection.register("t", everything)
            expected = connection.sql(query, params=[least]).fetchall()
        actual = ia.sql(query, [least], t=ds).to_pylist()
        assert {tuple(row.values()) for row in actual} == set(expected)


def test_a_column_that_another_file_lacks_or_has_as_numbers(tmp_path):
    whole = table_of(0).select(["svc", "level", "n"])
    for number in range(5):
        part = whole
        if number == 1:
            part = whole.drop_columns(["svc"])
        elif number == 3:
            part = whole.set_column(0, "svc", whole["n"])
        pq.write_table(part, tmp_path / f"{number}.parquet")
    ds = ia.dataset(tmp_path)
    expected = {None: 0, "api": 0}
    for text in (ds.to_table(["svc"], filter="svc IS NULL OR svc = 'api'"))["svc"].to_pylist():
        expected[text] += 1
    query = "SELECT svc, count(*) AS n FROM t GROUP BY svc"
    actual = {row["svc"]: row["n"] for row in ia.sql(query, t=ds).to_pylist()}
    assert {text: actual[text] for text in expected} == expected
    assert actual["7"] == pc.sum(pc.equal(whole["n"], 7)).as_py()


def test_a_file_that_cannot_be_opened_is_an_error_when_it_is_read(tmp_path):
    for number in range(3):
        at = tmp_path / f"day={number}" / "a.parquet"
        at.parent.mkdir()
        pq.write_table(table_of(number), at)
    ds = ia.dataset(tmp_path)
    (tmp_path / "day=2" / "a.parquet").write_bytes(b"PAR1 no footer PAR1")
    query = "SELECT svc, count(*) AS n FROM t WHERE day < {} GROUP BY svc"
    assert ia.sql(query.format(2), t=ds).num_rows == len({*TEXTS, None})
    with pytest.raises(FormatError, match=r"day=2/a\.parquet"):
        ia.sql(query.format(3), t=ds)


def test_partition_values_are_not_decoded_as_dictionaries(tmp_path):
    for number in range(2):
        (tmp_path / f"level=x{number}").mkdir()
        table = table_of(number).select(["svc", "n"])
        table = table.append_column("level", pa.array([f"x{number}"] * ROWS))
        pq.write_table(table, tmp_path / f"level=x{number}" / "a.parquet")
    ds = ia.dataset(tmp_path)
    actual = ia.sql("SELECT level, count(*) AS n FROM t GROUP BY level ORDER BY level", t=ds)
    assert actual.to_pylist() == [{"level": f"x{number}", "n": ROWS} for number in range(2)]


@pytest.mark.parametrize("row_group_size", [ROWS, 1_000])
def test_few_strings_are_decoded_as_dictionary_indices(row_group_size, tmp_path, as_codes):
    table = table_of(0).select(["svc", "level", "id", "n"])
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=row_group_size)
    ds = ia.dataset(tmp_path / "a.parquet", read_dictionary=["level"])
    schema = ds.schema.set(0, pa.field("svc", CODED))
    actual = Dataset.wrap(ds, schema).to_table(["svc", "level", "id"], filter=pc.field("n") < 50)
    expected = table.filter(pc.field("n") < 50)
    assert actual.schema.types == [CODED, CODED, pa.string()]
    assert actual["svc"].cast(pa.string()).equals(expected["svc"])
    assert as_codes == {"svc", "level"}


@pytest.mark.parametrize(
    "ask",
    [
        lambda frame: frame.group_by("svc").agg(pl.len(), pl.col("n").sum()).sort("svc"),
        lambda frame: frame.filter(pl.col("n") > 90).select("svc", "id", "none", "row").sort("row"),
        lambda frame: frame.filter(pl.col("n") == 7).sort("row"),
        lambda frame: frame.select("level").unique().sort("level"),
        lambda frame: frame.filter(pl.col("svc").str.to_uppercase() == "API").select(pl.len()),
        lambda frame: frame.filter(pl.col("svc") == "web").select("level", "row").sort("row"),
        lambda frame: frame.select(pl.col("dots.in").null_count(), pl.col("svc").max()),
        lambda frame: frame.sort("row").slice(70_000, 5).select("row", "svc"),
    ],
)
def test_answers_are_polars_over_strings(ask, lake):
    ds, whole = lake
    actual = ask(ia.polars.scan(ds.with_options(reader="pages"))).collect()
    assert_frame_equal(actual, ask(pl.from_arrow(whole).lazy()).collect())


def test_polars_keeps_categories(lake, tmp_path):
    """Categories are dictionaries in the file's own Arrow schema."""
    table = table_of(0).select(["svc", "level", "n"])
    own = table.set_column(1, "level", table["level"].dictionary_encode())
    pq.write_table(own, tmp_path / "a.parquet")
    scanned = ia.polars.scan(tmp_path / "a.parquet")
    assert scanned.collect_schema().dtypes() == [pl.String, pl.Categorical(), pl.Int64]
    assert_frame_equal(scanned.collect(), pl.DataFrame(pl.from_arrow(own)))


@pytest.fixture(scope="module", params=["together", "apart"])
def structs(request, tmp_path_factory):
    """Files of structs. In some, the pages of the fields have the same rows, in others not."""
    folder = tmp_path_factory.mktemp("structs")
    pages = {
        "together": {"max_rows_per_page": 2_000},
        "apart": {"data_page_size": 4_000, "max_rows_per_page": ROWS},
    }
    for seed in range(2):
        flat = table_of(seed)
        inner = pa.StructArray.from_arrays([flat["level"].combine_chunks()], ["level"])
        missing = pa.array(np.arange(ROWS) % 13 == 0)
        fields = {name: flat[name].combine_chunks() for name in ("svc", "n", "id")} | {"v": inner}
        u = pa.StructArray.from_arrays([*fields.values()], [*fields], mask=missing)
        table = flat.select(["row", "level"]).append_column("u", u)
        if seed:  # no svc, and levels of type large_string
            less = pa.struct({"n": pa.int64(), "v": pa.struct({"level": pa.large_string()})})
            table = table.set_column(2, "u", table["u"].cast(less))
        options = {"row_group_size": 50_000, "write_batch_size": 500, "write_page_index": True}
        pq.write_table(table, folder / f"{seed}.parquet", **options, **pages[request.param])
    return ia.dataset(folder)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT u.v.level AS k, count(*), sum(u.n) FROM t GROUP BY ALL ORDER BY ALL",
        "SELECT u.svc AS k, u.v.level AS l, count(*) FROM t GROUP BY ALL ORDER BY ALL",
        "SELECT u.svc, max(level) FROM t WHERE u.n % 7 = 1 AND row < 120000 GROUP BY 1 ORDER BY 1",
        "SELECT u.v AS k, count(*) FROM t WHERE u.n < 50 GROUP BY ALL ORDER BY ALL",
        "SELECT u.v.level FROM t WHERE row BETWEEN 99000 AND 101000 ORDER BY row",
        "SELECT a.u.v.level, count(*) FROM t AS a JOIN t AS b ON a.u.v.level = b.level "
        "WHERE b.row < 3 GROUP BY ALL ORDER BY ALL",
    ],
)
@pytest.mark.parametrize("reader", ["auto", "pages"])
def test_answers_over_fields_of_structs_are_duckdbs(query, reader, structs):
    con = duckdb.connect()
    con.register("t", structs.to_table())
    actual = ia.sql(query, t=structs.with_options(reader=reader))
    assert actual.to_pylist() == con.sql(query).to_arrow_table().to_pylist()
