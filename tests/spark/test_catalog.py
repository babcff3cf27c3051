"""The catalog built by Spark, and ``ias.read`` with it, equal those of one machine."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import intarsia as ia
import intarsia.spark as ias
from intarsia.catalog.catalog import open_segments, read_pointer
from intarsia.catalog.manifest import POINTER, is_table_name
from intarsia.file.read_options import DEFAULTS
from intarsia.io import storage
from intarsia.spark.catalog import build

pytestmark = pytest.mark.spark
FILES, ROWS = 40, 25


def table_of(number: int) -> pa.Table:
    rows = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "n": pa.array(rows, pa.int64()),
            "key": [f"key {i * 7919 % 100_003}" for i in rows],
            "tags": [[f"t{i % 20}", f"file {number}"] for i in rows],
        }
    )


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    for number in range(FILES):
        part = folder / f"day=2024-01-{1 + number % 4:02}"
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(number), part / f"{number:03}.parquet")
    ia.add_indexes(folder, ["lookup(key)", "elements(tags)"])
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Data files that this process, the driver, opened."""
    counts, original = Counter(), storage.open_handle

    def counted(filesystem, path):
        name = os.path.basename(path)
        if name != POINTER and not is_table_name(name):
            counts[name] += 1
        return original(filesystem, path)

    monkeypatch.setattr(storage, "open_handle", counted)
    return counts


def key_of(number: int) -> str:
    return table_of(number).column("key")[3].as_py()


def contents(folder: Path) -> list:
    """The contents of a catalog, however they are divided into tables."""
    filesystem = pafs.LocalFileSystem()
    readers = open_segments(
        filesystem, str(folder), read_pointer(filesystem, str(folder)), DEFAULTS
    )
    actual = []
    for reader in readers:
        listed, segment = reader.listed, reader.segment
        bounds = {path: reader.bounds_of(at).to_pylist() for at, path in enumerate(segment.leaves)}
        keys = {}
        for number, index in enumerate(segment.keys):
            covered = reader.covered(number)
            entries = [
                reader.part(part.table, covered.num_granules).all().tolist() for part in index.parts
            ]
            keys[index.on, index.kind] = covered.files.tolist(), [*itertools.chain(*entries)]
        tails = [reader.tail(n) for n in range(reader.num_files)]
        actual.append((listed.paths, listed.rows.tolist(), listed.stamps, bounds, keys, tails))
    return actual


def test_the_catalog_equals_that_of_one_machine(spark, lake, monkeypatch):
    ia.build_catalog(lake)
    want = contents(lake)
    report = ias.build_catalog(spark, lake)
    assert (report.files, report.read, report.skipped) == (FILES, FILES, 0)
    assert contents(lake) == want
    monkeypatch.setattr(build, "MAX_DRIVER_KEYS", 300)  # each task reads the keys of some files
    monkeypatch.setattr(build, "PART_ENTRIES", 500)  # sorted by range, in several tasks
    ias.build_catalog(spark, lake)
    segment = read_pointer(pafs.LocalFileSystem(), str(lake)).segments[0]
    assert sum(len(index.parts) for index in segment.keys) >= 4
    assert contents(lake) == want


def test_few_keys_take_one_job(spark, lake, jobs):
    ias.build_catalog(spark, lake)
    assert jobs() == [f"intarsia: catalog of {lake}, {FILES} of {FILES} files"]


def test_a_read_plans_from_it(spark, lake, opened):
    where = f"key = '{key_of(17)}'"
    want = ias.read(spark, lake, where=where, catalog=False).collect()
    assert len(want) == 1
    ias.build_catalog(spark, lake)
    opened.clear()
    frame = ias.read(spark, lake, where=where)
    assert [*opened] == ["017.parquet"]
    assert frame.collect() == want
    opened.clear()
    assert ias.read(spark, lake, where="key = 'nowhere'").count() == 0
    assert not opened
    actual = ias.read(spark, lake, where="day = DATE '2024-01-02' AND n < 60", columns=["n"])
    assert sorted(row.n for row in actual.collect()) == [*range(25, 50)]
    with pytest.raises(ia.PathError, match="no catalog"):
        ias.read(spark, lake / "day=2024-01-01", catalog=True)


def test_the_format_takes_it_as_an_option(spark, lake):
    def count(catalog):
        load = spark.read.format("intarsia").option("where", f"key = '{key_of(17)}'")
        return load.option("catalog", catalog).load(str(lake)).count()

    assert count("auto") == count("false") == 1
    with pytest.raises(Exception, match="there is no catalog"):
        count("true")
    ias.build_catalog(spark, lake)
    assert count("true") == count("false") == 1
    with pytest.raises(Exception, match="option 'catalog' is true or false, not 'perhaps'"):
        count("perhaps")


@pytest.mark.filterwarnings("ignore:of .* files looked into")
def test_refresh_adds_new_files(spark, lake, opened):
    ias.build_catalog(spark, lake)
    (lake / "day=2024-01-01" / "000.parquet").unlink()
    pq.write_table(table_of(50), lake / "day=2024-01-02" / "001.parquet")
    ia.add_indexes(lake / "day=2024-01-02" / "001.parquet", ["lookup(key)"])
    report = ias.build_catalog(spark, lake, refresh=True)
    assert (report.files, report.read, report.gone, report.segments) == (FILES - 1, 1, 2, 2)
    opened.clear()
    where = f"key IN ('{key_of(50)}', '{key_of(1)}', '{key_of(9)}')"
    actual = ias.read(spark, lake, where=where, columns=["n"]).collect()
    assert {*opened} == {"001.parquet", "009.parquet"}
    assert sorted(row.n for row in actual) == [9 * ROWS + 3, 50 * ROWS + 3]
    assert ias.build_catalog(spark, lake, refresh=True).read == 0


@pytest.mark.parametrize("max_keys", [0, build.MAX_DRIVER_KEYS])
def test_a_damaged_index_is_left_to_planning_its_file(spark, lake, monkeypatch, max_keys):
    monkeypatch.setattr(build, "MAX_DRIVER_KEYS", max_keys)
    path = lake / "day=2024-01-02" / "005.parquet"
    entry = next(e for e in ia.ParquetFile(path).indexes if e.kind == "lookup")
    content = bytearray(path.read_bytes())
    content[entry.offset + 30] ^= 255  # in its pages
    path.write_bytes(content)
    report = ias.build_catalog(spark, lake)
    assert (report.files, report.skipped) == (FILES, 0)
    segment = read_pointer(pafs.LocalFileSystem(), str(lake)).segments[0]
    assert {index.kind for index in segment.keys} == {"lookup", "elements"}
    with pytest.warns(ia.IntarsiaWarning, match="is ignored"):
        assert ia.dataset(lake).count_rows(filter=pc.field("key") == key_of(5)) == 1


def test_a_job_that_fails_leaves_the_catalog_as_it_was(spark, lake, monkeypatch):
    ias.build_catalog(spark, lake)
    before = {path.name for path in (lake / "_intarsia").iterdir()}

    def fails(*_):
        raise RuntimeError("no more")

    monkeypatch.setattr(build, "published", fails)
    with pytest.raises(RuntimeError, match="no more"):
        ias.build_catalog(spark, lake)
    assert {path.name for path in (lake / "_intarsia").iterdir()} == before


def test_files_that_spark_writes(spark, tmp_path):
    folder = tmp_path / "written"
    ias.write(spark.range(2000).repartition(6), folder, indexes=["lookup(id)"])
    report = ias.build_catalog(spark, folder)
    assert report.files == 6
    assert report.keys == 2000
    assert [row.id for row in ias.read(spark, folder, where="id = 777").collect()] == [777]
    ias.write(spark.range(2000, 2100), folder, mode="append")
    assert ias.read(spark, folder, where="id = 2050").count() == 1
    ias.write(spark.range(10), folder, mode="overwrite")
    assert ias.read(spark, folder, where="id >= 0").count() == 10
    shutil.rmtree(folder / "_intarsia")
    assert ias.read(spark, folder, where="id = 7").count() == 1
