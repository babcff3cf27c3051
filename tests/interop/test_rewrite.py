"""``ia.rewrite``: the same rows, types and metadata in other files."""

from __future__ import annotations

import decimal
import json
import random
import subprocess
import sys

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.io.external_sort import Workspace
from intarsia.writer import row_sorting

ROWS = 5000
NUMBERS = range(ROWS)
FLAT = pa.table(
    {
        "id": pa.array(NUMBERS, pa.int64()),
        "small": pa.array([n % 100 for n in NUMBERS], pa.uint8()),
        "word": [None if n % 11 == 0 else f"w{n * 7919 % 300}" for n in NUMBERS],
        "coded": pa.array([f"c{n % 9}" for n in NUMBERS]).dictionary_encode(),
        "x": [float("nan") if n % 13 == 0 else n / 4 for n in NUMBERS],
        "price": pa.array([decimal.Decimal(n) / 100 for n in NUMBERS], pa.decimal128(9, 2)),
        "at": pa.array([n * 10**9 + n for n in NUMBERS], pa.timestamp("ns", "Europe/Paris")),
        "day": pa.array([n % 400 for n in NUMBERS], pa.date32()),
        "raw": pa.array([bytes([n % 256]) * 3 for n in NUMBERS], pa.binary(3)),
        "big": pa.array([f"b{n}" for n in NUMBERS], pa.large_string()),
    }
)
NESTED = pa.table(
    {
        "id": pa.array(NUMBERS, pa.int64()),
        "tags": [[f"t{n % m}" for m in range(1, n % 4 + 1)] if n % 7 else None for n in NUMBERS],
        "user": [None if n % 5 == 0 else {"name": f"u{n % 50}", "age": n % 90} for n in NUMBERS],
        "attrs": pa.array(
            [[(f"k{n % 3}", n), ("z", None)] if n % 4 else [] for n in NUMBERS],
            pa.map_(pa.string(), pa.int64()),
        ),
        "deep": [[{"a": [n, None]}] if n % 3 else None for n in NUMBERS],
    }
)


def facts(path):
    """The parts of a file that must stay: schemas, field ids, metadata and codecs."""
    file = pq.ParquetFile(path)
    entries = {k: v for k, v in (file.metadata.metadata or {}).items() if k != b"ARROW:schema"}
    entries.pop(b"intarsia", None)
    groups = range(file.metadata.num_row_groups)
    codecs = {
        file.metadata.row_group(g).column(c).compression
        for g in groups
        for c in range(file.metadata.num_columns)
    }
    leaves = [file.schema.column(number) for number in range(file.metadata.num_columns)]
    elements = [
        (leaf.path, leaf.physical_type, logical_type(leaf), leaf.max_definition_level)
        for leaf in leaves
    ]
    fields = [(field, field.metadata or {}) for field in file.schema_arrow]
    return fields, elements, entries, codecs


def logical_type(leaf):
    """The logical type without the settings of pyarrow's writer."""
    stated = json.loads(leaf.logical_type.to_json())
    if stated.get("Type") == "Int" and stated["bitWidth"] == 64 and stated["isSigned"]:
        stated = {"Type": "None"}  # what it is without a logical type
    return {name: value for name, value in stated.items() if "converted" not in name}


def same(one, other):
    """True if two tables are equal, NaN included."""
    return one.schema.equals(other.schema) and repr(one.to_pylist()) == repr(other.to_pylist())


def written_by_pyarrow(table, path):
    fields = [
        field.with_metadata({b"PARQUET:field_id": str(7 + n).encode()})
        for n, field in enumerate(table.schema)
    ]
    schema = pa.schema(fields, {"team": "logs", "note": "ü"})
    pq.write_table(table.cast(schema), path, compression="gzip", row_group_size=700)


def written_by_duckdb(table_, path):
    duckdb.sql(
        f"COPY (SELECT *, uuid() AS u, '[1]'::JSON AS j, id::HUGEINT AS h FROM table_) TO '{path}' "
        "(FORMAT parquet, ROW_GROUP_SIZE 2048)"
    )


def written_by_polars(table, path):
    columns = [name for name in table.column_names if name not in ("attrs", "raw")]
    pl.from_arrow(table.select(columns)).write_parquet(path, row_group_size=999)


@pytest.mark.parametrize("table", [FLAT, NESTED], ids=["flat", "nested"])
@pytest.mark.parametrize("write", [written_by_pyarrow, written_by_duckdb, written_by_polars])
@pytest.mark.parametrize("options", [{}, {"sort_by": ["id"]}], ids=["in order", "sorted"])
def test_files_keep_rows_types_and_metadata(tmp_path, table, write, options):
    path = tmp_path / "a.parquet"
    write(table, path)
    before, old = facts(path), pq.read_table(path)
    report = ia.rewrite(path, rows_per_page=512, row_group_rows=2000, **options)
    assert (report.files_before, report.files_after, report.rows) == (1, 1, ROWS)
    assert report.bytes_after == path.stat().st_size
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]
    assert facts(path) == before
    assert same(pq.read_table(path), old)
    groups = pq.ParquetFile(path).metadata
    assert groups.num_row_groups == 3
    assert all(groups.row_group(number).num_rows <= 2000 for number in range(3))
    pages = [page for group in range(3) for page in ia.ParquetFile(path).pages(group, "id")]
    assert max(page.num_rows for page in pages) == 512
    assert ia.verify(path) == []


def lake_of(folder, table=FLAT, parts=3, **options):
    for day in ("2024-01-01", "2024-01-02", "__HIVE_DEFAULT_PARTITION__"):
        for part in range(parts):
            path = folder / f"day_of={day}" / f"f{part}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table.slice(part * 1000, 1000), path, **options)
    return folder


def test_small_files_are_merged_in_their_folders(tmp_path):
    lake = lake_of(tmp_path / "lake", compression="snappy")
    pq.write_table(FLAT.slice(0, 7), lake / "day_of=2024-01-01" / "g.parquet")
    old = ia.dataset(lake).to_table()
    report = ia.rewrite(lake)
    assert (report.files_before, report.files_after) == (10, 3)
    assert same(ia.dataset(lake).to_table(), old)
    assert {path.suffix for path in lake.rglob("*.*")} == {".parquet"}
    (first,) = (lake / "day_of=2024-01-02").glob("*.parquet")
    assert facts(first)[3] == {"SNAPPY"}


def test_target_file_size_limits_what_is_merged(tmp_path):
    lake = lake_of(tmp_path / "lake")
    size = max(path.stat().st_size for path in lake.rglob("*.parquet"))
    assert ia.rewrite(lake, target_file_size=2 * size + 2000).files_after == 6
    names = {str(path) for path in lake.rglob("*.parquet")}
    assert ia.rewrite(lake, target_file_size=None).files_after == 6
    assert {str(path) for path in lake.rglob("*.parquet")} == names


def test_sorted_rows_are_divided_by_target_file_size(tmp_path):
    for part in range(4):
        ids = np.random.default_rng(part).permutation(50_000)
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{part}.parquet")
    report = ia.rewrite(tmp_path, sort_by=["id"], target_file_size="100 KB")
    assert report.files_after > 2
    tables = {path: pq.read_table(path) for path in tmp_path.glob("*.parquet")}
    files = sorted(tables, key=lambda path: tables[path]["id"][0].as_py())
    merged = pa.concat_tables([tables[path] for path in files])
    assert merged["id"].to_pylist() == sorted([*range(50_000)] * 4)
    (order,) = pq.ParquetFile(files[0]).metadata.row_group(0).sorting_columns
    assert (order.column_index, order.descending, order.nulls_first) == (0, False, False)


def test_indexes_are_kept_embedded_ones_and_those_of_sidecars(tmp_path):
    lake = lake_of(tmp_path / "lake")
    ia.add_indexes(lake, ["id:lookup", "word:bloom"])
    ia.add_indexes(lake, ["word:distinct"], sidecar=True)

    def names():
        return {
            (*(entry.name for entry in report.entries), *(own.name for own in report.standard))
            for report in ia.list_indexes(lake)
        }

    ia.rewrite(lake)
    assert names() == {("id:lookup", "word:distinct", "page_index", "word:bloom")}
    assert not list(lake.rglob("*.intarsia"))
    assert ia.dataset(lake).count_rows(filter=pc.field("id") == 2500) == 3
    ia.add_indexes(lake, ["word:ngram"], sidecar=True)
    ia.rewrite(lake, target_file_size=None, indexes=["small:minmax"])
    assert names() == {("small:minmax", "page_index")}
    assert not list(lake.rglob("*.intarsia"))
    ia.rewrite(lake, indexes=[])
    assert names() == {("page_index",)}
    assert ia.verify(lake) == []


def test_where_selects_folders(tmp_path):
    lake = lake_of(tmp_path / "lake")
    assert ia.rewrite(lake, where="day_of >= DATE '2024-01-02'").files_before == 3
    assert len(list((lake / "day_of=2024-01-01").iterdir())) == 3
    assert ia.rewrite(lake, where="day_of IS NULL").files_before == 3
    assert ia.rewrite(lake, where="day_of > DATE '2030-01-01'").files_before == 0
    with pytest.raises(ia.PredicateError, match="only partition columns, unless output"):
        ia.rewrite(lake, where="id < 3")
    assert ia.rewrite(lake / "day_of=2024-01-01").files_before == 3


def test_output_leaves_the_old_files_and_takes_conditions_on_rows(tmp_path):
    lake = lake_of(tmp_path / "lake")
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    old = ia.dataset(lake).to_table()
    ia.rewrite(lake, output=tmp_path / "all")
    assert same(ia.dataset(tmp_path / "all").to_table(), old)
    report = ia.rewrite(lake, output=tmp_path / "some", where="id < 1500 AND day_of IS NOT NULL")
    filter_ = (pc.field("id") < 1500) & pc.field("day_of").is_valid()
    assert same(ia.dataset(tmp_path / "some").to_table(), old.filter(filter_))
    assert report.rows == 3000
    assert ia.rewrite(lake, output=tmp_path / "none", where="id < 0").rows == 0
    assert ia.dataset(tmp_path / "none").to_table().schema.names == FLAT.column_names
    assert {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("has_output", [True, False])
def test_partition_by_makes_folders_anew(tmp_path, has_output):
    lake = lake_of(tmp_path / "lake")
    old = ia.dataset(lake).to_table()
    target = tmp_path / "new" if has_output else lake
    ia.rewrite(
        lake,
        partition_by=["coded"],
        sort_by=["day_of", "id"],
        output=target if has_output else None,
    )
    folders = {path.name for path in target.iterdir() if path.is_dir()}
    assert folders == {f"coded=c{n}" for n in range(9)}
    new = ia.dataset(target).to_table()
    assert new.schema.field("day_of").type == pa.date32()
    order = [("id", "ascending"), ("day_of", "ascending")]
    plain = old.set_column(3, "coded", old["coded"].cast(pa.string()))
    assert same(new.select(plain.column_names).sort_by(order), plain.sort_by(order))


def test_indexes_on_columns_that_become_folders_end(tmp_path):
    """DuckDB writes bloom filters of all columns with few values."""
    statuses = pa.array([n % 3 for n in range(3000)], pa.int32())
    rows = pa.table({"id": range(3000), "status": statuses, "user": ["a", "b", "c"] * 1000})
    (tmp_path / "lake").mkdir()
    duckdb.sql(f"COPY (FROM rows) TO '{tmp_path}/lake/a.parquet' (FORMAT parquet)")
    (report,) = ia.add_indexes(tmp_path / "lake", ["lookup(lower(user))", "id:minmax"])
    assert "status:bloom" in {index.name for index in report.standard}
    ia.rewrite(tmp_path / "lake", partition_by=["status", "user"], output=tmp_path / "new")
    new = ia.dataset(tmp_path / "new")
    assert new.to_table(rows.column_names).sort_by("id").equals(rows)
    for report in ia.list_indexes(tmp_path / "new"):
        names = {index.name for index in (*report.indexes, *report.standard)}
        assert names == {"id:minmax", "page_index"}
    with pytest.raises(ia.IndexSpecError, match="status:bloom"):
        ia.rewrite(tmp_path / "lake", partition_by=["status"], indexes=["status:bloom"])


def test_partition_by_nothing_makes_one_folder(tmp_path):
    lake = lake_of(tmp_path / "lake")
    ia.rewrite(lake, partition_by=[], sort_by=["id"])
    (file,) = lake.glob("*.parquet")
    assert pq.read_table(file).schema.names == [*FLAT.column_names, "day_of"]
    assert pq.read_metadata(file).num_rows == 9000
    assert sorted(path.name for path in lake.iterdir()) == sorted([file.name, "_SUCCESS"])


def test_files_of_other_columns_are_merged_with_nulls(tmp_path):
    pq.write_table(FLAT.select(["id", "word"]).slice(0, 10), tmp_path / "a.parquet")
    pq.write_table(FLAT.select(["id", "x"]).slice(10, 10), tmp_path / "b.parquet")
    ia.rewrite(tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    new = pq.read_table(file)
    assert new["id"].to_pylist() == [*range(20)]
    assert new["word"].null_count == 11
    assert new["x"].null_count == 10


def test_files_without_rows_stay_files(tmp_path):
    pq.write_table(FLAT.slice(0, 0), tmp_path / "a.parquet")
    assert ia.rewrite(tmp_path).files_after == 1
    assert pq.read_table(tmp_path / "a.parquet").schema.equals(FLAT.schema)


def test_int96_stays_int96(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"t": pa.array([0, 10**15, None], pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    ia.rewrite(path, sort_by="t")
    assert pq.ParquetFile(path).schema.column(0).physical_type == "INT96"
    assert pq.read_table(path)["t"].cast(pa.timestamp("us")).to_pylist() == table["t"].to_pylist()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 5)),
            st.one_of(st.none(), st.sampled_from(["", "a", "b", "ü"])),
        ),
        max_size=80,
    ),
    run_rows=st.integers(1, 30),
    merged_rows=st.integers(1, 5),
    max_runs=st.integers(2, 4),
)
def test_runs_on_disk_are_merged_as_one_sort_would_order_them(
    rows, run_rows, merged_rows, max_runs
):
    table = pa.table(
        {
            "a": pa.array([a for a, _ in rows], pa.int64()),
            "b": pa.array([b for _, b in rows], pa.string()).dictionary_encode(),
            "n": pa.array(range(len(rows)), pa.int64()),
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_sorting, "SORTED_BYTES", run_rows * 24)
        patch.setattr(row_sorting, "_MERGED_ROWS", merged_rows)
        patch.setattr(row_sorting, "_MAX_RUNS", max_runs)
        with Workspace() as work:
            parts = iter([table.slice(n, 7) for n in range(0, len(rows), 7)])
            merged = [*row_sorting.sorted_tables(parts, ["a", "b"], work)]
    answer = [row for part in merged for row in part.to_pylist()]
    expected = sorted(
        table.to_pylist(),
        key=lambda row: (row["a"] is None, row["a"] or 0, row["b"] is None, row["b"] or ""),
    )
    assert answer == expected


def test_sorting_takes_bounded_memory(tmp_path):
    """A process sorts rows of 95 MB, with a memory limit of 64 MiB."""
    path, rows = tmp_path / "a.parquet", 4_000_000
    numbers = np.random.default_rng(1).permutation(rows)
    table = pa.table({"id": numbers, "word": pc.cast(pa.array(numbers), pa.string())})
    pq.write_table(table, path, row_group_size=100_000)
    script = (
        "import re, sys, intarsia as ia\n"
        "def peak():\n"
        "    with open('/proc/self/status') as status:\n"
        "        return int(re.search(r'VmHWM:\\s*(\\d+)', status.read())[1])\n"
        "ia.rewrite(sys.argv[1], where='id < 9', output=sys.argv[1] + '.few')\n"
        "before = peak()\n"
        "ia.rewrite(sys.argv[1], sort_by='id', memory_limit='64MiB')\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    # Libraries take up to 100 MB in addition. Without the limit it is 254 MiB.
    assert int(done.stdout) < 164 * 1024, "KiB above what a first rewrite took"
    assert pq.read_table(path)["id"].equals(pa.chunked_array([range(rows)], pa.int64()))


def test_progress_counts_rows(tmp_path):
    lake, calls = lake_of(tmp_path / "lake"), []
    ia.rewrite(lake, progress=lambda *call: calls.append(call))
    assert calls[-1][1:] == (9000, 9000)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    assert len({path for path, _, _ in calls}) == 9


def test_another_writer_is_not_overwritten(tmp_path):
    """Files that change while they are read stay, and all others are rewritten."""
    lake = lake_of(tmp_path / "lake", parts=1)
    files = sorted(lake.rglob("*.parquet"))

    def replace(path, done, total):
        if path == str(files[1]) and pq.read_metadata(path).num_rows == 1000:
            pq.write_table(FLAT.slice(0, 5), path)

    with pytest.raises(ia.PathError, match="1 of 3 groups of files were left as they were"):
        ia.rewrite(lake, target_file_size=None, progress=replace, indexes=["id:lookup"])
    assert pq.read_table(files[1]).num_rows == 5
    indexed = [len(report.indexes) for report in ia.list_indexes(lake)]
    assert indexed == [1, 0, 1]
    assert not [path for path in lake.rglob("*") if path.name.startswith((".", "_temporary"))]


def test_remote_folders_are_rewritten(tmp_path):
    memory = MemoryFileSystem()
    root = f"/rewrite-{random.getrandbits(32):x}"
    for part in range(3):
        with memory.open(f"{root}/part={part % 2}/{part}.parquet", "wb") as out:
            pq.write_table(FLAT.slice(part * 1000, 1000), out)
    old = ia.dataset(root, filesystem=memory).to_table()
    report = ia.rewrite(root, filesystem=memory, indexes=["id:lookup"])
    assert (report.files_before, report.files_after) == (3, 2)
    assert same(ia.dataset(root, filesystem=memory).to_table(), old)
    ia.rewrite(root, filesystem=memory, target_file_size=None, sort_by=["word"])
    new = ia.dataset(root, filesystem=memory).to_table()
    assert same(new.sort_by("id"), old.sort_by("id"))
    assert ia.recover_dataset(root, filesystem=memory) == []


WRONG = {
    "no such column": ({"sort_by": ["wrod"]}, ia.PredicateError, "'word' is"),
    "no such folder column": ({"partition_by": ["nix"]}, ia.PredicateError, "nix"),
    "no such index column": ({"indexes": ["nix:lookup"]}, ia.IndexSpecError, "nix"),
    "no such kind": ({"indexes": ["id:nix"]}, ia.IndexSpecError, "nix"),
    "nested order": ({"sort_by": ["tags"]}, ia.UnsupportedError, "cannot be sorted by tags"),
    "nested folders": ({"partition_by": ["tags"]}, ia.PredicateError, "cannot be in partition_by"),
    "wrong size": ({"target_file_size": "many"}, ValueError, "target_file_size is bytes"),
    "no rows": ({"rows_per_page": 0}, ValueError, "rows_per_page must be"),
    "no groups": ({"row_group_rows": -1}, ValueError, "row_group_rows must be"),
    "wrong codec": ({"compression": "zip"}, ValueError, "compression 'zip' is not supported"),
    "wrong condition": ({"where": "day_of >"}, ia.PredicateError, "day_of >"),
    "output within": ({"output": "new"}, ia.PathError, "is in that of the old files"),
    "output is there": ({"output": "day_of=1"}, ia.PathError, "is not empty"),
    "output is a file": ({"output": "a.parquet"}, ValueError, "output is a folder"),
    "some folders": ({"partition_by": ["id"], "where": "day_of = 1"}, ValueError, "needs output"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_change_nothing(tmp_path, name):
    options, kind, message = WRONG[name]
    table = FLAT.slice(0, 20).append_column("tags", pa.array([["a"]] * 20))
    (tmp_path / "day_of=1").mkdir()
    path = tmp_path / "day_of=1" / "a.parquet"
    pq.write_table(table, path)
    before = path.read_bytes()
    if "output" in options:
        options = options | {"output": tmp_path / options["output"]}
    with pytest.raises(kind, match=message):
        ia.rewrite(tmp_path, **options)
    assert path.read_bytes() == before
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")) == [
        "day_of=1",
        "day_of=1/a.parquet",
    ]


def test_paths_without_files_and_other_files_are_errors(tmp_path):
    with pytest.raises(ia.PathError):
        ia.rewrite(tmp_path / "nix")
    with pytest.raises(ia.PathError):
        ia.rewrite(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ia.FormatError, match=r"a\.parquet"):
        ia.rewrite(tmp_path)
    (tmp_path / "b" / "_delta_log").mkdir(parents=True)
    pq.write_table(FLAT, tmp_path / "b" / "a.parquet")
    with pytest.raises(ia.PathError, match="Delta"):
        ia.rewrite(tmp_path / "b")


def test_a_time_limit_leaves_nothing_behind(tmp_path):
    lake = lake_of(tmp_path / "lake")
    before = sorted(str(path) for path in lake.rglob("*"))
    with pytest.raises(ia.QueryTimeoutError):
        ia.rewrite(lake, timeout=1e-6)
    assert sorted(str(path) for path in lake.rglob("*")) == before
