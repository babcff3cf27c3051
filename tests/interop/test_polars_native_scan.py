"""Files handed to Polars' own reader by ``ia.polars.scan``: the answers are those in memory."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from drawn_files import NAN, array_of, tables, write, write_duckdb, write_indexed, write_pyarrow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import intarsia as ia
from intarsia.engines.polars import lazy_frame as engine
from intarsia.engines.polars import native_scan

Question = Callable[[pl.LazyFrame], pl.LazyFrame]


def is_polars_own(frame: pl.LazyFrame) -> bool:
    """True if Polars reads the files by itself."""
    plan = frame.explain(optimized=False)
    return "Parquet SCAN" in plan and "PYTHON SCAN" not in plan


def check(question: Question, path: Any, **options: Any) -> None:
    """Asserts that both readers give Polars' answer over the rows in memory, or its error."""
    scan = ia.polars.scan(path, reader="pages", **options)
    assert not is_polars_own(scan)
    memory = scan.collect().lazy()
    try:
        expected = question(memory).collect()
    except pl.exceptions.PolarsError as failure:
        for reader in ("auto", "engine", "pages"):
            with pytest.raises(type(failure)):
                question(ia.polars.scan(path, reader=reader, **options)).collect()
        return
    for reader in ("auto", "engine", "pages"):
        scan = ia.polars.scan(path, reader=reader, **options)
        assert scan.collect_schema() == memory.collect_schema()
        assert_frame_equal(question(scan).collect(), expected)


# --- any table, file and question ---------------------------------------------------------------

UNREAD = {"texts", "point", "map"}  # other nested types replace them


def write_part(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    # pyarrow divides rows of fixed-size lists among small pages, so a page index of them is ignored
    has_page_index = "pair" not in table.column_names and draw(st.integers(0, 3)) == 0
    write_pyarrow(draw, table, folder, st.just(has_page_index))


def write_folders(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    unread = [name for name in ("half", "span", "pair") if name in table.column_names]
    write_duckdb(draw, table.drop_columns(unread), folder, without_folders={"uuid"})


def write_polars(draw: st.DrawFn, table: pa.Table, folder: Path) -> None:
    """One file or two, with Polars' own types."""
    table = table.drop_columns([name for name in ("uuid",) if name in table.column_names])
    frame = pl.DataFrame(pl.from_arrow(table))
    if "word" in frame.columns and draw(st.booleans()):
        frame = frame.with_columns(pl.col("word").cast(pl.Enum(["", "y", "x"])))
    for part, rows in enumerate(frame.iter_slices(draw(st.sampled_from([8, 16])))):
        rows.write_parquet(
            folder / f"{part}.parquet",
            row_group_size=draw(st.integers(1, 8)),
            statistics=draw(st.sampled_from([True, False, "full"])),
            compression=draw(st.sampled_from(["uncompressed", "zstd"])),
        )


WRITERS = [write_part, write_part, write_folders, write_polars, write_indexed]


def predicate_of(draw: st.DrawFn, frame: pl.DataFrame) -> pl.Expr:
    """A predicate on a column of ``frame``, with one or two of its values."""
    name = draw(st.sampled_from(frame.columns))
    column, kind = pl.col(name), frame.schema[name]
    kinds = [column.is_null(), column.is_not_null()]
    if not kind.is_nested():
        values = frame[name].drop_nulls().to_list() or [None]
        one, other = (pl.lit(draw(st.sampled_from(values)), kind) for _ in range(2))
        kinds += [column == one, column != one, column < one, column <= one, column > one]
        kinds += [column >= one, column.is_between(one, other), column.eq_missing(one)]
        kinds += [column.ne_missing(one), column.is_in(values[:2]), column == pl.col(name).max()]
    if kind.is_float():
        kinds += [column.is_nan(), column.is_not_nan(), column.is_finite(), column == NAN]
        kinds += [column.abs() >= 0.0, column > 0.0, column <= 1e300]
    if kind.is_integer():
        kinds += [column + 1 > 0, column.cast(pl.Float64) <= 5.5, column > 2.5]
    if kind == pl.String:
        kinds += [column.str.starts_with("x"), column.str.contains("b"), column > "a"]
    if kind.is_temporal() and kind in (pl.Date, pl.Datetime):
        kinds += [column.dt.year() > 1999]
    if kind == pl.Datetime and kind.time_zone is None:  # of microseconds
        kinds += [column > dt.datetime(1999, 1, 1), column == dt.datetime(2020, 3, 29, 1, 30)]
    actual = draw(st.sampled_from(kinds))
    if draw(st.integers(0, 2)) == 0:
        actual = ~actual
    if draw(st.integers(0, 3)) == 3:  # so that the simplest predicate ends here
        second = predicate_of(draw, frame)
        actual = draw(st.sampled_from([actual & second, actual | second]))
    return actual


def questions_of(draw: st.DrawFn, frame: pl.DataFrame) -> list[Question]:
    """Questions of all kinds, over columns and values of ``frame``."""
    where, also = (predicate_of(draw, frame) for _ in range(2))
    name = draw(st.sampled_from(frame.columns))
    plain = [name for name, kind in frame.schema.items() if not kind.is_nested()]
    key = draw(st.sampled_from(plain))
    start, count = draw(st.integers(-17, 17)), draw(st.integers(0, 17))
    questions: list[Question] = [
        lambda f: f.filter(where),
        lambda f: f.filter(where, also).select(name),
        lambda f: f.filter(where).select(pl.len()),
        lambda f: f.filter(where).head(2),
        lambda f: f.head(count).filter(where),
        lambda f: f.slice(start, count),
        lambda f: f.tail(count).select(name),
        lambda f: f.with_row_index().filter(where).select("index"),
        lambda f: f.select(pl.col(key).min().alias("a"), pl.col(key).max().alias("b")),
        lambda f: f.filter(where).group_by(key, maintain_order=True).agg(pl.len()),
        lambda f: f.sort(key, descending=True, maintain_order=True).head(3),
        lambda f: f.select(pl.col(key).is_null().sum().alias("a"), pl.col(name).first().alias("b")),
        lambda f: f.join(f.filter(where), on="id", how="semi", maintain_order="left").select("id"),
        lambda f: pl.concat([f.filter(where), f.filter(also)]).select("id", name),
    ]
    return draw(st.lists(st.sampled_from(questions), min_size=5, max_size=5, unique=True))


@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_any_question_of_any_file_is_answered_as_in_memory(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    data.draw(st.sampled_from(WRITERS))(data.draw, data.draw(tables(UNREAD)), folder)
    frame = ia.polars.scan(folder, reader="pages").collect()
    for question in [lambda f: f, *questions_of(data.draw, frame)]:
        check(question, folder)


# --- which files Polars reads -------------------------------------------------------------------


def of(kind: pa.DataType, *values: Any, **options: Any) -> Callable[[Path], Path]:
    return lambda base: write(base / "f.parquet", {"v": array_of(kind, [*values, None])}, **options)


def at(name: str) -> Callable[[Path], Path]:
    return lambda base: write(base / name / "f.parquet", {"v": [1]})


def files_of(*files: dict[str, Any]) -> Callable[[Path], Path]:
    def make(base: Path) -> Path:
        for number, columns in enumerate(files):
            write(base / f"{number}.parquet", columns)
        return base

    return make


def folders_of(column: str, *values: Any) -> Callable[[Path], Path]:
    """A folder with a file for each value, and columns before and after the partition columns."""

    def make(base: Path) -> Path:
        for number, value in enumerate(values):
            write(base / f"{column}={value}" / "f.parquet", {"v": [number, None], "w": ["a", "b"]})
        return base

    return make


ORDINARY = of(pa.int64(), 1, 2)
READ_BY_POLARS: dict[str, Callable[[Path], Path]] = {
    "integers": ORDINARY,
    "floats with NaN": of(pa.float64(), NAN, 1.0, -0.0),
    "floats in a list": of(pa.list_(pa.float64()), [1.0, NAN]),
    "categories": of(pa.dictionary(pa.int8(), pa.string()), "a"),
    "decimals": of(pa.decimal128(38, 2), Decimal("1.10")),
    "moments": of(pa.timestamp("us", "Europe/Paris"), dt.datetime(2020, 1, 2)),
    "milliseconds": of(pa.timestamp("ms"), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),
    "milliseconds in a zone": of(pa.timestamp("ms", "UTC"), dt.datetime(2020, 1, 2)),
    "nanoseconds": of(pa.timestamp("ns"), -1, 2**62, 1),
    "nanoseconds in a zone": of(pa.timestamp("ns", "Europe/Paris"), 1),
    "nanoseconds in a list": of(pa.list_(pa.timestamp("ns")), [1, None], []),
    "no rows": lambda base: write(base / "f.parquet", {"v": pa.array([], pa.int64())}),
    "a file without rows": files_of({"v": pa.array([], pa.int64())}, {"v": [1, 2]}),
    "columns in another order": files_of({"a": [1], "b": ["x"]}, {"b": ["y"], "a": [2]}),
    "more columns": files_of({"a": [1]}, {"a": [2], "b": ["y"]}),
    "folders of text": folders_of("k", "a", "b", "__HIVE_DEFAULT_PARTITION__"),
    "folders of numbers": folders_of("k", 1, 2, -3),
    "folders of dates": folders_of("k", "2020-01-02", "1999-12-31"),
    "an equals sign above": lambda base: write(base / "x=1" / "f.parquet", {"v": [1]}),
    "a hidden folder": lambda base: write(base / ".a" / "_b" / "f.parquet", {"v": [1]}),
}


@pytest.mark.parametrize("name", READ_BY_POLARS)
def test_polars_reads_files_that_both_read_alike(name, tmp_path):
    path = READ_BY_POLARS[name](tmp_path)
    assert is_polars_own(ia.polars.scan(path))
    expected = ia.dataset(path).to_table()
    frame = ia.polars.scan(path).collect()
    assert frame.columns == expected.column_names
    assert_frame_equal(frame, pl.DataFrame(pl.from_arrow(expected)))
    for question in (
        lambda f: f.select(pl.len()),
        lambda f: f.filter(pl.nth(0).is_null()),
        lambda f: f.filter(pl.nth(-1).is_not_null()).select(pl.nth(-1)),
        lambda f: f.tail(1),
    ):
        check(question, path)


def unlike_its_folder(base: Path) -> Path:
    columns = {"v": [1, 2], "k": pa.array([2, 2], pa.int32())}
    write(base / "k=1" / "f.parquet", columns, write_statistics=False)
    return base


READ_BY_US: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "pages are asked for": (ORDINARY, {"reader": "pages"}),
    "checksums": (ORDINARY, {"page_checksum_verification": True}),
    "page limit": (ORDINARY, {"page_size_limit": 10**9}),
    "damage": (ORDINARY, {"on_corrupt": "skip"}),
    "categories are asked for": (of(pa.string(), "a"), {"read_dictionary": ["v"]}),
    "pattern": (at("a*b"), {}),
    "brackets": (at("a[b]"), {}),
    "percent": (at("a%20b"), {}),
    "a missing column": (files_of({"a": [1], "b": [1]}, {"a": [2]}), {}),
    "a column of some": (files_of({"a": [1]}, {"a": [2], "b": [1]}), {"union_by_name": True}),
    "another type": (files_of({"a": [1]}, {"a": pa.array([2], pa.int32())}), {}),
    "a schema": (ORDINARY, {"schema": pa.schema({"v": pa.int16()})}),
    "another value than the folder": (unlike_its_folder, {}),
    "a folder with a space": (folders_of("k", "a b"), {}),
    "a fixed list": (of(pa.list_(pa.int32(), 2), [1, 2]), {}),
    "a uuid": (of(pa.uuid(), uuid.UUID(int=1).bytes), {}),
    "json": (of(pa.json_(), "{}"), {}),
    "a long decimal": (of(pa.decimal256(50, 2), Decimal(1)), {}),
    "int96": (of(pa.timestamp("us"), 1, use_deprecated_int96_timestamps=True), {}),
}


@pytest.mark.parametrize("name", READ_BY_US)
def test_our_reader_reads_what_polars_may_read_otherwise(name, tmp_path):
    make, options = READ_BY_US[name]
    path = make(tmp_path)
    for reader in ("auto", "engine"):
        scan = ia.polars.scan(path, **{"reader": reader, **options})
        assert not is_polars_own(scan)
        actual = scan.collect()
        expected = ia.polars.scan(path, **{**options, "reader": "pages"}).collect()
        assert_frame_equal(actual, expected)


def test_a_data_set_with_a_filter_is_read_by_us(tmp_path):
    data = ia.dataset(ORDINARY(tmp_path), reader="engine").filter(pc.field("v") > 1)
    assert not is_polars_own(ia.polars.scan(data))
    assert ia.polars.scan(data).collect()["v"].to_list() == [2]


def test_other_storage_is_read_by_us(tmp_path):
    ORDINARY(tmp_path)
    storage = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    scan = ia.polars.scan("f.parquet", filesystem=storage, reader="engine")
    assert not is_polars_own(scan)
    assert scan.collect()["v"].to_list() == [1, 2, None]


ROWS = 20_000
SORTED = {"v": range(ROWS), "w": [str(number) for number in range(ROWS)]}
PAGES = {"max_rows_per_page": 500, "write_page_index": True}


@pytest.mark.parametrize("where", ["embedded", "sidecar", "pages", "bloom filter", "catalog"])
def test_files_with_indexes_are_planned_for_each_query(where, tmp_path):
    path = write(tmp_path / "f.parquet", SORTED, **(PAGES if where == "pages" else {}))
    assert is_polars_own(ia.polars.scan(tmp_path)) == (where != "pages")
    if where in ("embedded", "sidecar"):
        ia.add_indexes(path, [ia.Lookup("v")], sidecar=where == "sidecar")
    if where == "bloom filter":
        options = {"v": {"ndv": ROWS, "fpp": 0.01}}
        write(path, SORTED, use_dictionary=False, bloom_filter_options=options)
    if where == "catalog":
        ia.build_catalog(tmp_path)
    assert not is_polars_own(ia.polars.scan(tmp_path))
    assert is_polars_own(ia.polars.scan(tmp_path, reader="engine"))
    for question in (lambda f: f.filter(pl.col("v") == 7), lambda f: f.select(pl.len())):
        check(question, tmp_path)


def test_a_page_index_that_excludes_nothing_is_not_used(tmp_path):
    values = [number * 7919 % ROWS for number in range(ROWS)]
    write(tmp_path / "f.parquet", {"v": values}, **PAGES)
    assert is_polars_own(ia.polars.scan(tmp_path))
    check(lambda f: f.filter(pl.col("v") == 7), tmp_path)


@pytest.mark.parametrize(("rows", "is_own"), [(200, False), (4_000, True)])
def test_a_page_index_of_few_pages_is_not_used(rows, is_own, tmp_path):
    """Polars decodes the column of a condition, and only the matching pages of other columns."""
    mixed = {name: [n * 7919 % ROWS for n in range(ROWS)] for name in ("a", "b", "c")}
    options = {"use_dictionary": False, "write_batch_size": 200, "max_rows_per_page": rows}
    write(tmp_path / "f.parquet", {"v": range(ROWS), **mixed}, **options, write_page_index=True)
    assert is_polars_own(ia.polars.scan(tmp_path)) == is_own
    check(lambda f: f.filter(pl.col("v") == 7), tmp_path)


def test_a_bloom_filter_beside_a_dictionary_is_not_used(tmp_path):
    table = pa.table({"v": [number % 5 for number in range(ROWS)]})
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"COPY t TO '{tmp_path}/f.parquet' (FORMAT parquet)")
    assert pq.read_metadata(tmp_path / "f.parquet").row_group(0).column(0).bloom_filter_offset
    assert is_polars_own(ia.polars.scan(tmp_path))


def test_many_files_are_planned_for_each_query(tmp_path, monkeypatch):
    files_of(*[{"v": [number]} for number in range(5)])(tmp_path)
    assert is_polars_own(ia.polars.scan(tmp_path))
    monkeypatch.setattr(native_scan, "MAX_FILES", 4)
    assert not is_polars_own(ia.polars.scan(tmp_path))
    check(lambda f: f.filter(pl.col("v") > 2), tmp_path)


# --- files that Polars reads within our scan ----------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records which reader reads, Polars or Intarsia, in order."""
    actual: list[str] = []

    def spy(name: str, who: str) -> None:
        call = getattr(engine, name)

        def noted(*args: Any, **options: Any) -> Any:
            actual.append(who)
            return call(*args, **options)

        monkeypatch.setattr(engine, name, noted)

    spy("frames_of", "Polars")
    spy("_frames", "ours")
    return actual


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """Files of many small pages, in which ``k`` is sorted and ``u`` is not, with an index."""
    for part in range(2):
        ks = range(part * ROWS, part * ROWS + ROWS)
        table = pa.table({"k": ks, "u": [number * 7919 % ROWS for number in ks]})
        path = tmp_path / f"{part}.parquet"
        ia.write_table(table, path, indexes=[ia.Lookup("u")], data_page_size=2048)
    return tmp_path


def test_each_query_is_read_by_the_reader_that_is_faster(indexed, reads):
    scan = ia.polars.scan(indexed)
    for question, who in (
        (lambda f: f, "Polars"),
        (lambda f: f.filter(pl.col("u") % 3 == 0), "Polars"),
        (lambda f: f.filter(pl.col("k") > 50), "Polars"),
        (lambda f: f.filter(pl.col("k") == 50), "ours"),
        (lambda f: f.filter(pl.col("u") == 50), "ours"),
        (lambda f: f.head(5), "ours"),
    ):
        reads.clear()
        question(scan).collect()
        assert {*reads} == {who}
        check(question, indexed)


def test_row_groups_without_a_hit_are_not_read(tmp_path, reads):
    values = [number * 7919 % ROWS for number in range(ROWS)]
    columns = {"row": range(ROWS), "v": values, "w": [str(value) for value in values]}
    for part in range(2):
        write(tmp_path / f"{part}.parquet", columns, row_group_size=1000, use_dictionary=False)
    ia.add_indexes(tmp_path, [ia.Lookup("v", granule_rows=1000)])
    for path in sorted(tmp_path.glob("*.parquet")):
        meta = pq.read_metadata(path)
        with open(path, "r+b") as file:  # all row groups but the one that matches
            for group in range(meta.num_row_groups):
                if group != values.index(7) // 1000:
                    file.seek(meta.row_group(group).column(2).data_page_offset + 100)
                    file.write(b"\xff" * 400)
    actual = ia.polars.scan(tmp_path).filter(pl.col("v") == 7)
    assert actual.collect().rows() == [(values.index(7), 7, "7")] * 2
    assert actual.select(pl.len()).collect().item() == 2
    assert actual.select("w").collect()["w"].to_list() == ["7", "7"]
    assert "Polars" in reads


def test_file_names_are_not_globs(tmp_path, reads):
    columns = {"*": [1, 2], "a": [3, 4], "^a$": [5, 6], "row": [7, 8]}
    ia.write_table(pa.table(columns), tmp_path / "f.parquet", indexes=[ia.Lookup("a")])
    scan = ia.polars.scan(tmp_path)
    assert scan.collect().to_dict(as_series=False) == columns
    assert scan.select(cs.by_name("^a$", "*")).collect().columns == ["^a$", "*"]
    assert {*reads} == {"Polars"}


@pytest.mark.parametrize("reader", ["auto", "engine", "pages"])
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_rows_are_counted_by_footers_alone(engine, reader, indexed, reads):
    scan = ia.polars.scan(ia.dataset(indexed, reader=reader).filter(pc.field("k") >= 0))
    for frame in (scan, ia.polars.scan(indexed)):
        assert frame.select(pl.len()).collect(engine=engine).item() == 2 * ROWS
        assert frame.head(9).select(pl.len()).collect(engine=engine).item() == 9
        assert frame.slice(39_990, 99).select(pl.len()).collect(engine=engine).item() == 10
    assert reads == []


def test_only_the_columns_of_a_condition_are_read_to_count(tmp_path, monkeypatch):
    table = pa.table({"rows": range(ROWS), "rows_": [True] * ROWS, "w": ["x"] * ROWS})
    ia.write_table(table, tmp_path / "f.parquet", indexes=[ia.Lookup("rows")])
    scan, columns = ia.polars.scan(tmp_path), list[list[str]]()
    assert scan.collect_schema().names() == table.column_names
    polars_hand_over = engine.polars_hand_over

    def noted(data: Any, names: list[str], *args: Any) -> Any:
        columns.append(names)
        return polars_hand_over(data, names, *args)

    monkeypatch.setattr(engine, "polars_hand_over", noted)
    for actual, names in (
        (scan.filter(pl.col("rows") % 2 == 1), ["rows"]),
        (scan.filter(pl.col("rows") == 7), ["rows"]),
        (scan.filter((pl.col("w") == "x") & pl.col("rows_")), ["rows_", "w"]),
        (scan.head(50).filter(pl.col("w") == "x"), ["w"]),
    ):
        columns.clear()
        assert actual.select(pl.len()).collect().item() == actual.collect().height > 0
        assert columns[0] == names
    flags = pl.QueryOptFlags(projection_pushdown=False)
    assert scan.select(pl.len()).collect(optimizations=flags).item() == ROWS
    assert scan.collect(optimizations=flags).columns == table.column_names


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_rows_are_counted_and_limited(indexed, engine):
    scan = ia.polars.scan(indexed)
    assert scan.select(pl.len()).collect(engine=engine).item() == 2 * ROWS
    assert scan.with_row_index().select("index").tail(1).collect(engine=engine).item() == 39_999
    odd = scan.filter(pl.col("u") % 2 == 1)
    assert odd.select(pl.len()).collect(engine=engine).item() == ROWS
    assert odd.head(3).collect(engine=engine)["k"].to_list() == [1, 3, 5]
    assert scan.slice(19_998, 4).collect(engine=engine)["k"].to_list() == [*range(19_998, 20_002)]
    assert scan.head(9_999).filter(pl.col("u") == 0).collect(engine=engine).rows() == [(0, 0)]


def test_several_scans_of_one_plan_are_read(indexed):
    scan = ia.polars.scan(indexed)
    parts = [scan.filter(pl.col("u") % 7 == number) for number in range(7)]
    actual = pl.concat([part.join(part, on="k") for part in parts]).select(pl.len()).collect()
    assert actual.item() == 2 * ROWS


# --- files that change or are damaged -----------------------------------------------------------


@pytest.mark.parametrize("reader", ["auto", "engine", "pages"])
def test_a_file_that_was_replaced_is_read_as_it_is_now(reader, tmp_path):
    write(tmp_path / "f.parquet", {"v": range(1000), "w": ["a"] * 1000}, row_group_size=100)
    data = ia.dataset(tmp_path, reader=reader)
    scan = ia.polars.scan(data)
    assert scan.collect_schema() == {"v": pl.Int64, "w": pl.String}
    assert scan.select(pl.len()).collect().item() == 1000
    write(tmp_path / "new", {"v": range(5000, 9000), "w": ["é" * 50] * 4000}, row_group_size=300)
    (tmp_path / "new").rename(tmp_path / "f.parquet")
    for again in (scan, ia.polars.scan(data)):
        assert again.filter(pl.col("v") == 5001).collect().rows() == [(5001, "é" * 50)]
        assert again.select(pl.len()).collect().item() == 4000


def test_an_index_that_is_added_later_is_used_by_the_next_scan(tmp_path):
    path = write(tmp_path / "f.parquet", SORTED)
    data = ia.dataset(tmp_path)
    assert ia.polars.scan(data) is ia.polars.scan(data)
    assert is_polars_own(ia.polars.scan(data))
    ia.add_indexes(path, [ia.Lookup("v")])
    assert not is_polars_own(ia.polars.scan(data))


@pytest.mark.parametrize("reader", ["auto", "engine", "pages"])
def test_a_file_that_was_removed_is_named(reader, tmp_path):
    files_of({"v": [1]}, {"v": [2]})(tmp_path)
    data = ia.dataset(tmp_path, reader=reader)
    scan = ia.polars.scan(data)
    assert scan.collect()["v"].to_list() == [1, 2]
    (tmp_path / "1.parquet").unlink()
    for again in (scan, ia.polars.scan(data)):
        with pytest.raises(FileNotFoundError, match=r"1\.parquet"):
            again.collect()


def damage_pages(path: Path, group: int, column: int) -> None:
    chunk = pq.read_metadata(path).row_group(group).column(column)
    with open(path, "r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size // 2)
        file.write(b"\xff" * 300)


def test_our_reader_names_the_place_of_damage_that_stops_polars(indexed, reads):
    damage_pages(indexed / "1.parquet", 0, 0)
    with pytest.raises(ia.FormatError, match=r"1\.parquet, row group 0, column k"):
        ia.polars.scan(indexed).collect()
    assert reads == ["Polars", "ours"]


def test_our_reader_gives_the_rows_that_polars_did_not_return(indexed, monkeypatch, reads):
    whole = ia.polars.scan(indexed, reader="pages").collect()

    def fail_late(*_: Any, **__: Any) -> Any:
        yield whole[:12_345]
        raise native_scan.NotReadError

    monkeypatch.setattr(engine, "frames_of", fail_late)
    assert_frame_equal(ia.polars.scan(indexed).collect(), whole)
    assert ia.polars.scan(indexed).filter(pl.col("k") % 2 == 0).collect().height > 0


@pytest.mark.parametrize("reader", ["auto", "engine"])
def test_our_reader_reads_files_with_schemas_unknown_to_polars(reader, tmp_path, monkeypatch):
    def fail(*_: Any) -> Any:
        raise pl.exceptions.ComputeError

    monkeypatch.setattr(pl, "read_parquet_schema", fail)
    write(tmp_path / "f.parquet", {f"only for {reader}": [1, 2]})  # schemas are known from footers
    scan = ia.polars.scan(tmp_path, reader=reader)
    assert not is_polars_own(scan)
    assert scan.collect().height == 2


def test_a_predicate_that_fails_has_polars_error(indexed):
    wrong = pl.col("u").cast(pl.String).str.to_date("%Y") > pl.date(2020, 1, 1)
    with pytest.raises(pl.exceptions.PolarsError, match="conversion"):
        ia.polars.scan(indexed).filter(wrong).collect()
