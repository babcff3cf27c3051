"""UUID and JSON columns have their logical types for every writer; filters take every spelling."""

from __future__ import annotations

import json
import uuid
from functools import partial

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow.compute import field

import intarsia as ia
from intarsia.cli.command_line import cli

ROWS = 1_000
IDS = [uuid.UUID(int=(i * 2**100 + i * 7919) % 2**128) for i in range(ROWS)]
AT = 77
ID, TEXT = IDS[AT], str(IDS[AT])
SPELLINGS = {
    "UUID": ID,
    "scalar": pa.scalar(ID),
    "string": TEXT,
    "upper case": TEXT.upper(),
    "no hyphens": ID.hex,
    "large string": pa.scalar(TEXT, pa.large_string()),
    "bytes": ID.bytes,
    "16 bytes": pa.scalar(ID.bytes, pa.binary(16)),
}
SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "u": pa.uuid(),
        "j": pa.json_(),
        "s": pa.struct({"u": pa.uuid(), "name": pa.string()}),
        "l": pa.list_(pa.uuid()),
        "m": pa.map_(pa.string(), pa.uuid()),
        "by": pa.map_(pa.uuid(), pa.int64()),
    }
)
STORED = pa.schema(
    {
        "i": pa.int64(),
        "u": pa.binary(16),
        "j": pa.string(),
        "s": pa.struct({"u": pa.binary(16), "name": pa.string()}),
        "l": pa.list_(pa.binary(16)),
        "m": pa.map_(pa.string(), pa.binary(16)),
        "by": pa.map_(pa.binary(16), pa.int64()),
    }
)


def row(number):
    one = IDS[number].bytes
    return {
        "i": number,
        "u": None if number % 10 == 5 else one,
        "j": f'{{"K":{number}}}',
        "s": {"u": one, "name": f"n{number}"},
        "l": [one, IDS[number - 1].bytes] if number % 2 else [one],
        "m": [("k", one)],
        "by": [(one, number)],
    }


TABLE = pa.Table.from_pylist([row(number) for number in range(ROWS)], STORED).cast(SCHEMA)


def write(path, writer, table=TABLE):
    if writer == "DuckDB":
        duckdb.sql(f"COPY (SELECT * FROM \"table\") TO '{path}'")
    else:
        pq.write_table(table, path, store_schema=writer == "Arrow schema", max_rows_per_page=100)
    return path


@pytest.fixture(scope="module", params=["DuckDB", "no Arrow schema", "Arrow schema"])
def path(request, tmp_path_factory):
    """A writer's file. DuckDB stores no Arrow schema, and pyarrow can leave it out."""
    return write(tmp_path_factory.mktemp("logical") / "a.parquet", request.param)


@pytest.fixture(scope="module")
def ds(path):
    return ia.dataset(path)


def matching(ds, condition):
    actual = ds.to_table(filter=condition)
    assert actual.schema.equals(ds.schema)
    assert actual.num_rows == ds.count_rows(filter=condition)
    return actual["i"].to_pylist()


def test_the_schema_has_the_types_of_the_footer(path):
    for opened in (ia.dataset(path), ia.dataset([path]), ia.dataset(path.parent, catalog=False)):
        types = {name: opened.schema.field(name).type for name in ("u", "j")}
        assert types == {"u": pa.uuid(), "j": pa.json_()}
        assert opened.schema.field("s").type.field("u").type == pa.uuid()
        assert opened.schema.field("l").type.value_type == pa.uuid()
        assert opened.schema.field("m").type.item_type == pa.uuid()
        assert opened.schema.field("by").type.key_type == pa.uuid()
    assert ia.dataset(path, union_by_name=True).schema.field("u").type == pa.uuid()


def test_unfiltered_scans_give_the_rows(ds):
    assert ds.to_table().to_pylist() == TABLE.to_pylist()
    assert ds.to_table(["u"]).schema.field("u").type == pa.uuid()
    assert ds.scanner(["s", "l"]).to_table().to_pylist() == TABLE.select(["s", "l"]).to_pylist()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_filter_takes_every_spelling(spelling, ds):
    one = SPELLINGS[spelling]
    assert matching(ds, field("u") == one) == [AT]
    assert matching(ds, pc.scalar(one) == field("u")) == [AT]
    assert matching(ds, (field("u") >= one) & (field("u") <= one)) == [AT]
    assert matching(ds, (field("u") != one) & (field("i") < 3)) == [0, 1, 2]
    assert matching(ds, ~(field("u") == one) & (field("i") < 3)) == [0, 1, 2]
    assert matching(ds, field("s", "u") == one) == [AT]
    assert matching(ds, pc.struct_field(field("s"), "u") == one) == [AT]
    assert matching(ds, pc.list_element(field("l"), 0) == one) == [AT]
    assert matching(ds, pc.map_lookup(field("m"), "k", "first") == one) == [AT]
    assert matching(ds, pc.coalesce(field("u"), field("s", "u")) == one) == [AT]
    assert matching(ds, pc.coalesce(field("u"), pc.scalar(one)) == one)[:3] == [5, 15, 25]
    assert matching(ds, ia.list_contains("l", one)) == [AT]
    assert matching(ds, ia.map_contains("by", one)) == [AT]


@pytest.mark.parametrize("spelling", ["UUID", "string", "no hyphens", "bytes"])
def test_in_lists_take_every_spelling(spelling, ds):
    both = [
        {"UUID": u, "string": str(u), "no hyphens": u.hex, "bytes": u.bytes}[spelling]
        for u in (ID, IDS[6])
    ]
    assert matching(ds, field("u").isin(both)) == [6, AT]
    assert matching(ds, field("u").isin([*both, None])) == [
        *range(5, 7),
        *[i for i in range(8, ROWS) if i % 10 == 5 or i == AT],
    ]
    assert matching(ds, [("u", "in", both)]) == [6, AT]
    assert matching(ds, [("u", "==", both[0])]) == [AT]
    assert matching(ds, ia.list_contains_any("l", both)) == [6, 7, AT]
    assert matching(ds, ia.list_contains_all("l", both[:1])) == [AT]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (field("u") == "nope", "'nope' is no UUID"),
        (field("u") < "b5", "'b5' is no UUID"),
        (field("u").isin([TEXT, "x"]), "'x' is no UUID"),
        (field("u") == b"abc", "a UUID has 16 bytes"),
        (field("u") == TEXT.encode(), "a UUID has 16 bytes"),
        (field("s", "u") == "nope", "'nope' is no UUID"),
        (ia.list_contains("l", "nope"), "'nope' is no UUID"),
        (field("u") == 5, "no kernel matching"),
        ([("u", "==", "nope")], "'nope' is no UUID"),
        ([("u", "in", ["nope"])], "'nope' is no UUID"),
    ],
)
def test_a_string_that_is_not_a_uuid_is_an_error(condition, problem, ds):
    for ask in (ds.to_table, ds.count_rows, partial(ds.head, 1)):
        with pytest.raises(ia.PredicateError, match=problem):
            ask(filter=condition)


def test_bytes_of_another_length_are_an_error(tmp_path):
    table = pa.table({"b": pa.array([one.bytes for one in IDS], pa.binary(16)), "i": range(ROWS)})
    pq.write_table(table, tmp_path / "a.parquet")
    ds = ia.dataset(tmp_path / "a.parquet")
    assert ds.schema.field("b").type == pa.binary(16)  # the footer does not declare a UUID
    assert matching(ds, field("b") == ID) == [AT]
    assert matching(ds, field("b") == ID.bytes) == [AT]
    assert matching(ds, field("b").isin([ID.bytes, b"short"])) == [AT]
    assert matching(ds, (field("b") > b"") & (field("i") == 3)) == [3]
    for never in (field("b") == TEXT, field("b") != b"short", field("b").isin([TEXT, "x"])):
        with pytest.raises(ia.PredicateError, match=r"never equals .* fixed_size_binary\[16\]"):
            ds.to_table(filter=never)


@pytest.mark.parametrize("name", ["text", "json", "twelve"])
@pytest.mark.parametrize("turned", [False, True])
def test_columns_whose_types_have_no_value_in_common_are_an_error(name, turned, tmp_path):
    others = {
        "text": pa.array([str(one) for one in IDS]),
        "json": pa.array(["{}"] * ROWS, pa.json_()),
        "twelve": pa.array([one.bytes[:12] for one in IDS], pa.binary(12)),
        "bytes": pa.array([one.bytes for one in IDS], pa.binary()),
        "sixteen": pa.array([one.bytes for one in IDS], pa.binary(16)),
    }
    write(tmp_path / "a.parquet", "Arrow schema", TABLE.append_column("x", others[name]))
    ds = ia.dataset(tmp_path / "a.parquet")
    for uuids in (field("u"), field("s", "u"), pc.coalesce(field("u"), field("s", "u"))):
        sides = (field("x"), uuids) if turned else (uuids, field("x"))
        for never in (sides[0] == sides[1], ~(sides[0] != sides[1]) & (field("i") > 3)):
            with pytest.raises(ia.PredicateError, match=r"does not compare|never equals"):
                ds.to_table(filter=never)
    with pytest.raises(ia.PredicateError, match=r"does not compare|never equals"):
        ds.count_rows(filter="x = u" if turned else "u = x")
    for kind in ("bytes", "sixteen"):
        table = TABLE.append_column("x", others[kind])
        write(tmp_path / "a.parquet", "Arrow schema", table)
        fitting = ia.dataset(tmp_path / "a.parquet")
        assert len(matching(fitting, field("s", "u") == field("x"))) == ROWS
        assert len(matching(fitting, field("u") == field("x"))) == ROWS * 9 // 10


def test_a_string_of_another_length_is_an_error(ds, tmp_path):
    spans = pa.table({"v": pa.array([b"123456789abc"], pa.binary(12))})
    pq.write_table(spans, tmp_path / "a.parquet")
    twelve = ia.dataset(tmp_path / "a.parquet")
    assert twelve.count_rows(filter="v = '123456789abc'") == 1
    with pytest.raises(ia.PredicateError, match=r"fixed_size_binary\[12\]: it has 3 bytes"):
        twelve.count_rows(filter="v = 'abc'")
    with pytest.raises(ia.PredicateError, match=r"a backslash begins a byte, as in \\xFF"):
        twelve.count_rows(filter=r"v = '\x'")
    with pytest.raises(ia.PredicateError, match="it has 4 bytes"):
        ds.count_rows(filter="list_contains(l, 'nope')")


def test_nulls_are_compared_as_nulls(ds):
    for null in (pa.scalar(None, pa.uuid()), pa.scalar(None, pa.string()), pa.scalar(None)):
        assert matching(ds, field("u") == null) == []
    assert len(matching(ds, field("u").is_null())) == ROWS // 10


def test_json_is_compared_with_strings(ds):
    text = f'{{"K":{AT}}}'
    for one in (text, pa.scalar(text, pa.json_()), pa.scalar(text, pa.large_string())):
        assert matching(ds, field("j") == one) == [AT]
    assert matching(ds, field("j").isin([text, "x"])) == [AT]
    assert matching(ds, pc.match_substring(field("j"), ":77}")) == [AT]
    assert matching(ds, pc.utf8_lower(field("j")) == text.lower()) == [AT]
    assert matching(ds, "j LIKE '%:77}'") == [AT]


def test_computed_columns_have_logical_types(ds):
    columns = {
        "is": field("u") == TEXT,
        "own": field("u"),
        "inner": field("s", "u"),
        "lower": pc.utf8_lower(field("j")),
    }
    expected = [{"is": True, "own": ID, "inner": ID, "lower": f'{{"k":{AT}}}'}]
    assert ds.to_table(columns, filter=field("i") == AT).to_pylist() == expected
    assert ds.to_table(columns).slice(AT, 1).to_pylist() == expected
    actual = ds.to_table(["s.u", "s.name"], filter=field("u") == ID)
    assert actual.to_pylist() == [{"u": ID, "name": f"n{AT}"}]
    assert actual.schema.field("u").type == pa.uuid()


def test_data_set_methods_keep_logical_types(ds):
    assert ds.filter(field("u") == TEXT).to_table(["u"]).to_pylist() == [{"u": ID}]
    assert ds.take([3, AT])["u"].to_pylist() == [IDS[3], ID]
    assert ds.head(1, filter=field("u") == ID.bytes)["i"].to_pylist() == [AT]
    ordered = ds.sort_by([("u", "descending")]).to_table()
    assert ordered["u"][0].as_py() == max(one for i, one in enumerate(IDS) if i % 10 != 5)
    assert ordered.schema.field("u").type == pa.uuid()


@pytest.mark.parametrize("kind", ["lookup", "distinct", "minmax", "bloom", "page_index"])
def test_indexes_serve_every_spelling(kind, path, tmp_path):
    copy = tmp_path / "a.parquet"
    pq.write_table(ia.dataset(path).to_table(), copy, row_group_size=200, store_schema=False)
    ia.add_indexes(copy, ["page_index" if kind == "page_index" else f"u:{kind}"])
    ds = ia.dataset(copy)
    plans = [ds.plan(["i"], field("u") == one).figures for one in SPELLINGS.values()]
    assert len({(plan.rows.selected, plan.bytes.selected) for plan in plans}) == 1
    assert plans[0].rows.selected < ROWS or kind in ("minmax", "page_index")
    for one in SPELLINGS.values():
        assert matching(ds, field("u") == one) == [AT]


@pytest.mark.parametrize(
    "condition",
    [
        f"u = '{TEXT}'",
        f"u IN ('{TEXT}', '{IDS[6]}')",
        f"u > '{IDS[900]}'",
        f"s.u = '{TEXT}'",
        f"list_contains(l, '{TEXT}')",
        f"m['k'] = '{TEXT}'",
        f"""j = '{{"K":{AT}}}'""",
        "j->>'K' = '77'",
        "u IS NULL",
    ],
)
def test_duckdb_over_the_data_set(condition, ds):
    table = TABLE
    expected = duckdb.sql(f'SELECT i, u FROM "table" WHERE {condition} ORDER BY i').fetchall()
    assert duckdb.sql(f"SELECT i, u FROM ds WHERE {condition} ORDER BY i").fetchall() == expected
    actual = ia.sql(f"SELECT i FROM t WHERE {condition} ORDER BY i", t=ds)
    assert actual["i"].to_pylist() == [i for i, _ in expected]
    assert table.num_rows


def test_joins_by_uuids(ds):
    few = ds.filter(field("i") < 5)
    actual = ia.sql("SELECT a.i FROM a JOIN b USING (u) ORDER BY a.i", a=ds, b=few)
    assert actual["i"].to_pylist() == [0, 1, 2, 3, 4]


def test_polars_has_its_own_types(path):
    frame = ia.polars.scan(path)
    assert frame.select("u", "j").collect_schema() == {"u": pl.Binary, "j": pl.String}
    assert frame.filter(pl.col("u") == ID.bytes).collect()["i"].to_list() == [AT]
    assert frame.filter(pl.col("u").is_in([ID.bytes])).collect()["i"].to_list() == [AT]
    assert frame.filter(pl.col("j") == f'{{"K":{AT}}}').collect()["i"].to_list() == [AT]
    assert frame.filter(pl.col("l").list.contains(ID.bytes)).collect()["i"].to_list() == [AT]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_the_command_prints_uuids_as_text(form, path):
    where = ["--where", f"u = '{TEXT}'"]
    columns = "i,u,j" if form == "csv" else "i,u,j,s,l,m"
    run = CliRunner().invoke(
        cli, ["scan", str(path), *where, "--columns", columns, "--format", form]
    )
    assert run.exit_code == 0, run.output
    assert TEXT in run.output
    if form == "json":
        actual = json.loads(run.output.splitlines()[0])
        assert (actual["u"], actual["s"]["u"], actual["l"][0]) == (TEXT, TEXT, TEXT)


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "--column", "u"],
        ["inspect", "--column", "u", "--json"],
        ["inspect", "--json"],
        ["pages", "--column", "s.u", "--all"],
        ["pages", "--column", "u", "--json", "--all"],
        ["pages", "--column", "m", "--dictionary", "--all"],
        ["scan", "--columns", "u,s,l,m,by", "--limit", "2"],
        ["scan", "--columns", "u,s,l,m,by", "--limit", "2", "--format", "json"],
    ],
    ids=" ".join,
)
def test_commands_print_uuids_as_text(arguments, tmp_path):
    path = write(tmp_path / "a.parquet", "Arrow schema", TABLE.slice(AT, 2))
    name, *options = arguments
    run = CliRunner().invoke(cli, [name, str(path), *options], env={"COLUMNS": "300"})
    assert run.exit_code == 0, run.output
    assert TEXT in run.output
    printed = run.output.lower().replace(TEXT, "")
    assert "uuid(" not in printed
    assert ID.hex not in printed


def test_a_given_schema_defines_logical_types(path):
    as_bytes = ia.dataset(path, schema=STORED)
    assert as_bytes.to_table().to_pylist() == TABLE.cast(STORED).to_pylist()
    assert as_bytes.to_table(["i"], filter=field("u") == ID)["i"].to_pylist() == [AT]
    with pytest.raises(ia.PredicateError, match="never equals"):
        as_bytes.to_table(filter=field("u") == TEXT)


@pytest.mark.parametrize("first", ["DuckDB", "no Arrow schema", "Arrow schema", "bytes"])
@pytest.mark.parametrize("second", ["no Arrow schema", "bytes"])
def test_files_of_several_writers(first, second, tmp_path):
    for name, writer in (("a", first), ("b", second)):
        is_plain = writer == "bytes"
        table = TABLE.cast(STORED) if is_plain else TABLE
        write(tmp_path / f"{name}.parquet", "Arrow schema" if is_plain else writer, table)
    ds = ia.dataset(tmp_path)
    assert ds.schema.field("u").type == (pa.binary(16) if first == "bytes" else pa.uuid())
    union = ia.dataset(tmp_path, union_by_name=True)
    has_bytes = "bytes" in (first, second)
    assert union.schema.field("u").type == (pa.binary(16) if has_bytes else pa.uuid())
    for data in (ds, union):
        for one in (ID, ID.bytes):
            assert matching(data, field("u") == one) == [AT, AT]
        assert data.to_table(["u"]).num_rows == 2 * ROWS
        assert matching(data, field("s", "u") == ID) == [AT, AT]


def test_a_catalog_keeps_logical_types(path, tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.parquet", "no Arrow schema")
    ia.build_catalog(tmp_path)
    ds = ia.dataset(tmp_path, catalog=True)
    assert ds.schema.field("u").type == pa.uuid()
    for one in SPELLINGS.values():
        assert matching(ds, field("u") == one) == [AT, AT]
