"""Indexes added to objects on S3: the bytes transferred, and objects of other writers stay."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

import intarsia as ia
from intarsia.errors import PathError
from intarsia.io import file_handle, retry
from intarsia.io import s3_copy as by_store
from intarsia.io.atomic_replace import check_unchanged

MIB = 1024 * 1024
ROWS = 60_000


@pytest.fixture(scope="module")
def large():
    """A table of 13 MB whose index is small."""
    noise = np.random.default_rng(5)
    return pa.table(
        {
            "id": [i * 7919 % 1_000_003 for i in range(ROWS)],
            "payload": [noise.bytes(220) for _ in range(ROWS)],
        }
    )


@pytest.fixture
def put(s3, tmp_path):
    def put(name, table, **options):
        ia.write_table(table, tmp_path / "put.parquet", **options)
        data = (tmp_path / "put.parquet").read_bytes()
        with s3.filesystem.open_output_stream(f"lake/{name}", metadata={"x-kept": "yes"}) as out:
            out.write(data)
        s3.clear()
        return data

    return put


def read(s3, name):
    with s3.filesystem.open_input_file(f"lake/{name}") as file:
        return file.read()


def bytes_of(s3, method, start):
    """Bytes sent and received by requests of a method whose path begins with ``start``."""
    actual = [r for r in s3.requests if r.method == method and r.path.startswith(start)]
    return sum(r.sent for r in actual), sum(r.received for r in actual)


def lookup(row):
    return pc.field("id") == row * 7919 % 1_000_003


def test_the_store_copies_the_old_bytes(s3, put, large):
    data = put("large.parquet", large)
    assert len(data) > 2 * by_store.MIN_PART_BYTES
    (report,) = ia.add_indexes("lake/large.parquet", ["id:lookup"], filesystem=s3.filesystem)
    added = report.file_bytes - len(data)
    sent, _ = bytes_of(s3, "PUT", "/lake/large.parquet")
    _, received = bytes_of(s3, "GET", "/lake/large.parquet")
    assert sent == added < MIB
    assert received < 2 * MIB  # the indexed column, and tails
    assert read(s3, "large.parquet").startswith(data)
    source = ia.dataset("lake/large.parquet", filesystem=s3.filesystem)
    assert source.to_table(["id"], lookup(777)).num_rows == 1
    assert "index id:lookup" in str(source.explain(filter=lookup(777)))
    s3.clear()
    ia.drop_indexes("lake/large.parquet", "id:lookup", filesystem=s3.filesystem)
    assert bytes_of(s3, "PUT", "/lake/large.parquet")[0] == 0
    assert read(s3, "large.parquet") == data


def test_replacing_an_index_moves_only_the_others(s3, put, large):
    data = put("moves.parquet", large)
    ia.add_indexes("lake/moves.parquet", ["id:lookup", "id:minmax"], filesystem=s3.filesystem)
    s3.clear()
    new = ia.Lookup("id", granule_rows=1000)
    (report,) = ia.add_indexes("lake/moves.parquet", [new], filesystem=s3.filesystem)
    assert [entry.name for entry in report.indexes] == ["id:minmax", "id:lookup"]
    assert bytes_of(s3, "PUT", "/lake/moves.parquet")[0] == report.file_bytes - len(data)
    assert ia.verify("lake/moves.parquet", filesystem=s3.filesystem) == []


def test_small_objects_are_uploaded_whole(s3, put, large):
    data = put("small.parquet", large.slice(0, 500))
    assert len(data) < by_store.MIN_PART_BYTES
    (report,) = ia.add_indexes("lake/small.parquet", ["id:lookup"], filesystem=s3.filesystem)
    assert bytes_of(s3, "PUT", "/lake/small.parquet")[0] == report.file_bytes
    assert read(s3, "small.parquet").startswith(data)
    ia.drop_indexes("lake/small.parquet", "id:lookup", filesystem=s3.filesystem)
    assert read(s3, "small.parquet") == data


def test_large_copies_and_large_sections_are_uploaded_in_parts(s3, put, large, monkeypatch):
    monkeypatch.setattr(by_store, "COPY_BYTES", 10 * MIB)
    monkeypatch.setattr(by_store, "UPLOAD_BYTES", by_store.MIN_PART_BYTES)
    data = put("parts.parquet", large)
    payload = ia.Distinct("payload")  # the size of the column
    ia.add_indexes("lake/parts.parquet", [payload], filesystem=s3.filesystem)
    parts = [r for r in s3.requests if r.method == "PUT"]
    assert sum(r.sent == 0 for r in parts) == -(-len(data) // (10 * MIB)) == 2
    assert sum(r.sent == by_store.MIN_PART_BYTES for r in parts) >= 2
    assert read(s3, "parts.parquet").startswith(data)
    assert ia.verify("lake/parts.parquet", filesystem=s3.filesystem) == []


def test_every_write_is_on_condition_of_the_object_that_was_read(s3, put, large):
    for name, table in (("cond.parquet", large), ("cond_small.parquet", large.slice(0, 50))):
        put(name, table)
        with s3.filesystem.open_input_file(f"lake/{name}") as file:
            tag = {k.lower(): v for k, v in file.metadata().items()}["etag"].decode()
        ia.add_indexes(f"lake/{name}", ["id:lookup"], filesystem=s3.filesystem)
        copies = [r for r in s3.requests if r.method == "PUT" and r.sent == 0]
        final = [r for r in s3.requests if r.method in ("POST", "PUT") and r.sent > 0][-1]
        assert {r.condition for r in (*copies, final)} == {tag}


@pytest.mark.parametrize("rows", [ROWS, 500], ids=["copied", "uploaded"])
def test_another_writers_object_is_not_overwritten(s3, put, large, monkeypatch, rows):
    put("theirs.parquet", large.slice(0, rows))
    begin = by_store._pieces

    def while_they_write(*args):
        with s3.filesystem.open_output_stream("lake/theirs.parquet") as out:
            out.write(b"theirs")
        return begin(*args)

    monkeypatch.setattr(by_store, "_pieces", while_they_write)
    with pytest.raises(ia.PathError, match="another writer changed the file"):
        ia.add_indexes("lake/theirs.parquet", ["id:lookup"], filesystem=s3.filesystem)
    assert read(s3, "theirs.parquet") == b"theirs"


@pytest.mark.parametrize("rows", [ROWS, 500], ids=["copied", "uploaded"])
def test_a_deleted_object_is_not_made_again(s3, put, large, monkeypatch, rows):
    put("deleted.parquet", large.slice(0, rows))
    begin = by_store._pieces

    def while_they_delete(*args):
        s3.filesystem.delete_file("lake/deleted.parquet")
        return begin(*args)

    monkeypatch.setattr(by_store, "_pieces", while_they_delete)
    with pytest.raises(ia.PathError, match="the file was deleted meanwhile") as raised:
        ia.add_indexes("lake/deleted.parquet", ["id:lookup"], filesystem=s3.filesystem)
    assert isinstance(raised.value.__cause__, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        read(s3, "deleted.parquet")


LOST = {
    "asked again": ClientError({"Error": {"Code": "PreconditionFailed"}}, "PutObject"),
    "500": ClientError({"Error": {"Code": "InternalError"}}, "PutObject"),
    "no answer": EndpointConnectionError(endpoint_url="http://lake"),
}


class Deaf:
    """A client that executes a request only if ``does``, and then fails."""

    def __init__(self, client, error, *, does):
        self._client, self._error, self._does = client, error, does

    def __getattr__(self, name):
        return getattr(self._client, name)

    def put_object(self, **arguments):
        if self._does:
            self._client.put_object(**arguments)
        raise self._error

    def complete_multipart_upload(self, **arguments):
        if self._does:
            self._client.complete_multipart_upload(**arguments)
        raise self._error


@pytest.mark.parametrize("does", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("error", LOST.values(), ids=LOST)
@pytest.mark.parametrize("rows", [ROWS, 500], ids=["copied", "uploaded"])
def test_a_lost_answer_is_checked(s3, put, large, monkeypatch, rows, error, does):
    data = put("lost.parquet", large.slice(0, rows))
    client_of = by_store._client_of
    monkeypatch.setattr(by_store, "_client_of", lambda at: Deaf(client_of(at), error, does=does))
    place = "lake/lost.parquet"
    if does:
        ia.add_indexes(place, ["id:lookup"], filesystem=s3.filesystem)
        assert ia.list_indexes(place, filesystem=s3.filesystem)[0].indexes[0].kind == "lookup"
        ia.drop_indexes(place, "id:lookup", filesystem=s3.filesystem)
        assert read(s3, "lost.parquet") == data
    else:
        with pytest.raises(ia.PathError, match=r"lake/lost\.parquet: "):
            ia.add_indexes(place, ["id:lookup"], filesystem=s3.filesystem)
        assert read(s3, "lost.parquet") == data
    assert s3.filesystem.get_file_info("lake/lost.parquet").is_file


def test_files_of_unknown_version_are_not_replaced(monkeypatch):
    def failing(filesystem, path):
        raise PathError(f"{path}: cannot be opened: 500") from OSError("500")

    monkeypatch.setattr(file_handle, "open_handle", failing)
    far = pafs.SubTreeFileSystem("/", pafs.LocalFileSystem())
    assert file_handle.version_of("a.parquet", far) is None
    with pytest.raises(PathError, match="cannot be opened: 500"):
        check_unchanged("a.parquet", far, (1, 2))


def test_without_the_client_the_file_is_downloaded_and_uploaded(s3, put, large, monkeypatch):
    data = put("plain.parquet", large)
    monkeypatch.setattr(by_store, "_client_of", lambda _: None)
    ia.add_indexes("lake/plain.parquet", ["id:lookup"], filesystem=s3.filesystem)
    assert read(s3, "plain.parquet").startswith(data)


def test_sidecars_on_s3_take_one_listing_per_folder(s3, put, large):
    for i in range(6):
        data = put(f"beside/{i}.parquet", large.slice(i * 1000, 1000))
    ia.add_indexes("lake/beside", ["id:lookup"], filesystem=s3.filesystem, sidecar=True)
    assert read(s3, "beside/5.parquet") == data
    source = ia.dataset("lake/beside", filesystem=s3.filesystem)
    s3.clear()
    assert source.to_table(["id"], lookup(2777)).num_rows == 1
    assert not [r for r in s3.requests if r.method == "GET" and not r.range]  # it was listed
    assert "index id:lookup" in str(source.explain(filter=lookup(2777)))
    s3.clear()
    file = ia.ParquetFile("lake/beside/2.parquet", filesystem=s3.filesystem)
    assert file.read(["id"], filter=lookup(2777)).num_rows == 1
    listings = [r for r in s3.requests if r.method == "GET" and not r.range]
    assert len(listings) == 1


def test_new_files_appear_atomically(s3, tmp_path):
    table = pa.table({"id": range(3000)})
    path = "lake/new/deep.parquet"
    with ia.ParquetWriter(path, table.schema, filesystem=s3.filesystem) as writer:
        writer.write_table(table)
        info = s3.filesystem.get_file_info(path)
        assert info.type == pafs.FileType.NotFound
    assert ia.dataset(path, filesystem=s3.filesystem).to_table().equals(table)
    ia.write_table(table.slice(5), path, filesystem=s3.filesystem, indexes=["id:lookup"])
    data = ia.dataset(path, filesystem=s3.filesystem)
    assert data.to_table(filter=pc.field("id") == 77).to_pydict() == {"id": [77]}
    assert data.count_rows() == 2995
    left = s3.filesystem.get_file_info(pafs.FileSelector("lake/new", recursive=True))
    assert [info.base_name for info in left] == ["deep.parquet"]
    with pytest.raises(PathError, match="cannot be written"):
        ia.write_table(table, "no-such-bucket/x.parquet", filesystem=s3.filesystem)


def test_no_write_fails_at_a_fault_rate_of_20_percent(s3, monkeypatch):
    """In addition to the client's own retries. Half of the faults are lost answers."""
    monkeypatch.setattr(retry, "LONGEST_SECONDS", 0.1)
    table = pa.table({"id": range(3000), "day": [i % 3 for i in range(3000)]})
    path, on = "lake/faults/t.parquet", s3.filesystem
    monkeypatch.setattr(s3, "fault_rate", 0.2)
    ia.write_table(table, path, filesystem=on)
    ia.add_indexes(path, ["id:lookup"], filesystem=on)  # by the store
    ia.add_indexes(path, ["day:minmax"], filesystem=on, sidecar=True)
    ia.build_catalog("lake/faults", filesystem=on)
    ia.write_dataset(table, "lake/parts", partitioning=["day"], filesystem=on)
    monkeypatch.setattr(by_store, "_client_of", lambda _: None)
    ia.drop_indexes(path, "id:lookup", filesystem=on)  # downloaded and uploaded
    s3.fault_rate = 0.0
    assert s3.faults > 20
    assert ia.dataset("lake/faults", filesystem=on).to_table().equals(table)
    parts = ia.dataset("lake/parts", filesystem=on, partitioning=["day"])
    assert parts.to_table(["id", "day"]).sort_by("id").cast(table.schema).equals(table)
    for folder in ("lake/faults", "lake/parts"):
        left = on.get_file_info(pafs.FileSelector(folder, recursive=True))
        assert not [info.path for info in left if info.path.endswith("intarsia-tmp")]


def test_a_catalogs_pointer_is_replaced_on_condition_of_the_one_that_was_read(s3):
    table, on = pa.table({"id": range(300)}), s3.filesystem
    ia.write_table(table, "lake/cat/a.parquet", filesystem=on)
    ia.build_catalog("lake/cat", filesystem=on)
    with on.open_input_file("lake/cat/_intarsia/catalog.json") as file:
        tag = {k.lower(): v for k, v in file.metadata().items()}["etag"].decode()
    ia.write_table(table, "lake/cat/b.parquet", filesystem=on)
    s3.clear()
    report = ia.build_catalog("lake/cat", filesystem=on, refresh=True)
    assert (report.files, report.read) == (2, 1)
    pointers = [r for r in s3.requests if r.method == "PUT" and r.path.endswith("catalog.json")]
    assert [r.condition for r in pointers] == [tag]
