"""Damaged or misleading catalogs: no answer changes, and no other file is opened."""

import dataclasses
import os
import shutil
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.catalog.catalog import read_pointer
from intarsia.catalog.manifest import POINTER, decode_pointer, encode_pointer
from intarsia.catalog.segment_reader import SegmentReader
from intarsia.catalog.tables import FILES, build_table, new_name
from intarsia.errors import FormatError
from intarsia.file.read_options import DEFAULTS
from intarsia.io import storage
from intarsia.io.source import BufferSource

NUMBER = 6


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "lake"
    folder.mkdir()
    for number in range(NUMBER):
        rows = range(number * 20, number * 20 + 20)
        table = pa.table({"n": list(rows), "key": [f"key {i}" for i in rows]})
        pq.write_table(table, folder / f"{number}.parquet")
    ia.add_indexes(folder, ["lookup(key)"])
    ia.build_catalog(folder)
    return folder


CONDITIONS = [
    pc.field("key") == "key 57",
    pc.field("key").isin(["key 3", "key 119"]),
    pc.field("n") > 110,
    pc.field("n").is_null(),
]


def check(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ia.IntarsiaWarning)
        counts = [ia.dataset(folder).count_rows(filter=c) for c in CONDITIONS]
        rows = ia.dataset(folder).to_table(filter=CONDITIONS[0]).column("n").to_pylist()
    assert counts == [1, 2, 9, 0]
    assert rows == [57]


def catalog_files(folder):
    return sorted(p for p in (folder / "_intarsia").iterdir())


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_bytes_changed_anywhere_change_no_answer(lake, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("mutated") / "lake"
    shutil.copytree(lake, folder)  # modification times do not change
    files = st.sampled_from(catalog_files(folder))
    for path in data.draw(st.lists(files, min_size=1, max_size=3, unique=True)):
        content = bytearray(path.read_bytes())
        how = data.draw(st.sampled_from(["flip", "cut", "zero", "append", "delete"]))
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        if how == "flip" and content:
            content[at] ^= data.draw(st.integers(1, 255))
        elif how == "cut":
            content = content[:at]
        elif how == "zero":
            content[at : at + 40] = bytes(len(content[at : at + 40]))
        elif how == "append":
            content += b"more"
        if how == "delete":
            path.unlink()
        else:
            path.write_bytes(content)
    check(folder)
    shutil.rmtree(folder)


def test_a_damaged_catalog_causes_one_warning_and_is_rebuilt(lake, tmp_path):
    folder = tmp_path / "lake"
    shutil.copytree(lake, folder)
    pointer = folder / "_intarsia" / POINTER
    pointer.write_bytes(pointer.read_bytes()[:-1] + b"?")
    with pytest.warns(ia.IntarsiaWarning, match="catalog is ignored") as warned:
        dataset = ia.dataset(folder)
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataset.count_rows(filter=CONDITIONS[0]) == 1
        assert dataset.count_rows(filter=CONDITIONS[1]) == 2
    assert ia.build_catalog(folder, refresh=True).read == NUMBER
    check(folder)


def forged(lake, folder, change):
    """A copy whose pointer is the result of ``change``, with a valid checksum."""
    shutil.copytree(lake, folder)
    pointer = read_pointer(pafs.LocalFileSystem(), str(folder))
    (folder / "_intarsia" / POINTER).write_bytes(encode_pointer(change(pointer)))
    return folder


def with_paths(folder, rename):
    """Replaces the paths in the table of files."""

    def change(pointer):
        (segment,) = pointer.segments
        table = pq.read_table(folder.parent / "source" / "_intarsia" / segment.files.name)
        paths = [rename(path) for path in table.column("path").to_pylist()]
        table = table.set_column(0, "path", pa.array(paths)).cast(FILES)
        built = build_table(new_name(pointer.generation, "files"), FILES, [table])
        (folder / "_intarsia" / built.table.name).write_bytes(built.data)
        segment = dataclasses.replace(segment, files=built.table)
        return dataclasses.replace(pointer, segments=(segment,))

    return change


@pytest.mark.parametrize(
    "prefix", ["../elsewhere/", "/etc/", "file:///etc/", "s3://bucket/", "a/../../", "./"]
)
def test_paths_that_leave_the_data_set_are_ignored(lake, tmp_path, prefix, monkeypatch):
    shutil.copytree(lake, tmp_path / "source")
    folder = tmp_path / "lake"
    forged(lake, folder, with_paths(folder, lambda path: prefix + path))
    opened_paths, original = [], storage.open_handle

    def logged(filesystem, path):
        opened_paths.append(path)
        return original(filesystem, path)

    monkeypatch.setattr(storage, "open_handle", logged)
    with pytest.warns(ia.IntarsiaWarning, match="outside the data set's folder"):
        assert ia.dataset(folder).count_rows(filter=CONDITIONS[0]) == 1
    assert all(os.path.commonpath([path, folder]) == str(folder) for path in opened_paths)


def test_names_of_tables_cannot_leave_the_folder(lake, tmp_path):
    def change(pointer):
        (segment,) = pointer.segments
        table = dataclasses.replace(segment.files, name="../../etc/passwd")
        return dataclasses.replace(pointer, segments=(dataclasses.replace(segment, files=table),))

    folder = forged(lake, tmp_path / "lake", change)
    with pytest.warns(ia.IntarsiaWarning, match="not the name of a catalog's table"):
        assert ia.dataset(folder).count_rows(filter=CONDITIONS[0]) == 1


def table(rows=1 << 60):
    return {
        "name": "catalog-0123456789abcdef-files-01234567.parquet",
        "size": 1 << 60,
        "meta_length": 1 << 50,
        "meta_crc32": 0,
        "rows": rows,
    }


CHANGES = {
    "a segment of too many files": {"num_files": 1 << 40},
    "another number of files": {"num_files": NUMBER + 1},
    "a table larger than its file": {"files": table(NUMBER)},
    "bounds that are not there": {"bounds": table()},
    "no ends": {"tails": []},
    "ends that overlap": {"tails": [{"first": 1, "table": table(NUMBER)}]},
    "an exemplar that is not there": {"forms": [{"hash": "", "exemplar": NUMBER}]},
    "no forms": {"forms": []},
    "a form that is no object": {"forms": [7]},
    "a leaf that is no path": {"leaves": [7]},
    "keys that are no list": {"keys": {}},
    "keys of nothing": {"keys": [{}]},
}


@pytest.mark.parametrize("name", CHANGES)
def test_sizes_and_counts_are_checked(lake, tmp_path, name):
    import json
    import zlib

    folder = tmp_path / "lake"
    shutil.copytree(lake, folder)
    path = folder / "_intarsia" / POINTER
    document = json.loads(path.read_bytes().partition(b"\n")[2])
    document["segments"][0].update(CHANGES[name])
    body = json.dumps(document).encode()
    head = {"version": 1, "length": len(body), "crc32": zlib.crc32(body)}
    path.write_bytes(json.dumps(head).encode() + b"\n" + body)
    check(folder)


def test_a_pointer_survives_a_round_trip(lake):
    pointer = read_pointer(pafs.LocalFileSystem(), str(lake))
    assert decode_pointer(encode_pointer(pointer)) == pointer
    for data in (b"", b"{}", b"x" * 1000, b'{"version": 2}\n{}', b"[]\n{}"):
        with pytest.raises(FormatError):
            decode_pointer(data)


def test_keys_of_a_kind_of_another_version_are_not_used(lake, tmp_path):
    def change(pointer):
        (segment,) = pointer.segments
        keys = tuple(dataclasses.replace(index, kind_version=99) for index in segment.keys)
        segment = dataclasses.replace(segment, keys=keys)
        return dataclasses.replace(pointer, segments=(segment,))

    folder = forged(lake, tmp_path / "lake", change)
    check(folder)
    dataset = ia.dataset(folder)
    files, catalog = dataset.scan_source.files, dataset.scan_source.cache.catalog
    assert len(catalog.files_left(files, files, _request(dataset))) > 1


def _request(dataset):
    from intarsia.dataset.request_builder import request_of

    return request_of(dataset.schema, [], pc.field("key") == "key 57")


def replaced(folder, source, name, change):
    """Replaces the rows in a table of the only segment by the result of ``change``."""

    def forge(pointer):
        (segment,) = pointer.segments
        old = getattr(segment, name)
        rows = change(pq.read_table(source / "_intarsia" / old.name))
        built = build_table(new_name(pointer.generation, name), rows.schema, [rows])
        (folder / "_intarsia" / built.table.name).write_bytes(built.data)
        segment = dataclasses.replace(segment, **{name: built.table})
        return dataclasses.replace(pointer, segments=(segment,))

    return forge


def test_verify_finds_wrong_bounds_and_keys(lake, tmp_path):
    assert not ia.verify(lake)

    def all_zero(table):
        zeros = pa.array([bytes(8)] * len(table), pa.binary())
        return table.set_column(2, "low", zeros).set_column(3, "high", zeros)

    folder = tmp_path / "bounds"
    forged(lake, folder, replaced(folder, lake, "bounds", all_zero))
    assert ia.dataset(folder).count_rows(filter=pc.field("n") > 110) == 0  # undetectable
    actual = ia.verify(folder)
    assert len(actual) == NUMBER
    assert all("other bounds" in finding.message for finding in actual)

    def no_keys(pointer):
        (segment,) = pointer.segments
        keys = tuple(dataclasses.replace(index, parts=()) for index in segment.keys)
        segment = dataclasses.replace(segment, keys=keys)
        return dataclasses.replace(pointer, segments=(segment,))

    actual = ia.verify(forged(lake, tmp_path / "keys", no_keys))
    assert {finding.message for finding in actual} == {
        "the catalog lacks 20 keys of its index key:lookup"
    }
    broken = forged(lake, tmp_path / "broken", lambda pointer: pointer)
    (broken / "_intarsia" / POINTER).write_bytes(b"nothing")
    (finding,) = ia.verify(broken)
    assert finding.severity is ia.Severity.WARNING


def test_a_table_with_another_name_is_not_used(lake):
    pointer = read_pointer(pafs.LocalFileSystem(), str(lake))
    (segment,) = pointer.segments
    data = (lake / "_intarsia" / segment.files.name).read_bytes()
    other = dataclasses.replace(segment.files, name=new_name(pointer.generation, "files"))
    reader = SegmentReader(
        dataclasses.replace(segment, files=other), lambda _: BufferSource(data), DEFAULTS
    )
    with pytest.raises(FormatError, match="another file"):
        _ = reader.listed
