"""``ia.sql`` hands DuckDB columns of few texts as dictionaries, and answers are the same."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.data.dataset import Dataset
from intarsia.engines.coded import with_codes
from intarsia.errors import FormatError
from intarsia.read.columns import CODED

ROWS = 40_000
TEXTS = ["api", "web", "", "é", "db", "auth", "a" * 200]
CODED_COLUMNS = {"svc", "level", "none", "dots.in"}


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
        options = {"row_group_size": 15_000, "max_rows_per_page": 2_000}
        ia.write_table(table_of(seed), at, write_batch_size=500, **options)
    return ia.dataset(folder), pq.read_table(folder)


def test_columns_of_few_texts_are_coded(lake):
    ds, _ = lake
    schema = with_codes(ds, ds.schema.names)
    assert {field.name for field in schema if field.type == CODED} == CODED_COLUMNS
    assert {field.name for field in with_codes(ds, ["svc", "id"]) if field.type == CODED} == {"svc"}
    filtered = ds.filter((pc.field("svc") == "api") & (pc.field("n") < 50))
    assert with_codes(filtered, ["svc", "n", "level"]).field("svc").type == pa.string()
    assert with_codes(filtered, ["svc", "n", "level"]).field("level").type == CODED


QUERIES = """
SELECT svc, count(*) AS n, sum(n) AS s FROM t GROUP BY svc ORDER BY svc;
SELECT svc, level, min("dots.in") AS m, max(svc) AS x, count(none) AS c FROM t
    GROUP BY ALL ORDER BY ALL;
SELECT level, count(DISTINCT svc) AS c FROM t WHERE n < 50 GROUP BY level ORDER BY level;
SELECT DISTINCT svc, "dots.in" FROM t WHERE n BETWEEN 10 AND 20 ORDER BY ALL;
SELECT * FROM t WHERE n = 7 AND day = 1 ORDER BY row;
SELECT * FROM t WHERE row IN (5, 44444, 99999) ORDER BY row;
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


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_duckdbs_over_texts(query, lake):
    ds, whole = lake
    with duckdb.connect() as connection:
        connection.register("t", whole)
        expected = connection.sql(query).to_arrow_table()
    found = ia.sql(query, t=ds)
    assert found.schema == expected.schema
    assert found.num_rows > 0
    assert found.equals(expected)


def test_files_whose_texts_are_not_coded_are_read_alike(tmp_path):
    """Neither the first file, nor one in the middle, nor the last says so."""
    for number, seed in enumerate([0, 3, 1, 4, 2]):
        options = {"use_dictionary": ["level"]} if seed > 2 else {}
        pq.write_table(table_of(seed), tmp_path / f"{number}.parquet", **options)
    ds, everything = ia.dataset(tmp_path), pq.read_table(tmp_path)
    assert with_codes(ds, ["svc", "level"]).field("svc").type == CODED
    query = "SELECT svc, level, count(*) AS n, min(row) AS m FROM t WHERE n > ? GROUP BY ALL"
    for least in (-1, 10, 98):
        with duckdb.connect() as connection:
            connection.register("t", everything)
            expected = connection.sql(query, params=[least]).fetchall()
        found = ia.sql(query, [least], t=ds).to_pylist()
        assert {tuple(row.values()) for row in found} == set(expected)


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
    found = {row["svc"]: row["n"] for row in ia.sql(query, t=ds).to_pylist()}
    assert {text: found[text] for text in expected} == expected
    assert found["7"] == pc.sum(pc.equal(whole["n"], 7)).as_py()


def test_a_file_that_cannot_be_opened_is_told_of_where_it_is_read(tmp_path):
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


def test_a_data_set_that_has_texts_as_dictionaries_is_decoded_so(lake):
    ds, whole = lake
    condition = pc.field("n") < 50
    seen = Dataset.wrap(ds, with_codes(ds, ds.schema.names))
    found = seen.to_table(["svc", "none", "id"], filter=condition)
    assert found.schema.types == [CODED, CODED, pa.string()]
    texts = pa.table([column.cast(pa.string()) for column in found.columns], found.column_names)
    assert texts.equals(whole.filter(condition).select(found.column_names))
