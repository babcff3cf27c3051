"""Files handed to DuckDB's own reader by ``ia.sql``: the answers are those over data in memory."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from drawn_files import (
    NAN,
    NESTED,
    array_of,
    tables,
    write,
    write_duckdb,
    write_indexed,
    write_pyarrow,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.dataset.engine_hand_over import HandOver, Refusal, hand_over
from intarsia.engines.arrow_types import as_in_duckdb
from intarsia.errors import FormatError, PathError
from intarsia.expr.nested_types import holds
from intarsia.parquet.metadata import FileMetaData
from intarsia.parquet.thrift import amended, decode, encode

TYPES = "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM t)"


def in_memory(query: str, **tables: pa.Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(query).to_arrow_table()


def shown(value: Any) -> Any:
    """A value that compares equal to itself: NaN equals NaN, and both zeros are one."""
    if isinstance(value, float):
        return repr(value + 0.0)
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shown(one) for one in value]
    return repr(value)


def rows_of(table: pa.Table, *, ordered: bool) -> list[str]:
    names = [f"{number}" for number in range(table.num_columns)]
    rows = [str(shown(row)) for row in table.rename_columns(names).to_pylist()]
    return rows if ordered else sorted(rows)


def check(query: str, path: Any, table: pa.Table | None = None, **options: Any) -> None:
    """Asserts that both readers give DuckDB's answer to ``query`` over ``table``, or its error."""
    ordered = "ORDER BY" in query.rpartition(")")[2]
    if table is None:
        table = ia.dataset(path, reader="pages", **options).to_table()
    try:
        expected, error = in_memory(query, t=table), None
    except duckdb.Error as failure:
        expected, error = None, type(failure)
    for reader in ("engine", "pages"):
        data = ia.dataset(path, reader=reader, **options)
        if error is not None:
            with pytest.raises(error):
                ia.sql(query, t=data)
            continue
        actual = ia.sql(query, t=data)
        assert actual.schema.types == expected.schema.types, (reader, query)
        assert actual.column_names == expected.column_names, (reader, query)
        rows = rows_of(actual, ordered=ordered)
        assert rows == rows_of(expected, ordered=ordered), (reader, query)


def refusal(data: pads.Dataset, columns: Sequence[str] | None = None, **options: Any) -> str | None:
    """The reason why files are not handed over; None if they are."""
    actual = hand_over(
        data.scan_source, data.schema.names if columns is None else columns, **options
    )
    return actual.reason if isinstance(actual, Refusal) else None


# --- any table, file and query ------------------------------------------------------------------

UNREAD = {"half", "span", "pair", "place"}  # types that DuckDB does not write, or not alike
SUMMED = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "d5", "d18", "d38"}


def write_polars(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    table = table.drop_columns([name for name in ("map", "uuid") if name in table.column_names])
    frame = pl.from_arrow(table)
    frame.write_parquet(
        folder / "0.parquet",
        row_group_size=draw(st.integers(1, 8)),
        statistics=draw(st.sampled_from([True, False, "full"])),
    )


WRITERS = [write_pyarrow, write_duckdb, write_polars, write_indexed]


def literals_of(table: pa.Table) -> dict[str, list[str]]:
    """Values of each column that is not nested, as SQL, by its name."""
    actual = {}
    for name in table.column_names:
        if name not in NESTED:
            query = f"SELECT DISTINCT {name}::VARCHAR AS v, typeof({name}) AS k FROM t ORDER BY v"
            rows = [row for row in in_memory(query, t=table).to_pylist() if row["v"] is not None]
            texts = [(row["v"].replace("'", "''"), row["k"]) for row in rows]
            actual[name] = [f"'{text}'::{kind}" for text, kind in texts]
    return actual


def queries_of(draw: st.DrawFn, table: pa.Table) -> list[str]:
    """Queries of all kinds, over columns and values of ``table``."""
    literals = literals_of(table)
    names = table.column_names
    plain = [name for name in names if name not in NESTED]

    def condition() -> str:
        name = draw(st.sampled_from(names))
        operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"]))
        value = f"(SELECT any_value({name}) FROM t WHERE id = {draw(st.integers(0, 16))})"
        kinds = [f"{name} {operator} {value}", f"{name} IS NULL", f"{name} IS NOT NULL"]
        if literals.get(name):
            value = draw(st.sampled_from(literals[name]))
            among = ", ".join(literals[name][:2])
            kinds += [f"{name} {operator} {value}", f"NOT ({name} {operator} {value})"] * 2
            kinds += [f"{name} IN ({among})", f"coalesce({name}, {value}) = {value}"]
        return str(draw(st.sampled_from(kinds)))

    name, other = draw(st.sampled_from(names)), draw(st.sampled_from(plain))
    number = draw(st.sampled_from([name for name in names if name in SUMMED] or ["id"]))
    order = draw(st.sampled_from(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]))
    queries = [
        f"SELECT * FROM t WHERE {condition()} AND {condition()}",
        f"SELECT {name} FROM t WHERE {condition()} OR {condition()}",
        f"SELECT count(*) FROM t WHERE {condition()}",
        f"SELECT min({name}), max({name}), count({name}), count(DISTINCT {name}) FROM t",
        f"SELECT max({name}), sum({number}) FROM t WHERE {condition()}",
        f"SELECT list({name} ORDER BY id) FROM t WHERE {condition()}",
        f"SELECT {other}, count(*), max(id) FROM t GROUP BY {other}",
        f"SELECT {name}, id FROM t ORDER BY {name}{order}, id LIMIT 3",
        f"SELECT id FROM t WHERE {condition()} ORDER BY {other}{order}, id LIMIT 2 OFFSET 1",
        f"SELECT DISTINCT {name} FROM t",
        f"SELECT a.id, b.id FROM t a JOIN t b ON a.{name} = b.{name} WHERE a.id < 2",
        f"SELECT a.id, b.{name} FROM t a LEFT JOIN t b ON a.id = b.id + 1 AND b.{other} IS NULL",
        f"SELECT id, row_number() OVER (PARTITION BY {other} ORDER BY id) FROM t",
        f"SELECT {name} FROM t EXCEPT SELECT {name} FROM t WHERE {condition()}",
        f"SELECT id FROM t WHERE {name} = (SELECT max({name}) FROM t)",
        f"SELECT id FROM t WHERE {other} IN (SELECT {other} FROM t WHERE id < 3)",
        f"PIVOT (SELECT id, {other} IS NULL AS p FROM t) ON p USING count(*)",
    ]
    chosen = st.lists(st.sampled_from(queries), min_size=5, max_size=5, unique=True)
    return ["SELECT * FROM t", "SELECT count(*) FROM t", TYPES, *draw(chosen)]


@settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_query_of_any_file_is_answered_as_in_memory(tmp_path_factory, data):
    original = data.draw(tables(UNREAD))
    folder = tmp_path_factory.mktemp("any")
    data.draw(st.sampled_from(WRITERS))(data.draw, original, folder)
    read = ia.dataset(folder, reader="pages").to_table()
    if "id" in read.column_names:
        for query in queries_of(data.draw, read):
            check(query, folder, read)


# --- why files are not handed over --------------------------------------------------------------


def amend_footer(path: Path, change: Callable[[Any], Any]) -> None:
    """Rewrite the footer of a file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    metadata, _ = decode(FileMetaData, data[-8 - length : -8])
    raw = encode(change(metadata))
    path.write_bytes(data[: -8 - length] + raw + struct.pack("<I", len(raw)) + b"PAR1")


def with_old_bounds(chunk: Any) -> Any:
    stats = chunk.meta_data.statistics
    old = {"null_count": stats.null_count, "min": stats.max_value, "max": stats.min_value}
    bare = amended(chunk, meta_data={"statistics": None})
    return amended(bare, meta_data={"statistics": old})


def as_old_writers_did(metadata: Any) -> Any:
    groups = [
        amended(group, columns=[with_old_bounds(chunk) for chunk in group.columns])
        for group in metadata.row_groups
    ]
    return amended(metadata, column_orders=None, row_groups=groups)


def folders(base: Path, **files: dict[str, Any]) -> Path:
    """Writes one file per folder; ``__`` in a name stands for the path separator."""
    for name, columns in files.items():
        write(base / name.replace("__", "/") / "f.parquet", columns)
    return base


def old_bounds(base: Path) -> Path:
    path = write(base / "f.parquet", {"v": ["a", "é"]})
    amend_footer(path, as_old_writers_did)
    return path


def geo(base: Path) -> Path:
    shape = bytes.fromhex("0101000000000000000000F03F000000000000F03F")
    columns = {"g": {"encoding": "WKB", "geometry_types": ["Point"]}}
    entry = {"version": "1.0.0", "primary_column": "g", "columns": columns}
    table = pa.table({"g": [shape]}, metadata={"geo": json.dumps(entry)})
    pq.write_table(table, base / "f.parquet")
    return base


def two_levels(base: Path) -> Path:
    """A list whose repeated group has the name of a two-level list's."""

    def renamed(metadata: Any) -> Any:
        schema = [amended(e, name="array") if e.name == "list" else e for e in metadata.schema]
        return amended(metadata, schema=schema)

    path = write(base / "f.parquet", {"v": [[1], [2, 3]]}, store_schema=False)
    amend_footer(path, renamed)
    return path


def zone_in_arrow_schema(base: Path) -> Path:
    """A time zone that is only in ``ARROW:schema``."""

    def without_logical_types(metadata: Any) -> Any:
        return amended(metadata, schema=[amended(e, logicalType=None) for e in metadata.schema])

    path = of(pa.timestamp("us", "UTC"), 1)(base)
    amend_footer(path, without_logical_types)
    return path


def bare_index(base: Path) -> Path:
    """A page index of a column chunk without statistics."""

    def without_statistics(metadata: Any) -> Any:
        (group,) = metadata.row_groups
        chunks = [amended(one, meta_data={"statistics": None}) for one in group.columns]
        return amended(metadata, row_groups=[amended(group, columns=chunks)])

    path = write(base / "f.parquet", {"v": [1, 2]}, write_page_index=True)
    amend_footer(path, without_statistics)
    return path


def keys_in_other_order(base: Path) -> Path:
    write(base / "k=1" / "j=2" / "f.parquet", {"v": [1]})
    write(base / "j=3" / "k=4" / "f.parquet", {"v": [2]})
    return base


def key_above(base: Path) -> Path:
    write(base / "v=7" / "lake" / "k=1" / "f.parquet", {"v": [1]})
    return base / "v=7" / "lake"


def one_has_the_key(base: Path) -> Path:
    write(base / "k=1" / "f.parquet", {"v": [1]})
    write(base / "k=2" / "f.parquet", {"v": [1], "k": pa.array([2], pa.int32())})
    return base


def one_lacks_a_column(base: Path) -> Path:
    write(base / "a.parquet", {"v": [1], "w": [1]})
    write(base / "b.parquet", {"v": [1]})
    return base


def one_has_another_type(base: Path) -> Path:
    write(base / "a.parquet", {"v": [1]})
    write(base / "b.parquet", {"v": pa.array([1], pa.int32())})
    return base


def one_has_another_case(base: Path) -> Path:
    write(base / "a.parquet", {"v": [1]})
    write(base / "b.parquet", {"V": [1]})
    return base


def odd_value(value: str) -> Callable[[Path], Path]:
    def make(base: Path) -> Path:
        write(base / f"k={value}" / "f.parquet", {"v": [1]})
        return base

    return make


def of(kind: pa.DataType, *values: Any, **options: Any) -> Callable[[Path], Path]:
    def make(base: Path) -> Path:
        return write(base / "f.parquet", {"v": array_of(kind, [*values, None])}, **options)

    return make


def named(*names: str) -> Callable[[Path], Path]:
    def make(base: Path) -> Path:
        table = pa.Table.from_arrays([pa.array([n]) for n in range(len(names))], names)
        pq.write_table(table, base / "f.parquet")
        return base

    return make


def at(name: str) -> Callable[[Path], Path]:
    return lambda base: write(base / name / "f.parquet", {"v": [1]})


def with_key(value: Any, **options: Any) -> Callable[[Path], Path]:
    """A file in the folder ``k=1`` that has a column ``k`` as well."""

    def make(base: Path) -> Path:
        columns = {"v": [1, 2], "k": pa.array([value, value], pa.int32())}
        write(base / "k=1" / "f.parquet", columns, **options)
        return base

    return make


ORDINARY = of(pa.int64(), 1, 2)
UNUSUAL = "stored in an unusual way"
ODD_VALUE = "may read the value otherwise"
HIDDEN_NAN = "may leave out NaN"
REFUSED: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "pages are asked for": (ORDINARY, {"reader": "pages"}, 'reader="pages"'),
    "checksums": (ORDINARY, {"page_checksum_verification": True}, "pages are to be checked"),
    "page limit": (ORDINARY, {"page_size_limit": 10**9}, "pages are to be checked"),
    "corrupt": (ORDINARY, {"on_corrupt": "raise"}, "pages are to be checked"),
    "pattern": (at("a*b"), {}, "pattern"),
    "question": (at("a?b"), {}, "pattern"),
    "brackets": (at("a[b]"), {}, "pattern"),
    "percent": (at("a%20b"), {}, "pattern"),
    "case": (named("a", "A"), {}, "differ by case"),
    "renamed": (
        named("a", "A", "A_1"),
        {"schema": pa.schema({"A_1": pa.int64()})},
        "differ by case only",
    ),
    "old bounds": (old_bounds, {}, "bounds of an old writer"),
    "geo": (geo, {}, "bytes as shapes"),
    "zone": (zone_in_arrow_schema, {}, UNUSUAL),
    "bare index": (bare_index, {}, "a page index of a column without statistics"),
    "two levels": (two_levels, {}, UNUSUAL),
    "other keys": (keys_in_other_order, {}, "different keys"),
    "key above": (key_above, {}, "called as keys"),
    "key in some": (one_has_the_key, {}, "some files have a column"),
    "key with NULL": (with_key(None), {}, "another value"),
    "key that differs": (with_key(2), {}, "another value"),
    "key without bounds": (with_key(2, write_statistics=False), {}, "not have the folder's value"),
    "space in value": (odd_value("a b"), {}, ODD_VALUE),
    "unicode value": (odd_value("é"), {}, ODD_VALUE),
    "large value": (odd_value("2147483647"), {}, ODD_VALUE),
    "moment": (odd_value("2020-01-01 10"), {}, ODD_VALUE),
    "lacks": (one_lacks_a_column, {}, "is missing"),
    "lacks, united": (one_lacks_a_column, {"union_by_name": True}, "is missing"),
    "type": (one_has_another_type, {}, "read as"),
    "type, united": (one_has_another_type, {"union_by_name": True}, "read as"),
    "case in another": (one_has_another_case, {}, "is missing"),
    "ms": (of(pa.timestamp("ms"), 1), {}, UNUSUAL),
    "s": (of(pa.timestamp("s"), 1), {}, UNUSUAL),
    "int96": (of(pa.timestamp("us"), 1, use_deprecated_int96_timestamps=True), {}, UNUSUAL),
    "time": (of(pa.time64("us"), 1), {}, UNUSUAL),
    "duration": (of(pa.duration("us"), 1), {}, UNUSUAL),
    "half": (of(pa.float16(), 1.5), {}, UNUSUAL),
    "fixed bytes": (of(pa.binary(2), b"ab"), {}, UNUSUAL),
    "fixed list": (of(pa.list_(pa.int32(), 2), [1, 2]), {}, UNUSUAL),
    "null": (of(pa.null()), {}, UNUSUAL),
    "long decimal": (of(pa.decimal256(50, 2), Decimal(1)), {}, UNUSUAL),
    "json": (of(pa.json_(), "{}"), {}, UNUSUAL),
    "case in a struct": (
        of(pa.struct({"a": pa.int32(), "A": pa.int32()}), {"a": 1, "A": 2}),
        {},
        UNUSUAL,
    ),
    "floats in a list": (of(pa.list_(pa.float64()), [1.0, NAN]), {}, HIDDEN_NAN),
    "floats in a struct": (of(pa.struct({"a": pa.float32()}), {"a": NAN}), {}, HIDDEN_NAN),
    "floats in a map": (
        of(pa.map_(pa.string(), pa.float64()), [("a", NAN)]),
        {},
        HIDDEN_NAN,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_duckdb_reads_differently_are_not_handed_over(name, tmp_path):
    make, options, reason = REFUSED[name]
    path = make(tmp_path)
    data = ia.dataset(path, **{"reader": "engine", **options})
    assert reason in (refusal(data) or "")
    if "another value" in reason:
        for reader in ("engine", "pages"):
            with pytest.raises(FormatError, match="the folder says k=1"):
                ia.sql("SELECT v FROM t WHERE k = 1", t=ia.dataset(path, reader=reader))
        return
    read = data.to_table()
    read = read.cast(as_in_duckdb(read.schema))
    for query in ("SELECT * FROM t", "SELECT count(*) AS n FROM t", TYPES):
        kinds = {} if options.get("reader") else options
        check(query, path, read, **kinds)


def test_ordinary_files_are_handed_over(tmp_path):
    assert refusal(ia.dataset(ORDINARY(tmp_path), reader="engine")) is None


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
def test_nanoseconds_are_handed_over(zone, tmp_path):
    kind = pa.timestamp("ns", zone)
    path = of(kind, -1, 1, 1_600_000_000_000_000_001, 2**62)(tmp_path)
    assert refusal(ia.dataset(path, reader="engine")) is None
    for query in (
        "SELECT * FROM t",
        TYPES,
        "SELECT min(v), max(v), count(v) FROM t",
        "SELECT v FROM t WHERE v > '2020-01-01'",
        "SELECT v FROM t WHERE v = '2020-09-13 12:26:40.000000001'",
        "SELECT v FROM t WHERE v <= TIMESTAMP '2020-09-13 12:26:40'",
        "SELECT v FROM t WHERE v::DATE = DATE '1970-01-01' ORDER BY v",
        "SELECT year(v) AS y, count(*) AS n FROM t GROUP BY y ORDER BY y",
    ):
        check(query, path)


def test_files_that_have_the_columns_of_their_folders_are_handed_over(tmp_path):
    path = with_key(1)(tmp_path)
    assert refusal(ia.dataset(path, reader="engine")) is None
    check("SELECT * FROM t WHERE k = 1", path)


def test_a_file_listed_twice_is_not_handed_over(tmp_path):
    path = ORDINARY(tmp_path)
    assert "twice" in (refusal(ia.dataset([path, path], reader="engine")) or "")
    check("SELECT count(*), sum(v) FROM t", [path, path])


def test_other_storage_is_not_handed_over(tmp_path):
    ORDINARY(tmp_path)
    storage = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    data = ia.dataset("f.parquet", filesystem=storage, reader="engine")
    assert "local" in (refusal(data) or "")
    check("SELECT * FROM t", "f.parquet", filesystem=storage)


def test_a_data_set_with_a_filter_is_not_handed_over(tmp_path):
    data = ia.dataset(ORDINARY(tmp_path), reader="engine").filter(pc.field("v") > 1)
    assert "filter of its own" in (refusal(data) or "")
    assert ia.sql("SELECT * FROM t", t=data).to_pydict() == {"v": [2]}


def test_a_filter_that_no_row_can_pass_leaves_nothing_to_hand_over(tmp_path):
    path = write(tmp_path / "k=1" / "f.parquet", {"v": [1]}).parents[1]
    data = ia.dataset(path, reader="engine")
    assert "no row" in (refusal(data, filter_=pc.field("k") > 1) or "")
    check("SELECT * FROM t WHERE k > 1", path)


def test_selective_indexes_prevent_the_hand_over_by_default(tmp_path):
    values = [row * 7919 % 20_000 for row in range(20_000)]
    table = pa.table({"v": values, "w": values})
    indexes = [ia.Lookup("v")]
    ia.write_table(table, tmp_path / "f.parquet", indexes=indexes, data_page_size=2048)
    needle = pc.field("v") == 7
    data = ia.dataset(tmp_path)
    assert "pages that can match have" in (refusal(data, filter_=needle) or "")
    assert data.explain(filter=needle).reader == "pages"
    assert refusal(data) is None
    assert data.explain().reader == "engine"
    assert "no index can leave out pages" in str(data.explain())
    assert refusal(ia.dataset(tmp_path, reader="engine"), filter_=needle) is None
    check("SELECT * FROM t WHERE v = 7", tmp_path)


def test_a_limit_of_a_row_group_or_more_is_handed_over(tmp_path):
    table = pa.table({"v": range(200_000)})
    ia.write_table(table, tmp_path / "f.parquet", max_rows_per_page=1_000)
    data = ia.dataset(tmp_path)
    assert "first pages" in refusal(data, limit=10)
    assert refusal(data, limit=200_000) is None
    for query in (
        "SELECT v FROM t LIMIT 200000",
        "SELECT v FROM t WHERE hash(v) % 50000 = 7 LIMIT 100",
        "SELECT v FROM t LIMIT 3 OFFSET 150000",
    ):
        check(query, tmp_path, table)


@pytest.mark.parametrize(("rows", "is_handed"), [(200, False), (4_000, True)])
def test_files_of_few_pages_are_handed_over(rows, is_handed, tmp_path):
    """DuckDB decodes the column of a condition, and only the matching pages of other columns."""
    mixed = {name: [n * 7919 % 20_000 for n in range(20_000)] for name in ("a", "b", "c")}
    table = pa.table({"v": range(20_000), **mixed})
    options = {"use_dictionary": False, "write_batch_size": 200, "max_rows_per_page": rows}
    pq.write_table(table, tmp_path / "f.parquet", **options, write_page_index=True)
    data = ia.dataset(tmp_path)
    actual = hand_over(data.scan_source, data.schema.names, pc.field("v") == 7)
    assert isinstance(actual, HandOver) == is_handed
    check("SELECT * FROM t WHERE v = 7", tmp_path, table)


def test_sidecars_leave_out_row_groups_of_files_that_are_handed_over(tmp_path):
    values = [row * 7919 % 20_000 for row in range(20_000)]
    write(tmp_path / "f.parquet", {"v": values, "w": values}, row_group_size=1000)
    needle = pc.field("v") == 7
    assert refusal(ia.dataset(tmp_path, reader="engine"), filter_=needle) is None
    ia.add_indexes(tmp_path, [ia.Lookup("v")], sidecar=True)
    actual = hand_over(ia.dataset(tmp_path).scan_source, ["v", "w"], needle)
    assert isinstance(actual, HandOver)
    assert [rows.num_rows for rows in actual.rows.values()] == [1000]
    check("SELECT * FROM t WHERE v = 7", tmp_path)


# --- errors -------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for part in range(2):
        values = [f"{part}-{row * 7919 % 1000}" for row in range(1000)]
        columns = {"id": range(1000), "v": values}
        write(tmp_path / f"{part}.parquet", columns, row_group_size=500, use_dictionary=False)
    return tmp_path


def damage(path: Path, group: int, column: int) -> None:
    """Overwrite the compressed bytes of a page."""
    chunk = pq.read_metadata(path).row_group(group).column(column)
    with open(path, "r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size // 2)
        file.write(b"\xff" * 100)


ALL = "SELECT * FROM t"


@pytest.mark.parametrize("reader", ["engine", "auto", "pages"])
def test_an_error_names_file_row_group_and_column_of_a_damaged_page(lake, reader):
    damage(lake / "1.parquet", 1, 1)
    data = ia.dataset(lake, reader=reader)
    with pytest.raises(FormatError, match=r"1\.parquet, row group 1, column v"):
        ia.sql(ALL, t=data)
    assert ia.sql("SELECT sum(id) AS s FROM t", t=data).to_pydict() == {"s": [999_000]}
    assert ia.sql("SELECT max(id) AS m FROM t", t=data).to_pydict() == {"m": [999]}


@pytest.mark.parametrize("reader", ["engine", "auto", "pages"])
def test_a_file_that_was_removed_is_named(lake, reader):
    data = ia.dataset(lake, reader=reader)
    assert ia.sql(ALL, t=data).num_rows == 2000
    (lake / "1.parquet").unlink()
    with pytest.raises(PathError, match=r"1\.parquet"):
        ia.sql(ALL, t=data)


@pytest.mark.parametrize("reader", ["engine", "auto", "pages"])
def test_a_footer_that_is_damaged_is_named(lake, reader):
    with open(lake / "1.parquet", "r+b") as file:
        file.seek(-200, os.SEEK_END)
        file.write(b"\xff" * 150)
    data = ia.dataset(lake, reader=reader)
    for _ in range(2):
        with pytest.raises(FormatError, match=r"1\.parquet"):
            ia.sql(ALL, t=data)


def outcome(query: str, data: pads.Dataset) -> Any:
    """The rows of an answer, or the type of its error."""
    try:
        answer = ia.sql(query, t=data)
        if any(holds(kind, pa.types.is_temporal) for kind in answer.schema.types):
            answer = in_memory("SELECT COLUMNS(*)::VARCHAR FROM t", t=answer)  # of any year
        return rows_of(answer, ordered=False)
    except (ia.IntarsiaError, duckdb.Error, UnicodeDecodeError) as error:
        return type(error)


@pytest.mark.parametrize("query", [ALL, "SELECT count(*) FROM t", "SELECT max(v) FROM t"])
@pytest.mark.parametrize(
    "columns",
    [
        {"id": [1, 2], "v": ["x", "y"]},
        {"v": ["x", "y"], "id": [1, 2]},
        {"id": [1.5, 2.5], "v": ["x", "y"]},
        {"id": [1, 2]},
        {"id": [1, 2], "v": [[1], [2]]},
        {"id": [1, 2], "v": [b"\xff", b"y"]},
        {"id": [1, 2], "v": ["x", "y"], "V": [1, 2]},
    ],
    ids=lambda columns: ",".join(columns),
)
def test_a_file_that_was_replaced_is_read_as_it_is_now(lake, columns, query):
    both = [ia.dataset(lake, reader=reader) for reader in ("pages", "engine")]
    for data in both:
        assert ia.sql(ALL, t=data).num_rows == 2000
    write(lake / "new", columns)
    (lake / "new").rename(lake / "1.parquet")
    by_pages, by_engine = (outcome(query, data) for data in both)
    assert by_engine == by_pages


@pytest.mark.parametrize(
    "metadata",
    [{"geo": "{"}, {"geo": '{"version": "1.0.0"}'}, {"geo": '{"columns": 7, "version": "1.0.0"}'}],
    ids=str,
)
def test_a_file_that_duckdb_cannot_open_is_read_by_pages(tmp_path, metadata):
    pq.write_table(pa.table({"v": [1, 2]}, metadata=metadata), tmp_path / "f.parquet")
    for query in (ALL, "SELECT max(v) FROM t", "SELECT * FROM t WHERE v IN (SELECT max(v) FROM t)"):
        check(query, tmp_path)


def test_a_column_without_a_name_is_read_by_pages(tmp_path):
    named("")(tmp_path)
    expected = ia.sql(ALL, t=ia.dataset(tmp_path, reader="pages"))
    assert ia.sql(ALL, t=ia.dataset(tmp_path, reader="engine")).equals(expected)


# --- concurrency --------------------------------------------------------------------------------


def test_each_thread_has_its_own_views(lake, tmp_path_factory):
    """Several threads query two data sets that have the same name."""
    other = tmp_path_factory.mktemp("other")
    write(other / "f.parquet", {"id": range(5), "v": ["z"] * 5})
    expected = {lake: 2000, other: 5}
    wrong: list[Any] = []

    def ask(path: Path) -> None:
        data = ia.dataset(path, reader="engine")
        for low in range(15):
            actual = ia.sql(f"SELECT count(v) AS n FROM t WHERE id >= {low} * 0", t=data)
            if actual["n"].to_pylist() != [expected[path]]:
                wrong.append(actual)

    threads = [threading.Thread(target=ask, args=[path]) for path in (lake, other) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_files_are_handed_over_in_a_forked_process(lake):
    data = ia.dataset(lake, reader="engine")
    query = "SELECT count(*) AS n, max(v) AS v FROM t WHERE id < 100"
    expected = ia.sql(query, t=data)
    read, written = os.pipe()
    child = os.fork()
    if not child:
        os.write(written, repr(ia.sql(query, t=data).to_pydict()).encode())
        os._exit(0)
    os.close(written)
    with open(read, "rb") as pipe:
        assert pipe.read().decode() == repr(expected.to_pydict())
    assert os.waitpid(child, 0)[1] == 0


def test_rows_are_counted_by_footers_alone(lake):
    damage(lake / "0.parquet", 0, 0)
    data = ia.dataset(lake, reader="engine")
    assert ia.sql("SELECT count(*) AS n FROM t", t=data).to_pydict() == {"n": [2000]}


def test_files_without_row_groups_are_read_like_others(tmp_path):
    schema = pa.schema([("n", pa.int64())])
    pq.ParquetWriter(tmp_path / "a.parquet", schema).close()
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "b.parquet")
    for path, expected in ((tmp_path / "a.parquet", []), (tmp_path, [{"n": 2}])):
        assert ia.sql("SELECT * FROM t WHERE n > 1", t=path).to_pylist() == expected
        assert ia.dataset(path).to_table(filter="n > 1").to_pylist() == expected
        assert ia.dataset(path).count_rows("n > 1") == len(expected)
        assert ia.dataset(path).explain(filter="n > 1", analyze=True).read.rows.selected == len(
            expected
        )
