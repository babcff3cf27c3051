"""Tables that others write while data sets at a version are queried and indexed.

Every answer is that of the version, or an error says that a vacuum or an expiry removed the file.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import iceberg_tables
import pyarrow as pa
import pytest

import intarsia as ia

BATCH, SECONDS = 200, 3
CONDITIONS = ["key = 'k0007'", "id >= 100 AND id < 250", "key LIKE 'k01%'", None]


def rows(start):
    numbers = range(start, start + BATCH)
    return pa.table({"id": numbers, "key": [f"k{n * 7 % 1000:04}" for n in numbers]})


class DeltaWriter:
    """Appends, deletes, compacts, and removes old files, one action each."""

    opened = staticmethod(ia.delta)

    def __init__(self, folder):
        self.place, self.next = str(folder), 0
        self.append()

    def append(self):
        deltalake.write_deltalake(self.place, rows(self.next), mode="append")
        self.next += BATCH

    def delete(self):
        deltalake.DeltaTable(self.place).delete(f"id % 17 = {self.next // BATCH % 17}")

    def compact(self):
        deltalake.DeltaTable(self.place).optimize.compact()

    def clean(self):
        table = deltalake.DeltaTable(self.place)
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def expected(self):
        """A data set of the last version, and the rows that deltalake finds in it."""
        table = deltalake.DeltaTable(self.place)
        return ia.delta(table), pa.table(table.scan())


class IcebergWriter:
    """Appends, deletes by rewriting files, and removes the files of old snapshots."""

    def __init__(self, folder):
        self.table = iceberg_tables.catalog_in(folder).create_table("n.t", schema=rows(0).schema)
        self.next = 0
        self.append()

    def append(self):
        self.table.append(rows(self.next))
        self.next += BATCH

    def delete(self):
        first = self.next // 2
        self.table.delete(f"id >= {first} AND id < {first + 9}")

    def compact(self):
        self.table.overwrite(self.table.scan().to_arrow())

    def clean(self):
        live = set(iceberg_tables.locations(self.table))
        folder = iceberg_tables.Path(iceberg_tables.local(next(iter(live)))).parent
        for path in folder.glob("*.parquet"):
            if path.name not in {location.rpartition("/")[2] for location in live}:
                path.unlink()

    def expected(self):
        """A data set of the last snapshot, and the rows that pyiceberg finds in it."""
        self.table.refresh()
        return ia.iceberg(self.table), self.table.scan().to_arrow()


def changed(writer, opened, stopped):
    """Changes a table until ``stopped``. Adds data sets to query and their rows to ``opened``."""
    dice = random.Random(1)
    actions = [writer.append, writer.append, writer.delete, writer.compact, writer.clean]
    while not stopped.is_set():
        dice.choice(actions)()
        opened.append(writer.expected())


def check(data, expected, condition):
    """Compares one answer. Returns False if a removed file is named instead."""
    try:
        actual = data.to_table(filter=condition)
    except ia.PathError as error:
        if "was removed since" not in "".join(getattr(error, "__notes__", ())):
            raise
        return False
    expected_rows = ia.sql(f"SELECT * FROM t WHERE {condition or 'TRUE'} ORDER BY id", t=expected)
    assert actual.sort_by("id").to_pydict() == pa.table(expected_rows).to_pydict()
    return True


def index(data):
    """Adds an index to all files. Returns False if a removed file is named instead."""
    try:
        ia.add_indexes(data, ["lookup(key)"], keep=True, replace=False)
        ia.maintain(data)
    except ia.PathError as error:
        if "was removed since" not in "".join(getattr(error, "__notes__", ())):
            raise
        return False
    return True


@pytest.mark.filterwarnings("ignore:.*lack key:intarsia.IntarsiaWarning")
@pytest.mark.parametrize("writer", [DeltaWriter, IcebergWriter], ids=["delta", "iceberg"])
def test_answers_are_those_of_the_version(tmp_path, writer):
    """Readers go over old and new versions; each new version is indexed as well."""
    answered = removed = 0
    changing = writer(tmp_path)
    opened, stopped = [changing.expected()], threading.Event()
    dice, latest = random.Random(2), time.monotonic() + SECONDS
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(changed, changing, opened, stopped)
        try:
            while not future.done() and (time.monotonic() < latest or not (answered and removed)):
                assert time.monotonic() < latest + 60
                removed += not index(opened[-1][0])
                for data, expected in dice.sample(opened, min(4, len(opened))):
                    is_answer = check(data, expected, dice.choice(CONDITIONS))
                    answered += is_answer
                    removed += not is_answer
        finally:
            stopped.set()
        future.result()
    assert answered
    assert removed
    data, expected = changing.expected()
    assert index(data)
    for condition in CONDITIONS:
        assert check(data, expected, condition)
    for report in ia.list_indexes(data):
        assert "key:lookup" in [index.name for index in report.indexes]


@pytest.mark.parametrize("writer", [DeltaWriter, IcebergWriter], ids=["delta", "iceberg"])
def test_indexing_names_a_file_that_was_removed(tmp_path, writer):
    data, _ = writer(tmp_path).expected()
    (path,) = map(Path, data.files)
    path.unlink()
    before = {*path.parent.iterdir()}
    for call in (ia.list_indexes, lambda data: ia.add_indexes(data, ["lookup(key)"])):
        with pytest.raises(ia.PathError, match=path.name) as raised:
            call(data)
        assert "was removed since" in "".join(raised.value.__notes__)
    assert {*path.parent.iterdir()} == before


def test_a_file_that_is_removed_while_it_is_indexed_stays_away(tmp_path):
    path = tmp_path / "a.parquet"
    ia.write_table(rows(0), path, row_group_size=100)
    data, calls = ia.dataset(path), []

    def remove(*_):
        calls.append(path.exists())
        if len(calls) == 2:  # one row group is done, the other is not
            path.unlink()

    with pytest.raises(ia.PathError, match="deleted meanwhile; nothing was written") as raised:
        ia.add_indexes(data, ["lookup(key)"], progress=remove)
    assert "deleted since it was listed" in "".join(raised.value.__notes__)
    assert calls[:2] == [True, True]
    assert [*tmp_path.iterdir()] == []
