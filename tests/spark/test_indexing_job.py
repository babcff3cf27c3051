"""Jobs that add indexes to existing files.

::

    driver  lists, cuts large files ──▶ parts ──▶ sections, whole files ──▶ a report, a row a file
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle

import intarsia as ia
import intarsia.indexing.add as add_module
import intarsia.spark as ias
from intarsia.commit.storage import Place
from intarsia.index.registry import parse_indexes
from intarsia.spark.indexing import job
from intarsia.spark.indexing import task as task_module
from intarsia.spark.indexing.file_packing import FILE_BYTES, TASK_BYTES, spread
from intarsia.spark.indexing.task import IndexAction, Merge, SectionMerge, merge_section

pytestmark = pytest.mark.spark

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

ROWS = 600
ASKED = ["lookup(key, granule_rows=50)", "minmax(ratio, granule_rows=50)", "ngram(text)"]
NAMES = ["key:lookup", "ratio:minmax", "text:ngram"]
ADDED = [*NAMES, "page_index"]
"""The names of the indexes that are added to a file without a page index."""
WHERE = "key = 17 OR text LIKE '%-123%' OR ratio > 24.9"


def table(first: int = 0, rows: int = ROWS) -> pa.Table:
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "key": pa.array([None if i % 7 == 0 else i * 7919 % 400 for i in ids], pa.int64()),
            "ratio": pa.array([None if i % 11 == 0 else i * 31 % 100 / 4 for i in ids]),
            "text": pa.array([f"né {i % 50}-{i * 13 % 997}" for i in ids], pa.string()),
        }
    )


def matching(whole: pa.Table) -> list[int]:
    """The brute-force answer to ``WHERE``, in plain Python."""
    return sorted(
        row["id"]
        for row in whole.to_pylist()
        if row["key"] == 17
        or "-123" in row["text"]
        or (row["ratio"] is not None and row["ratio"] > 24.9)
    )


def ids(spark, path, where=WHERE, **options) -> list[int]:
    return sorted(row.id for row in ias.read(spark, path, where=where, **options).collect())


def report(frame) -> dict[str, dict]:
    rows = [row.asDict() for row in frame.collect()]
    assert len({row["path"] for row in rows}) == len(rows)
    return {Path(row["path"]).name: row for row in rows}


def statuses(frame) -> dict[str, str]:
    return {name: row["status"] for name, row in report(frame).items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def lake(tmp_path):
    folder = tmp_path / "lake"
    folder.mkdir()
    for at in range(4):
        pq.write_table(table(at * ROWS), folder / f"{at}.parquet", row_group_size=200)
    return folder


# --- files of all writers -----------------------------------------------------------------------


def test_files_of_all_writers_are_indexed_and_answer_as_they_should(spark, tmp_path):
    folder = tmp_path / "lake"
    parts = [table(at * ROWS) for at in range(5)]
    spark.createDataFrame(parts[0]).coalesce(1).write.option(
        "parquet.page.row.count.limit", "100"
    ).parquet(str(folder))
    pq.write_table(parts[1], folder / "pyarrow.parquet", row_group_size=150, use_dictionary=False)
    pq.write_table(parts[2], folder / "v2.parquet", data_page_version="2.0", write_page_index=True)
    duckdb.from_arrow(parts[3]).write_parquet(str(folder / "duckdb.parquet"))
    pl.from_arrow(parts[4]).write_parquet(folder / "polars.parquet", row_group_size=200)
    files = sorted(folder.glob("*.parquet"))
    before = {file.name: file.stat().st_size for file in files}

    actual = report(ias.add_indexes(spark, folder, [*ASKED, "page_index", "bloom(key)"]))

    assert {name: row["status"] for name, row in actual.items()} == dict.fromkeys(before, "done")
    assert sum(row["rows"] for row in actual.values()) == 5 * ROWS
    for file in files:
        row = actual[file.name]
        assert row["bytes_before"] == before[file.name]
        assert row["bytes_before"] + row["bytes_added"] == file.stat().st_size
        assert row["seconds"] > 0
        assert set(NAMES) <= set(row["indexes"])
        (listed,) = ia.list_indexes(file)
        assert [entry.name for entry in listed.indexes] == NAMES
        assert list(ia.verify(file)) == []
    whole = pa.concat_tables(parts)
    assert ids(spark, folder) == matching(whole)
    for key in (17, 399, 1234567):
        expected = whole.filter(pc.field("key") == key)["id"].to_pylist()
        assert ids(spark, folder, f"key = {key}") == sorted(expected)
    assert spark.read.parquet(str(folder)).count() == 5 * ROWS  # no stale .crc prevents it
    assert sorted(pl.read_parquet(folder / "*.parquet")["id"]) == list(range(5 * ROWS))


def test_indexes_may_be_objects(spark, lake):
    actual = report(ias.add_indexes(spark, lake, [ia.Lookup("key"), ia.Lookup(pc.field("text"))]))
    assert {tuple(row["indexes"]) for row in actual.values()} == {
        ("key:lookup", "text:lookup", "page_index")
    }


def test_hive_folders_and_unioned_schemas(spark, tmp_path):
    folder = tmp_path / "lake"
    for at, day in enumerate(["2024-01-01", "2024-01-02"]):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(table(at * ROWS), folder / f"day={day}" / f"full{at}.parquet")
        old = table((at + 2) * ROWS).drop_columns(["key"])
        pq.write_table(old, folder / f"day={day}" / f"old{at}.parquet")
        older = old.drop_columns(["ratio", "text"])
        pq.write_table(older, folder / f"day={day}" / f"older{at}.parquet")
    untouched = {k: v for k, v in contents(folder).items() if "older" in k}

    actual = report(ias.add_indexes(spark, folder, ["lookup(key)", "lookup(text)"]))

    for at in (0, 1):
        assert actual[f"full{at}.parquet"]["status"] == "done"
        assert actual[f"full{at}.parquet"]["why"] is None
        partly = actual[f"old{at}.parquet"]
        assert (partly["status"], partly["indexes"]) == ("done", ["text:lookup", "page_index"])
        assert "column 'key' is not there" in partly["why"]
        none = actual[f"older{at}.parquet"]
        assert (none["status"], none["indexes"], none["bytes_added"]) == ("skipped", [], 0)
        assert "column 'text' is not there" in none["why"]
    assert {k: v for k, v in contents(folder).items() if "older" in k} == untouched
    expected = [row["id"] for row in table(ROWS).to_pylist() if row["key"] == 17]
    assert ids(spark, folder, "key = 17 AND day = DATE '2024-01-02'") == expected


def test_an_index_that_no_file_can_have_is_warned_of(spark, lake):
    before = contents(lake)
    with pytest.warns(ia.IntarsiaWarning, match="index nokey:lookup: no file can have it"):
        actual = report(ias.add_indexes(spark, lake, ["lookup(nokey)"]))
    assert {row["status"] for row in actual.values()} == {"skipped"}
    assert contents(lake) == before


# --- files that cannot be indexed ---------------------------------------------------------------


def test_bad_files_do_not_prevent_indexing_others(spark, lake):
    whole = (lake / "0.parquet").read_bytes()
    (lake / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    (lake / "encrypted.parquet").write_bytes(whole[:-4] + b"PARE")
    (lake / "text.parquet").write_text("no Parquet at all, but long enough to be read")
    (lake / "empty.parquet").write_bytes(b"")
    damaged = bytearray(whole)
    damaged[4:3000] = bytes(2996)
    (lake / "damaged.parquet").write_bytes(damaged)
    bad = {k: v for k, v in contents(lake).items() if not k[0].isdigit()}

    actual = report(ias.add_indexes(spark, lake, ASKED))

    for name in bad:
        row = actual.pop(name)
        assert (row["status"], row["indexes"], row["bytes_added"]) == ("failed", [], None), name
        assert row["why"], name
        assert not row["why"].startswith(str(lake))
    assert {row["status"] for row in actual.values()} == {"done"}
    assert "encrypted" in report(ias.add_indexes(spark, lake, ASKED))["encrypted.parquet"]["why"]
    assert {k: v for k, v in contents(lake).items() if not k[0].isdigit()} == bad


# --- sidecars -----------------------------------------------------------------------------------


def test_sidecars_leave_files_as_they_are(spark, lake, tmp_path):
    before = contents(lake)
    apart = tmp_path / "apart"
    actual = report(ias.add_indexes(spark, lake, ASKED, sidecar=apart, split_bytes=9000))
    assert contents(lake) == before
    assert {row["status"] for row in actual.values()} == {"done"}
    written = contents(apart)
    assert len(written) == 4
    assert {row["bytes_added"] for row in actual.values()} == {len(d) for d in written.values()}
    again = ias.add_indexes(spark, lake, ASKED, sidecar=apart)
    assert set(statuses(again).values()) == {"skipped"}
    assert contents(apart) == written
    options = {"where": "key = 17"}
    assert "index key:lookup" in ias.explain(spark, lake, sidecar=apart, **options).text
    assert "index key:lookup" not in ias.explain(spark, lake, **options).text
    load = spark.read.format("intarsia").option("where", WHERE).option("sidecar", str(apart))
    for actual in (
        ids(spark, lake, sidecar=apart),
        [row.id for row in load.load(str(lake)).collect()],
    ):
        assert sorted(actual) == ids(spark, lake)
    with pytest.raises(ia.PathError, match="no such folder of sidecars"):
        ias.read(spark, lake, sidecar=tmp_path / "elsewhere")

    ias.add_indexes(spark, lake, ASKED, sidecar=True)
    beside = contents(lake)
    assert {name: data for name, data in beside.items() if name in before} == before
    assert all(name.startswith("_intarsia/") for name in beside.keys() - before.keys())
    assert ids(spark, lake) == matching(pa.concat_tables([table(at * ROWS) for at in range(4)]))

    dropped = report(ias.drop_indexes(spark, lake, NAMES, sidecar=True))
    assert {row["status"] for row in dropped.values()} == {"done"}
    assert contents(lake) == before
    with pytest.raises(ia.IndexSpecError, match="only the file itself can hold it"):
        ias.add_indexes(spark, lake, ["page_index"], sidecar=True)
    with pytest.raises(ia.PathError, match="sidecars there would be read as data"):
        ias.add_indexes(spark, lake, ASKED, sidecar=lake / "indexes")


# --- repeated jobs ------------------------------------------------------------------------------


def test_existing_indexes_are_skipped(spark, lake):
    ia.add_indexes(lake / "1.parquet", ASKED)
    ia.add_indexes(lake / "2.parquet", ["lookup(key, granule_rows=20)", "minmax(ratio)"])
    untouched = (lake / "1.parquet").read_bytes()

    actual = report(ias.add_indexes(spark, lake, ASKED))

    assert {name: row["status"] for name, row in actual.items()} == {
        "0.parquet": "done",
        "1.parquet": "skipped",
        "2.parquet": "done",  # other parameters make another index
        "3.parquet": "done",
    }
    assert actual["1.parquet"]["why"] == "it has key:lookup, ratio:minmax, text:ngram already"
    assert actual["2.parquet"]["indexes"] == NAMES  # it has a page index
    assert actual["0.parquet"]["indexes"] == ADDED
    assert (lake / "1.parquet").read_bytes() == untouched
    before = contents(lake)
    again = ias.add_indexes(spark, lake, [*ASKED[:2]])
    assert set(statuses(again).values()) == {"skipped"}
    assert contents(lake) == before

    # Only missing indexes are added; a stale or damaged one does not count as an index.
    stale = pq.read_table(lake / "0.parquet").slice(0, 300)
    metadata = pq.read_metadata(lake / "0.parquet").metadata
    pq.write_table(stale.replace_schema_metadata(metadata), lake / "0.parquet")
    (listed,) = ia.list_indexes(lake / "3.parquet")
    damaged = bytearray((lake / "3.parquet").read_bytes())
    entry = next(entry for entry in listed.indexes if entry.name == "key:lookup")
    damaged[entry.offset + entry.length - 3] ^= 255
    (lake / "3.parquet").write_bytes(damaged)
    actual = report(ias.add_indexes(spark, lake, [*ASKED, "lookup(id)"]))
    assert actual["0.parquet"]["indexes"] == [*NAMES, "id:lookup", "page_index"]
    assert actual["1.parquet"]["indexes"] == ["id:lookup"]
    assert actual["3.parquet"]["indexes"] == ["key:lookup", "id:lookup"]
    assert [list(ia.verify(path)) for path in sorted(lake.iterdir())] == [[]] * 4

    anew = report(ias.add_indexes(spark, lake, ASKED, replace=True))
    assert {tuple(row["indexes"]) for row in anew.values()} == {tuple(NAMES)}


def test_kept_indexes_are_in_the_policy_that_maintain_follows(spark, lake):
    ias.add_indexes(spark, lake, ["lookup(key)"], keep=True)
    pq.write_table(table(), lake / "new.parquet")
    assert ia.maintain(lake).failed == ()
    for file in ia.list_indexes(lake):
        assert [index.name for index in file.indexes] == ["key:lookup"]
    with pytest.raises(ia.PathError, match="a policy is of one folder"):
        ias.add_indexes(spark, lake / "new.parquet", ["minmax(key)"], keep=True)
    (file,) = ia.list_indexes(lake / "new.parquet")
    assert [index.name for index in file.indexes] == ["key:lookup"]


def test_existing_page_indexes_and_filters_are_skipped(spark, lake):
    indexes = ["page_index", "bloom(key)"]
    assert set(statuses(ias.add_indexes(spark, lake, indexes)).values()) == {"done"}
    before = contents(lake)
    actual = report(ias.add_indexes(spark, lake, indexes))
    assert {row["why"] for row in actual.values()} == {"it has page_index, key:bloom already"}
    assert contents(lake) == before


@dataclass(frozen=True)
class Deadly(ia.Lookup):
    """A lookup that kills its process at one value, as long as a certain file exists."""

    kind = "deadly"
    flag: str = ""

    def keys_of_values(self, values):
        if os.path.exists(self.flag) and 1300 in values.to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().keys_of_values(values)


@pytest.mark.parametrize("split", [None, 9000], ids=["whole", "merged"])
def test_a_job_restarted_after_a_kill_does_the_rest(spark, lake, tmp_path, split):
    """The worker is killed at the smallest of four files, which is the last."""
    pq.write_table(table(2 * ROWS, 200), lake / "2.parquet")
    flag = tmp_path / "flag"
    flag.touch()
    indexes = [Deadly("id", flag=str(flag))]
    before = contents(lake)
    options = {"split_bytes": split, "parallelism": 1}
    with pytest.raises(Py4JJavaError, match="crashed"):
        ias.add_indexes(spark, lake, indexes, **options)
    left = contents(lake)
    assert left.keys() == before.keys()  # no parts, no temporary files
    assert {name for name in left if left[name] == before[name]} == {"2.parquet"}

    flag.unlink()
    actual = statuses(ias.add_indexes(spark, lake, indexes, **options))
    assert actual == {f"{at}.parquet": "done" if at == 2 else "skipped" for at in range(4)}
    now = contents(lake)
    assert {name for name in now if now[name] != left[name]} == {"2.parquet"}


def test_a_job_killed_at_a_part_leaves_nothing(spark, lake, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    indexes = [Deadly("id", flag=str(flag))]
    before = contents(lake)
    with pytest.raises(Py4JJavaError, match="crashed"):
        ias.add_indexes(spark, lake, indexes, split_bytes=9000)
    assert contents(lake) == before
    assert not [path for path in lake.iterdir() if path.is_dir()]


# --- large files --------------------------------------------------------------------------------


@pytest.fixture
def parts(monkeypatch):
    """The numbers of parts in which files are read."""
    seen = []
    gathered = job._gathered

    def watched(spark, splits, *rest):
        seen.extend(len(split.groups) for split in splits)
        return gathered(spark, splits, *rest)

    monkeypatch.setattr(job, "_gathered", watched)
    return seen


def write_large(path: Path) -> None:
    with pq.ParquetWriter(path, table().schema, write_page_index=False) as writer:
        for at, rows in enumerate([900, 1, 500, 250, 77, 900]):
            writer.write_table(table(at * 1000, rows))


def test_entries_of_maps_are_indexed_and_used(spark, tmp_path):
    for number in range(2):
        cells = [[("host", f"h{number * ROWS + i}"), ("k", "x")] for i in range(ROWS)]
        maps = pa.array(cells, pa.map_(pa.string(), pa.string()))
        rows = pa.table({"n": range(number * ROWS, (number + 1) * ROWS), "attrs": maps})
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=100)
    ias.add_indexes(spark, str(tmp_path), ["attrs:entries"]).collect()
    where = f"attrs['host'] = 'h{ROWS + 250}'"
    assert ia.dataset(tmp_path).explain(filter=where).planned.rows.selected == 100
    actual = ias.read(spark, str(tmp_path), where=where).collect()
    assert [row.n for row in actual] == [ROWS + 250]
    actual = ias.sql(spark, f"SELECT n FROM t WHERE {where}", t=str(tmp_path)).collect()
    assert [row.n for row in actual] == [ROWS + 250]


def test_indexes_built_in_parts_equal_those_built_at_once(spark, lake, parts):
    write_large(lake / "large.parquet")
    shutil.copy(lake / "large.parquet", lake.parent / "same.parquet")
    indexes = ["page_index", *ASKED, "distinct(text)", "words(text)", "bloom(key)", "lookup(id)"]
    size = (lake / "large.parquet").stat().st_size
    limit = -(-size // 3)
    assert all((lake / f"{at}.parquet").stat().st_size < limit for at in range(4))

    actual = report(ias.add_indexes(spark, lake, indexes, split_bytes=limit))

    assert parts == [3]  # the others are smaller
    assert actual["large.parquet"]["status"] == "done"
    assert actual["large.parquet"]["rows"] == 2628
    assert sorted(path.name for path in lake.iterdir()) == sorted(actual)  # no folder is left
    assert list(ia.verify(lake / "large.parquet")) == []
    ia.add_indexes(lake.parent / "same.parquet", indexes)
    (ours,), (same,) = (
        ia.list_indexes(path) for path in (lake / "large.parquet", lake.parent / "same.parquet")
    )
    assert ours.standard == same.standard
    for mine, other in zip(ours.indexes, same.indexes, strict=True):
        assert (mine.name, mine.offset, mine.length) == (other.name, other.offset, other.length)
    old, new = (lake.parent / "same.parquet").read_bytes(), (lake / "large.parquet").read_bytes()
    body = ours.indexes[0].offset
    assert old[:body] == new[:body]  # page indexes and filters come first
    for entry in ours.indexes:  # all that is not named after the file
        pages = slice(entry.offset, entry.offset + entry.length - entry.meta_length)
        assert new[pages] == old[pages]


def test_files_are_divided_where_one_task_would_get_more_than_its_share(spark, lake, parts):
    write_large(lake / "large.parquet")
    ias.add_indexes(spark, lake, ["lookup(key)"])
    assert parts == []  # small files are not
    ias.add_indexes(spark, lake, ["lookup(id)"], split_bytes="1 KB")
    assert sorted(parts)[:4] == [3, 3, 3, 3]  # a row group at least
    assert 3 < max(parts) <= 6


def test_a_damaged_page_fails_its_file_only(spark, lake, parts):
    write_large(lake / "large.parquet")
    data = bytearray((lake / "large.parquet").read_bytes())
    chunk = pq.read_metadata(lake / "large.parquet").row_group(3).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    (lake / "large.parquet").write_bytes(data)
    actual = report(ias.add_indexes(spark, lake, ["lookup(key)"], split_bytes=20_000))
    assert parts == [3]
    row = actual.pop("large.parquet")
    assert (row["status"], row["bytes_before"], row["rows"]) == ("failed", len(data), 2628)
    assert "row group 3, column key, page 0" in row["why"]
    assert str(lake) not in row["why"]
    assert {row["status"] for row in actual.values()} == {"done"}
    assert (lake / "large.parquet").read_bytes() == data
    assert sorted(path.name for path in lake.iterdir()) == sorted([*actual, "large.parquet"])


def test_a_file_replaced_in_between_is_not_changed(spark, lake, monkeypatch):
    write_large(lake / "large.parquet")
    gathered = job._gathered

    def replaced_before(*args):
        pq.write_table(table(rows=9), lake / "new.parquet")
        os.replace(lake / "new.parquet", lake / "large.parquet")
        return gathered(*args)

    monkeypatch.setattr(job, "_gathered", replaced_before)
    actual = report(ias.add_indexes(spark, lake, ["lookup(key)"], split_bytes=20_000))
    assert actual["large.parquet"]["why"] == "another writer changed the file; it was left as it is"
    assert pq.read_table(lake / "large.parquet") == table(rows=9)

    def replaced_after(*args):
        made = gathered(*args)
        pq.write_table(table(rows=8), lake / "new.parquet")
        os.replace(lake / "new.parquet", lake / "large.parquet")
        return made

    write_large(lake / "large.parquet")
    monkeypatch.setattr(job, "_gathered", replaced_after)
    actual = report(ias.add_indexes(spark, lake, ["lookup(key)"], split_bytes=20_000))
    row = actual["large.parquet"]
    assert (row["status"], row["rows"]) == ("done", 8)  # by its own pages
    assert list(ia.verify(lake / "large.parquet")) == []


def test_a_file_deleted_in_between_is_reported_as_deleted(spark, lake, monkeypatch):
    write_large(lake / "large.parquet")
    gathered = job._gathered

    def deleted_before(*args):
        (lake / "large.parquet").unlink()
        return gathered(*args)

    monkeypatch.setattr(job, "_gathered", deleted_before)
    actual = report(ias.add_indexes(spark, lake, ["lookup(key)"], split_bytes=20_000))
    row = actual.pop("large.parquet")
    assert (row["status"], row["why"]) == (
        "failed",
        "the file was deleted meanwhile; nothing was written",
    )
    assert {row["status"] for row in actual.values()} == {"done"}
    assert not (lake / "large.parquet").exists()


def test_a_file_finished_by_another_attempt_is_recognized(lake, monkeypatch):
    """For example if Spark runs a slow task twice: the second to finish finds the file changed."""
    path, indexes = str(lake / "0.parquet"), (ia.Lookup("key"),)
    change_indexes, calls = add_module.change_indexes, []

    def beaten(*args, **options):
        calls.append(args[0].name)
        if len(calls) == 1:
            ia.add_indexes(path, indexes)
        change_indexes(*args, **options)

    monkeypatch.setattr(add_module, "change_indexes", beaten)
    actual = task_module.index_file(path, IndexAction(pafs.LocalFileSystem(), indexes, False))
    assert (actual.status, actual.why) == ("skipped", "it has key:lookup already")
    assert calls == [path] * 2  # one of each attempt
    (listed,) = ia.list_indexes(path)
    assert [entry.name for entry in listed.indexes] == ["key:lookup"]


@pytest.fixture
def gathered(lake):
    """A file whose parts have been read, for a job that adds three indexes."""
    path, places = str(lake / "large.parquet"), Place.of(str(lake))
    write_large(lake / "large.parquet")
    expected = IndexAction(places.filesystem, tuple(parse_indexes(ASKED)), False)
    split = job._split(path, expected, 9000)
    assert split is not None
    places.make("_temporary-job")
    parts = [
        task_module.gather_from(split, part, expected, places, "job")
        for part in range(len(split.groups))
    ]
    assert len(parts) > 1
    assert {part.error for part in parts} == {None}
    return Merge(split, tuple(part.name for part in parts), 1.0), expected, places


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_task_with_the_last_section_replaces_the_file(gathered, order):
    merge, expected, places = gathered
    path = Path(merge.split.path)
    before = path.read_bytes()
    made = []
    for number in order:
        assert path.read_bytes() == before
        made.append(merge_section(SectionMerge(merge, number), expected, places))
        # like a task that runs twice
        made.append(merge_section(SectionMerge(merge, number), expected, places))
    assert [report.status for report in made] == ["merged"] * 4 + ["done", "skipped"]
    assert [entry.name for entry in ia.list_indexes(path)[0].indexes] == NAMES
    assert list(ia.verify(path)) == []
    (settled,) = job._settled(made, [merge])
    assert (settled.status, settled.indexes) == ("done", tuple(NAMES))
    assert settled.bytes_added == path.stat().st_size - len(before)
    assert settled.seconds == pytest.approx(1.0 + sum(report.seconds for report in made))


def test_sections_survive_a_task_killed_while_it_replaces_the_file(gathered, monkeypatch):
    merge, expected, places = gathered
    for number in (0, 1):
        merge_section(SectionMerge(merge, number), expected, places)

    def killed(*args, **options):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(add_module, "change_indexes", killed)
        with pytest.raises(SystemExit):
            merge_section(SectionMerge(merge, 2), expected, places)
    monkeypatch.setattr(task_module.FromParts, "write_one", killed)  # all of them are there
    assert merge_section(SectionMerge(merge, 2), expected, places).status == "done"
    assert list(ia.verify(merge.split.path)) == []


def test_a_section_that_cannot_be_written_fails_its_file(gathered, monkeypatch):
    merge, expected, places = gathered
    before = Path(merge.split.path).read_bytes()
    write_one = task_module.FromParts.write_one

    def full(self, file, number, file_id, path):
        write_one(self, file, number, file_id, path)
        if number == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(task_module.FromParts, "write_one", full)
    made = [merge_section(SectionMerge(merge, number), expected, places) for number in range(3)]
    assert [report.status for report in made] == ["merged", "failed", "merged"]
    (settled,) = job._settled(made, [merge])
    assert settled.status == "failed"
    assert "No space left" in settled.why
    assert Path(merge.split.path).read_bytes() == before


def test_a_file_whose_sections_no_task_saw_completely_is_not_done(gathered):
    merge, expected, places = gathered
    made = [merge_section(SectionMerge(merge, number), expected, places) for number in (0, 1)]
    (settled,) = job._settled(made, [merge])
    assert (settled.status, settled.why) == ("failed", "sections that were made cannot be found")


# --- dropping indexes ---------------------------------------------------------------------------


def test_indexes_are_dropped(spark, lake):
    before = contents(lake)
    ias.add_indexes(spark, lake, ASKED, page_index=False)
    ia.drop_indexes(lake / "3.parquet", NAMES)
    actual = report(ias.drop_indexes(spark, lake, ["key:lookup", "ngram(text)", "ratio:minmax"]))
    assert actual["3.parquet"]["status"] == "skipped"
    assert actual["3.parquet"]["why"] == "it has no key:lookup, text:ngram, ratio:minmax"
    assert contents(lake) == before
    row = actual["0.parquet"]
    assert row["indexes"] == ["key:lookup", "text:ngram", "ratio:minmax"]
    assert row["bytes_before"] + row["bytes_added"] == len(before["0.parquet"])
    with pytest.warns(ia.IntarsiaWarning, match="index key:lookpu: no file has it"):
        assert set(statuses(ias.drop_indexes(spark, lake, "key:lookpu")).values()) == {"skipped"}
    (lake / "0.parquet").write_bytes(b"torn")
    for name in contents(lake).keys() - {"0.parquet", "3.parquet"}:
        (lake / name).unlink()
    actual = statuses(ias.drop_indexes(spark, lake, "key:lookup"))  # and says nothing of all files
    assert actual == {"0.parquet": "failed", "3.parquet": "skipped"}


def test_dropping_removes_added_indexes_and_keeps_older_ones(spark, tmp_path):
    table = pa.table({"k": range(9)})
    pq.write_table(table, tmp_path / "own.parquet", write_page_index=True)
    pq.write_table(table, tmp_path / "plain.parquet")
    before = contents(tmp_path)
    ias.add_indexes(spark, tmp_path, ["page_index", "k:lookup"])
    actual = report(ias.drop_indexes(spark, tmp_path, ["page_index", "k:lookup"]))
    assert actual["own.parquet"]["why"] == "it was written with page_index"
    assert actual["own.parquet"]["indexes"] == ["k:lookup"]
    assert contents(tmp_path) == before
    ias.add_indexes(spark, tmp_path, ["page_index", "k:lookup", "bloom(k)"])
    added = contents(tmp_path)
    ias.drop_indexes(spark, tmp_path, [])  # no index is not every index
    assert contents(tmp_path) == added
    assert set(statuses(ias.drop_indexes(spark, tmp_path, all=True)).values()) == {"done"}
    assert contents(tmp_path) == before
    assert set(statuses(ias.drop_indexes(spark, tmp_path, all=True)).values()) == {"skipped"}
    with pytest.raises(ia.IndexSpecError, match="all=True"):
        ias.drop_indexes(spark, tmp_path)


# --- arguments ----------------------------------------------------------------------------------


def test_invalid_arguments_are_refused_before_any_change(spark, lake):
    before = contents(lake)
    with pytest.raises(ia.IndexSpecError, match="no index was asked for"):
        ias.add_indexes(spark, lake, [])
    with pytest.raises(ia.IndexSpecError, match="there is no index kind 'lookpu'"):
        ias.add_indexes(spark, lake, ["lookpu(key)"])
    with pytest.raises(ia.PathError, match="there is no such file or folder"):
        ias.add_indexes(spark, lake / "none", ["lookup(key)"])
    with pytest.raises(ValueError, match="split_bytes must be at least 1 byte"):
        ias.add_indexes(spark, lake, ["lookup(key)"], split_bytes=0)
    with pytest.raises(ValueError, match="parallelism must be a whole number, at least 1"):
        ias.add_indexes(spark, lake, ["lookup(key)"], parallelism=-1)
    assert contents(lake) == before


def test_paths_are_files_globs_and_lists(spark, lake, parts):
    one = ias.add_indexes(spark, lake / "0.parquet", ["lookup(key)"], split_bytes=9000)
    assert statuses(one) == {"0.parquet": "done"}
    some = ias.add_indexes(spark, lake / "[01].parquet", ["lookup(key)"])
    assert statuses(some) == {"0.parquet": "skipped", "1.parquet": "done"}
    listed = [lake / "2.parquet", lake / "1.parquet", lake / "2.parquet"]
    assert statuses(ias.add_indexes(spark, listed, ["lookup(key)"], split_bytes=9000)) == {
        "2.parquet": "done",
        "1.parquet": "skipped",
    }
    assert len(parts) == 2
    assert sorted(path.name for path in lake.iterdir()) == [f"{at}.parquet" for at in range(4)]


def test_a_relative_path_is_relative_to_the_drivers_folder(spark, lake, parts, monkeypatch):
    monkeypatch.chdir(lake.parent)
    ias.add_indexes(spark, lake.name, ["lookup(id)"], split_bytes="1 KB")
    assert len(parts) > 1
    assert ia.list_indexes(lake)[0].indexes


def test_files_on_s3_are_indexed(spark, lake):
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        s3 = pafs.S3FileSystem(
            access_key="a",
            secret_key="b",
            region="us-east-1",
            endpoint_override="{}:{}".format(*server.get_host_and_port()),
            scheme="http",
            allow_bucket_creation=True,
        )
        s3.create_dir("lake")
        for path in lake.iterdir():
            with s3.open_output_stream(f"lake/in/{path.name}") as out:
                out.write(path.read_bytes())
        options = {"filesystem": s3, "split_bytes": 9000}
        actual = report(ias.add_indexes(spark, "lake/in", ASKED, **options))
        assert {row["status"] for row in actual.values()} == {"done"}, actual
        infos = s3.get_file_info(pafs.FileSelector("lake/in", recursive=True))
        sizes = {i.base_name: i.size for i in infos if i.type == pafs.FileType.File}
        assert sizes == {n: r["bytes_before"] + r["bytes_added"] for n, r in actual.items()}
        expected = matching(pa.concat_tables([table(at * ROWS) for at in range(4)]))
        assert ids(spark, "lake/in", filesystem=s3) == expected
        again = ias.add_indexes(spark, "lake/in", ASKED, **options)
        assert set(statuses(again).values()) == {"skipped"}
    finally:
        server.stop()


# --- distributing work --------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 300 * 1024 * 1024), max_size=40),
    st.integers(1, 9),
)
def test_tasks_have_about_equal_work(sizes, parallelism):
    tasks = spread(sizes, parallelism)
    assert sorted(at for task in tasks for at in task) == list(range(len(sizes)))
    assert all(tasks)
    loads = [sum(sizes[at] + FILE_BYTES for at in task) for task in tasks]
    assert loads == sorted(loads, reverse=True)
    if len(tasks) < len(sizes):  # the fewest parts that give all cores equally many
        rounds = len(tasks) // parallelism
        assert len(tasks) == rounds * parallelism
        assert rounds == 1 or (rounds - 1) * parallelism * TASK_BYTES < sum(loads)
        assert sum(loads) <= rounds * parallelism * TASK_BYTES
    if tasks:  # the longest is at most 4/3 of the optimum
        least = max(sum(loads) / len(tasks), max(sizes) + FILE_BYTES)
        assert max(loads) <= 4 / 3 * least + max(sizes) / 3 + FILE_BYTES


def test_random_files_give_tasks_of_equal_work():
    draw = random.Random(3)
    sizes = [draw.randrange(30 * 1024 * 1024) for _ in range(500)]
    loads = [sum(sizes[at] for at in task) for task in spread(sizes, 8)]
    assert max(loads) < 1.1 * min(loads)
