"""Messages about frequent mistakes say what to write instead."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.errors import IndexSpecError, PathError, PredicateError

TABLE = pa.table(
    {
        "id": range(4),
        "name": ["a", "b", None, "d"],
        "tags": [["x"], [], None, ["y", "z"]],
        "usr": [{"id": n, "city": "c"} for n in range(4)],
        "ts": pa.array([datetime.datetime(2026, 1, n, tzinfo=datetime.UTC) for n in range(1, 5)]),
        "price": pa.array([decimal.Decimal("1.50")] * 4, pa.decimal128(12, 2)),
    }
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("messages") / "t.parquet"
    ia.write_table(TABLE, path)
    return path


Call = Callable[[Path], object]
WRONG: dict[str, tuple[type[Exception], str, Call]] = {
    "schema_of_names": (
        TypeError,
        "schema is a pyarrow.Schema, not a dict",
        lambda path: ia.dataset(path, schema={"id": "int64"}),
    ),
    "open_file": (
        TypeError,
        "expected a path or a list of paths, not BufferReader",
        lambda path: ia.dataset(pa.BufferReader(path.read_bytes())),
    ),
    "data_set_for_a_path": (
        TypeError,
        "expected a path: this function takes no data sets",
        lambda path: ia.build_catalog(ia.dataset(path)),
    ),
    "unknown_kind": (
        IndexSpecError,
        "there is no index kind 'lokup'; there are: bloom, ",
        lambda path: ia.add_indexes(path, ["lokup(name)"]),
    ),
    "list_of_bytes": (
        TypeError,
        "expected a path or a list of paths, not bytes",
        lambda path: ia.dataset([bytes(path)]),
    ),
    "partitioning": (
        ValueError,
        "partitioning is 'hive', None, a list of names",
        lambda path: ia.dataset(path, partitioning="hiv"),
    ),
    "fsspecs_uri": (
        PathError,
        r"give filesystem=fsspec.filesystem\('memory'\)",
        lambda _: ia.dataset("memory://x/t.parquet"),
    ),
    "one_dictionary": (
        TypeError,
        "read_dictionary is a list of names, not one name",
        lambda path: ia.dataset(path, read_dictionary="name"),
    ),
    "one_dictionary_of_a_file": (
        TypeError,
        "read_dictionary is a list of names, not one name",
        lambda path: ia.ParquetFile(path, read_dictionary="name"),
    ),
    "operator": (
        PredicateError,
        "with operators =, !=, <, <=, >, >=, in, not in, like",
        lambda path: ia.dataset(path).to_table(filter=[("name", "resembles", "a%")]),
    ),
    "constant_of_another_type": (
        PredicateError,
        r"\(int64, string\); a constant must have its column's type",
        lambda path: ia.dataset(path).to_table(filter=[("id", "=", "1")]),
    ),
    "moment_without_a_zone": (
        PredicateError,
        "compare a column that has a time zone with values that have one",
        lambda path: ia.dataset(path).to_table(filter=[("ts", ">", datetime.datetime(2026, 1, 1))]),
    ),
    "number_and_decimal": (
        PredicateError,
        r"decimal\.Decimal compares with any decimal",
        lambda path: ia.dataset(path).to_table(filter=pc.field("price") < 5000),
    ),
    "list_and_text": (
        PredicateError,
        r"list_contains\(tags, …\) searches its elements",
        lambda path: ia.dataset(path).to_table(filter="tags = 'x'"),
    ),
    "list_and_number": (
        PredicateError,
        r"list_contains\(tags, …\) searches its elements",
        lambda path: ia.dataset(path).to_table(filter="tags = 5"),
    ),
    "no_list": (
        PredicateError,
        "name is string, not a list",
        lambda path: ia.dataset(path).to_table(filter="list_contains(name, 'a')"),
    ),
    "open_quote": (
        PredicateError,
        "Missing '",
        lambda path: ia.dataset(path).to_table(filter="name = 'a"),
    ),
    "open_parenthesis": (
        PredicateError,
        r"Expecting \)",
        lambda path: ia.dataset(path).to_table(filter="(name = 'a'"),
    ),
    "field_to_compute": (
        PredicateError,
        "column 'usr.town' is not there; there are: usr.id, usr.city",
        lambda path: ia.dataset(path).to_table(columns={"v": pc.field("usr", "town")}),
    ),
    "field_to_filter": (
        PredicateError,
        "column 'usr.town' is not there; there are: usr.id, usr.city",
        lambda path: ia.dataset(path).to_table(filter=pc.field("usr", "town") == "x"),
    ),
    "path_as_a_name": (
        PredicateError,
        r"write pc.field\('usr', 'id'\) for a struct's field, or usr.id in SQL",
        lambda path: ia.dataset(path).to_table(filter=[("usr.id", "=", 1)]),
    ),
    "field_of_columns": (
        PredicateError,
        "column 'usr.town' is not there; there are: usr.id, usr.city",
        lambda path: ia.dataset(path).to_table(columns=["usr.town"]),
    ),
    "field_in_sql": (
        PredicateError,
        "column 'usr.idd' is not there, 'usr.id' is",
        lambda path: ia.dataset(path).to_table(filter="usr.idd = 1"),
    ),
    "name_to_compute": (
        TypeError,
        r"computed by an Expression, not by a str: pc.field\('id'\) is one",
        lambda path: ia.dataset(path).to_table(columns={"v": "id"}),
    ),
    "filter_of_another_name": (
        TypeError,
        "unknown options: where; conditions are given as filter",
        lambda path: ia.dataset(path).to_table(where="id = 1"),
    ),
    "members_as_text": (
        PredicateError,
        "the values are a list, not 'abc'",
        lambda path: ia.dataset(path).to_table(filter=[[("name", "not in", "abc")]]),
    ),
    "data_frame": (
        TypeError,
        "expected a path or a list of paths, not DataFrame",
        lambda path: ia.dataset(TABLE.to_pandas()),
    ),
    "paths_as_a_table": (
        TypeError,
        r"a list is no data set; intarsia.dataset\(list\) makes one of paths",
        lambda path: ia.sql("SELECT 1", t=[path]),
    ),
    "head_of_less": (
        ValueError,
        "num_rows is 0 at least, not -1",
        lambda path: ia.dataset(path).head(-1),
    ),
    "distinct": (
        PredicateError,
        "column 'nam' is not there, 'name' is",
        lambda path: ia.ParquetFile(path).distinct("nam"),
    ),
    "bloom_of_a_struct": (
        IndexSpecError,
        "no index usr:bloom: the column is nested: it has usr.id, usr.city",
        lambda path: ia.add_indexes(path, [ia.Bloom("usr")]),
    ),
    "bloom_of_a_function": (
        IndexSpecError,
        "this index takes columns, not functions",
        lambda path: ia.add_indexes(path, ["bloom(lower(name))"]),
    ),
    "kind_first": (
        IndexSpecError,
        "a lookup of it is name:lookup",
        lambda path: ia.add_indexes(path, ["lookup:name"]),
    ),
    "pseudo_column": (
        PredicateError,
        "column '__row_number' is not there: scans add it, but files do not contain it",
        lambda path: ia.dataset(path).to_table(filter="__row_number < 5"),
    ),
    "function": (
        PredicateError,
        "'SOUNDEX.*' is not a value this understands: values are columns, constants, .* lower,",
        lambda path: ia.dataset(path).to_table(filter="soundex(name) = 'a'"),
    ),
    "item_before_the_first": (
        PredicateError,
        r"'tags\[0\]' is not .*: items of lists count from 1: write tags\[1\] for",
        lambda path: ia.dataset(path).to_table(filter="tags[0] = 'a'"),
    ),
    "item_from_the_end": (
        PredicateError,
        r"'tags\[-1\]' is not .* only ia.sql takes positions below 1",
        lambda path: ia.dataset(path).to_table(filter="lower(tags[-1]) = 'a'"),
    ),
    "field_of_an_item": (
        PredicateError,
        r"'tags\[0\].x' is not .* write tags\[1\] for the first",
        lambda path: ia.dataset(path).to_table(filter="tags[0].x = 'a'"),
    ),
    "function_of_an_item": (
        PredicateError,
        r"'LIST_EXTRACT\(tags, 1\)' is not .* write tags\[1\] for the first",
        lambda path: ia.dataset(path).to_table(filter="list_extract(tags, 1) = 'a'"),
    ),
    "json": (
        PredicateError,
        r"\"name -> '\$.k'\" is not .*: .* write payload->>'\$.key', which gives text",
        lambda path: ia.dataset(path).to_table(filter="json_extract(name, '$.k') = 'a'"),
    ),
    "no_condition": (
        PredicateError,
        "'ANY_VALUE.*' is not a condition this understands: conditions are comparisons, BETWEEN",
        lambda path: ia.dataset(path).to_table(filter="any_value(id)"),
    ),
    "option_of_the_writer": (
        TypeError,
        "option 'compresion' is not there, 'compression' is",
        lambda path: ia.write_table(TABLE, path, compresion="zstd"),
    ),
    "no_option_of_the_writer": (
        TypeError,
        "option 'rows' is not there; there are: row_group_size, version, use_dictionary",
        lambda path: ia.write_table(TABLE, path, rows=5),
    ),
    "codec": (
        ValueError,
        "compression 'zst' is not supported; use one of none, snappy, gzip, brotli, lz4, zstd",
        lambda path: ia.write_table(TABLE, path, compression="zst"),
    ),
    "codec_of_a_column": (
        ValueError,
        "compression 'zst' is not supported; use one of",
        lambda path: ia.write_table(TABLE, path, compression={"id": "zst"}),
    ),
    "parameters": (
        TypeError,
        "parameters are given in a list or by name, not as 5",
        lambda path: ia.sql("SELECT * FROM t WHERE id = ?", 5, t=path),
    ),
    "number_as_a_table": (
        TypeError,
        "int is no data set, path, lazy frame",
        lambda _: ia.sql("SELECT 1", t=5),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_messages_name_the_mistake(name: str, path: Path):
    error, words, call = WRONG[name]
    before = path.read_bytes()
    with pytest.raises(error, match=words):
        call(path)
    assert path.read_bytes() == before


def test_the_error_about_a_missing_table_says_how_to_pass_tables():
    with pytest.raises(duckdb.CatalogException) as caught:
        ia.sql("SELECT * FROM t")
    assert caught.value.__notes__ == [
        "tables are given by name: intarsia.sql(query, NAME=PATH)",
        "variables that are tables: TABLE",
    ]


def test_a_column_without_a_distinct_index_has_no_list(path: Path):
    file = ia.ParquetFile(path)
    for on in ("id", "usr.id", "usr", "lower(name)", "tags.list.element"):
        assert file.distinct(on) is None


def test_syntax_unknown_to_duckdb_is_not_logged(path: Path, caplog):
    with pytest.raises(PredicateError):
        ia.dataset(path).to_table(filter="soundex(name) = 'a'")
    ia.sql("SELECT count(*) FROM t WHERE contains(name, 'a') AND id::VARCHAR <> '7'", t=path)
    assert not caplog.records


def test_lists_and_dots_in_names_of_columns(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"s": [{"x.y": 1}], "t": [["a"]], "p": [{"q": 1}], "r": [{"l": [1]}]}), path
    )
    for index, message in (
        ("t:lookup", "the column is nested: it has t.list.element; t:elements indexes what lists"),
        ("p:lookup", r"the column is nested: it has p\.q$"),
        ("r:lookup", r"the column is nested: it has r\.l\.list\.element$"),
        ('lookup(s."x.y")', "column 's.x.y' is not there; there are: s.x.y, "),
    ):
        with pytest.raises(ia.IndexSpecError, match=message):
            ia.add_indexes(path, [index])


def test_page_indexes_are_dropped_by_all_of_their_columns(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(9), "m": range(9)}), path)
    before = path.read_bytes()
    advised = [ia.PageIndex(["k", "m"])]
    ia.add_indexes(path, advised)
    with pytest.raises(ia.IndexSpecError, match=r"dropped together, as page_index; .* for k, m"):
        ia.drop_indexes(path, ["page_index(k)"])
    ia.drop_indexes(path, advised)
    assert path.read_bytes() == before
    with pytest.raises(ia.IndexSpecError, match="no file has an index page_index"):
        ia.drop_indexes(path, advised)
    pq.write_table(pa.table({"k": range(9), "m": range(9)}), tmp_path / "b.parquet")
    ia.add_indexes(tmp_path / "b.parquet", advised)
    ia.drop_indexes(tmp_path, advised)  # the first file does not have it
    assert (tmp_path / "b.parquet").read_bytes() == before


def test_the_error_names_the_wrong_type(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    filesystem: object
    for filesystem in (5, "bogus"):
        with pytest.raises(TypeError, match=r"pyarrow's or fsspec's, not (int|str)"):
            ia.dataset(tmp_path, filesystem=filesystem)
    with pytest.raises(TypeError, match="rows are RowRanges, not list"):
        ia.ParquetFile(tmp_path / "a.parquet").read(rows=[0])
