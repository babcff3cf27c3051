"""A file overwritten in place between planning and reading is noticed and not misread."""

import os
import pickle
from dataclasses import replace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset import scanned_dataset
from intarsia.io.storage import FileReplaced
from intarsia.scan import scan, units

ROWS = 20_000
FILTER = pc.field("n") >= 0


def table(first):
    return pa.table(
        {
            "n": np.arange(first, first + ROWS),
            "t": [f"text {i}" for i in range(first, first + ROWS)],
        }
    )


def write(path, first):
    pq.write_table(
        table(first),
        path,
        row_group_size=1000,
        write_page_index=True,
        max_rows_per_page=100,
        use_dictionary=False,
    )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.parquet"
    write(path, 0)
    # long ago, so that even a coarse clock distinguishes it from later times
    os.utime(path, ns=(1, 1))
    return path


def overwrite(path):
    """Writes the file in place, as ``open(path, "wb")`` does: new bytes, same inode."""
    before = os.stat(path).st_ino
    write(path, 10**6)
    assert os.stat(path).st_ino == before


def test_a_file_opened_before_raises_an_error(path):
    file = ia.ParquetFile(path)
    overwrite(path)
    for expected in (FILTER, pc.field("n") == 5, None):
        with pytest.raises(FileReplaced):
            file.read(filter=expected)


def test_a_data_set_reads_the_new_file(path):
    data = ia.dataset(path)
    assert data.to_table(filter=FILTER).equals(table(0))
    overwrite(path)
    assert data.to_table(filter=FILTER).equals(table(10**6))
    assert data.count_rows(filter=pc.field("n") >= 10**6) == ROWS


def test_a_scan_that_has_returned_rows_raises_an_error(path, monkeypatch):
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_rows=1000))
    batches = ia.dataset(path).to_batches(filter=FILTER, use_threads=False)
    first = next(batches)
    overwrite(path)
    actual = [first]
    with pytest.raises(FileReplaced):
        actual += batches
    rows = pa.Table.from_batches(actual)
    assert rows.equals(table(0).slice(0, rows.num_rows))


def test_a_scan_that_has_returned_no_rows_starts_again(path, monkeypatch):
    plan_group = scan.plan_group

    def plan_then_overwrite(*arguments, **options):
        actual = plan_group(*arguments, **options)
        monkeypatch.setattr(scan, "plan_group", plan_group)
        overwrite(path)
        return actual

    monkeypatch.setattr(scan, "plan_group", plan_then_overwrite)
    assert ia.dataset(path).to_table(filter=FILTER).equals(table(10**6))


def test_a_file_replaced_by_renaming_is_read_in_its_old_version(path, tmp_path):
    file = ia.ParquetFile(path)
    write(tmp_path / "other.parquet", 10**6)
    os.replace(tmp_path / "other.parquet", path)
    assert file.read(filter=FILTER).equals(table(0))


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("is_far", [False, True])
def test_scans_without_a_filter_use_current_footers(is_far, derived, tmp_path):
    """The footers that pyarrow caches are from its first scan."""
    where = {"filesystem": fsspec.filesystem("memory")} if is_far else {}
    path = "/kept/a.parquet" if is_far else str(tmp_path / "a.parquet")

    def put(table, **options):
        pq.write_table(table, tmp_path / "new", **options)
        if is_far:
            where["filesystem"].pipe(path, (tmp_path / "new").read_bytes())
        else:
            os.replace(tmp_path / "new", path)

    old = pa.table({"id": range(100), "x": range(1000, 1100)})
    put(old, row_group_size=50)
    data = ia.dataset(path, **where)
    for new in (old, old.select(["x", "id"]), pa.concat_tables([old, old]), old.slice(7, 3)):
        put(new, use_dictionary=new is old)
        scanned = data.replace_schema(data.schema) if derived else data
        assert scanned.to_table() == new.select(["id", "x"])
        assert scanned.count_rows() == new.num_rows
        assert pa.Table.from_batches(scanned.to_batches(["x"])) == new.select(["x"])
        assert scanned.scanner(["id"]).to_table() == new.select(["id"])
        assert scanned.sort_by("id").to_table().num_rows == new.num_rows
        assert scanned.take([new.num_rows - 1]) == new.select(["id", "x"]).slice(new.num_rows - 1)
        (fragment,) = scanned.get_fragments()
        (planned,) = scanned.get_fragments(filter=pc.field("id") >= 0)
        for one in (fragment, planned):
            assert one.to_table(columns=["id"]) == new.select(["id"])
            assert one.count_rows() == new.num_rows
        if not is_far:
            copy = pickle.loads(pickle.dumps(scanned))
            assert copy.to_table() == new.select(["id", "x"])


def test_a_planned_fragment_reads_the_current_file(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(100)}), path, row_group_size=50)
    data = ia.dataset(path)
    (planned,) = data.get_fragments(filter=pc.field("id") >= 0)
    assert planned.to_table().num_rows == planned.count_rows() == 100
    assert planned.num_row_groups == 2
    pq.write_table(pa.table({"id": range(300)}), tmp_path / "new", row_group_size=50)
    os.replace(tmp_path / "new", path)
    assert planned.to_table().num_rows == planned.count_rows() == 300


def test_fragments_of_some_row_groups_are_refused(tmp_path):
    """With a filter, their rows are indistinguishable from those of the whole file."""
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "a.parquet", row_group_size=50)
    (whole,) = pads.dataset(tmp_path / "a.parquet").get_fragments()
    place = whole.physical_schema, whole.format, whole.filesystem
    assert ia.Dataset([whole], *place).count_rows(pc.field("id") >= 0) == 100
    assert ia.Dataset([whole.subset(row_group_ids=[1, 0])], *place).count_rows() == 100
    with pytest.raises(ia.UnsupportedError, match=r"a\.parquet: .* row groups \[0\] alone"):
        ia.Dataset([whole.subset(row_group_ids=[0])], *place)


def test_rows_by_number_belong_to_the_counted_file(tmp_path, monkeypatch):
    """A file replaced in between has them at other positions."""
    table = pa.table({"id": range(100)})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.slice(50), tmp_path / "b.parquet")
    data = ia.dataset(tmp_path)
    counted = scanned_dataset.parts_together

    def replaced_meanwhile(*arguments):
        actual = list(counted(*arguments))
        pq.write_table(table.slice(0, 7), tmp_path / "new")
        os.replace(tmp_path / "new", tmp_path / "a.parquet")
        return iter(actual)

    monkeypatch.setattr(scanned_dataset, "parts_together", replaced_meanwhile)
    assert data.take([1, 99, 120])["id"].to_pylist() == [1, 99, 70]


@pytest.mark.parametrize(
    "ask", [ia.Dataset.to_table, ia.Dataset.count_rows, lambda ds: list(ds.to_batches())]
)
def test_a_first_scan_names_a_deleted_file(ask, tmp_path):
    for name in "ab":
        pq.write_table(pa.table({"n": [1]}), tmp_path / f"{name}.parquet")
    data = ia.dataset(tmp_path)
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(ia.PathError, match=r"b\.parquet: there is no such file"):
        ask(data)


def test_the_error_is_the_same_for_another_process():
    error = FileReplaced("a.parquet")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("length", [0, 9])
@pytest.mark.parametrize("ask", [ia.Dataset.to_table, ia.Dataset.count_rows])
def test_a_first_scan_names_a_truncated_file(ask, length, tmp_path):
    for name in "ab":
        pq.write_table(pa.table({"n": [1]}), tmp_path / f"{name}.parquet")
    data = ia.dataset(tmp_path)
    os.truncate(tmp_path / "b.parquet", length)
    with pytest.raises(ia.IntarsiaError, match=r"b\.parquet: "):
        ask(data)
