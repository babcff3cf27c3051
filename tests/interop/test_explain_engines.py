"""``explain_sql`` and ``polars.explain``: what the scans of engines read."""

import json

import click.testing
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.cli.command_line import cli as main

ROWS = 200_000


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A file with an index of ``id``, which is not sorted."""
    path = tmp_path_factory.mktemp("indexed") / "a.parquet"
    ids = np.random.default_rng(1).permutation(ROWS)
    table = pa.table({"id": ids, "k": ids % 100, "s": [f"s{i % 5000}" for i in ids.tolist()]})
    ia.write_table(table, path, indexes=[ia.Lookup("id")])
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Five files without indexes."""
    folder = tmp_path_factory.mktemp("plain")
    for number in range(5):
        ids = np.arange(number * 20_000, (number + 1) * 20_000)
        pq.write_table(pa.table({"id": ids, "k": ids % 100}), folder / f"{number}.parquet")
    return folder


def readers(explained):
    return {
        group.reader: group.figures.files.total
        for table in explained.tables.values()
        for group in table.groups
    }


@pytest.mark.parametrize("analyze", [False, True])
def test_a_needle_is_read_by_pages(indexed, analyze):
    query = "SELECT k, s FROM t WHERE id = ?"
    explained = ia.explain_sql(query, [777], analyze=analyze, t=indexed)
    assert readers(explained) == {"pages": 1}
    assert explained.verdict.endswith("lookup decided")
    table = explained.tables["t"]
    figures = table.read if analyze else table.planned
    assert figures.bytes.selected < figures.bytes.total / 4
    if analyze:
        assert figures.rows.selected == 1
        assert explained.seconds > 0


@pytest.mark.parametrize("analyze", [False, True])
def test_most_rows_are_read_by_the_engine(plain, analyze):
    query = "SELECT sum(k) FROM t WHERE k < 90 AND id < 50000"
    explained = ia.explain_sql(query, analyze=analyze, t=plain)
    assert readers(explained) == {"engine": 3, "none": 2}
    table = explained.tables["t"]
    assert table.planned.files.selected == 3
    if analyze:
        sizes = sum((plain / f"{i}.parquet").stat().st_size for i in range(3))
        assert 0 < table.read.bytes.selected < 3 * sizes
        assert table.read.row_groups.selected == 3
        assert table.read.rows.selected == 45_000  # DuckDB filters within its scan


def test_the_bytes_of_the_engine_are_those_that_it_reports(plain):
    """A column more takes its chunks more."""
    small = ia.explain_sql("SELECT max(k + 0) FROM t", analyze=True, t=plain).tables["t"].read
    large = ia.explain_sql("SELECT max(k + id) FROM t", analyze=True, t=plain).tables["t"].read
    chunks = sum(
        ia.ParquetFile(plain / f"{i}.parquet")
        .metadata.row_groups[0]
        .columns[0]
        .meta_data.total_compressed_size
        for i in range(5)
    )
    assert large.bytes.selected - small.bytes.selected == pytest.approx(chunks, rel=0.05)


def test_tables_are_explained_one_by_one(indexed, plain):
    query = "SELECT count(*) FROM a JOIN b ON a.k = b.k WHERE a.id = 5 AND b.id < 0"
    explained = ia.explain_sql(query, analyze=True, a=indexed, b=plain, c=pa.table({"x": [1]}))
    assert set(explained.tables) == {"a", "b"}
    assert "b: reads no rows; row-group statistics decided" in explained.verdict
    assert "table    a" in str(explained)
    assert set(explained.to_dict()["tables"]) == {"a", "b"}


def test_a_wrong_query_is_the_engines_error(plain):
    import duckdb

    with pytest.raises(duckdb.Error):
        ia.explain_sql("SELECT nothing FROM t", analyze=True, t=plain)


@pytest.mark.parametrize("analyze", [False, True])
def test_scans_of_polars_are_explained(indexed, analyze):
    frame = ia.polars.scan(indexed).filter(polars.col("id") == 777).select("k")
    explained = ia.polars.explain(frame, analyze=analyze)
    assert readers(explained) == {"pages": 1}
    assert explained.tables["scan 1"].verdict.endswith("lookup decided")
    if analyze:
        assert explained.tables["scan 1"].read.rows.selected == 1
    assert frame.collect().height == 1  # as before


def test_polars_own_scans_are_not_shown(plain):
    assert ia.polars.explain(ia.polars.scan(plain), analyze=True).verdict == "reads no data set"


def test_the_command_explains_a_query(plain):
    query = "SELECT count(*) FROM data WHERE id < 0"
    run = click.testing.CliRunner().invoke
    text = run(main, ["explain", str(plain), "--sql", query]).output
    assert text.startswith("verdict  data: reads no rows; row-group statistics decided")
    document = json.loads(run(main, ["explain", str(plain), "--sql", query, "--json"]).output)
    assert document["tables"]["data"]["planned"]["files"]["selected"] == 0
    failed = run(main, ["explain", str(plain), "--sql", query, "--where", "id = 1"])
    assert failed.exit_code == 2
    assert "--where does not go with --sql" in failed.output
