"""The local disk through a wrapping file system: files are replaced as on the plain local disk."""

from __future__ import annotations

import os
import stat

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

import intarsia as ia
from intarsia.io.fsspec_listing import wrapped
from intarsia.io.local_path import local_path

WRAPPINGS = {
    "none": lambda folder: (None, f"{folder}/"),
    "subtree": lambda folder: (pafs.SubTreeFileSystem(folder, pafs.LocalFileSystem()), ""),
    "subtree of a subtree": lambda folder: (
        pafs.SubTreeFileSystem(
            "lake", pafs.SubTreeFileSystem(f"{folder}/..", pafs.LocalFileSystem())
        ),
        "",
    ),
    "fsspec": lambda folder: (fsspec.filesystem("file"), f"{folder}/"),
    "fsspec's folder": lambda folder: (DirFileSystem(folder, fsspec.filesystem("file")), ""),
    "folder of a wrapped one": lambda folder: (
        pafs.SubTreeFileSystem(
            folder, pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file")))
        ),
        "",
    ),
}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "lake"
    folder.mkdir()
    pq.write_table(pa.table({"n": range(5_000)}), folder / "t.parquet")
    os.chmod(folder / "t.parquet", 0o600)
    os.symlink("t.parquet", folder / "link.parquet")
    return folder


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_permissions_links_and_checksums_do_not_change(folder, wrapping):
    filesystem, base = WRAPPINGS[wrapping](str(folder))
    (folder / ".t.parquet.crc").write_bytes(b"crc\0\0\0\2\0")
    ia.add_indexes(f"{base}link.parquet", ["n:lookup"], filesystem=filesystem)
    assert stat.S_IMODE(os.stat(folder / "t.parquet").st_mode) == 0o600
    assert not (folder / ".t.parquet.crc").exists()  # which Hadoop would compare with the file
    assert (folder / "link.parquet").is_symlink()
    (report,) = ia.list_indexes(folder / "t.parquet")
    assert [index.name for index in report.indexes] == ["n:lookup"]
    ia.drop_indexes(f"{base}t.parquet", ["n:lookup"], filesystem=filesystem)
    assert stat.S_IMODE(os.stat(folder / "t.parquet").st_mode) == 0o600
    assert pq.read_table(folder / "t.parquet").num_rows == 5_000


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_sidecars_catalogs_and_recovered_files_are_written(folder, wrapping):
    filesystem, base = WRAPPINGS[wrapping](str(folder))
    ia.add_indexes(f"{base}t.parquet", ["n:lookup"], filesystem=filesystem, sidecar=True)
    (sidecar,) = (folder / "_intarsia").iterdir()
    assert stat.S_IMODE(os.stat(sidecar).st_mode) == 0o600  # it provides the file's values
    if base:
        ia.build_catalog(base, filesystem=filesystem)
    torn = folder / "torn.parquet"
    torn.write_bytes((folder / "t.parquet").read_bytes()[:-9])
    os.chmod(torn, 0o600)
    ia.recover(f"{base}torn.parquet", f"{base}out.parquet", filesystem=filesystem)
    assert stat.S_IMODE(os.stat(folder / "out.parquet").st_mode) == 0o600
    os.symlink("torn.parquet", folder / "same.parquet")
    with pytest.raises(ia.PathError, match="this is the torn file itself"):
        ia.recover(f"{base}torn.parquet", f"{base}same.parquet", filesystem=filesystem)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_hard_links_cause_a_warning(folder, wrapping):
    filesystem, base = WRAPPINGS[wrapping](str(folder))
    os.link(folder / "t.parquet", folder / "other.parquet")
    with pytest.warns(ia.IntarsiaWarning, match="hard links"):
        ia.add_indexes(f"{base}t.parquet", ["n:lookup"], filesystem=filesystem)


def test_remote_files_have_no_local_path():
    memory = wrapped(fsspec.filesystem("memory"))
    assert local_path("/a", memory) is None
    assert local_path("a", pafs.SubTreeFileSystem("/b", memory)) is None
    assert local_path("a", pafs.SubTreeFileSystem("/b/", pafs.LocalFileSystem())) == "/b/a"


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_file_is_not_recovered_over_the_one_that_provides_its_schema(folder, wrapping):
    filesystem, base = WRAPPINGS[wrapping](str(folder))
    torn, before = folder / "torn.parquet", (folder / "t.parquet").read_bytes()
    torn.write_bytes(before[:-9])
    for out in ("t.parquet", "link.parquet"):
        with pytest.raises(ia.PathError, match="this is the file that the schema is from"):
            ia.recover(
                *(f"{base}torn.parquet", f"{base}{out}"),
                schema_from=f"{base}t.parquet",
                filesystem=filesystem,
            )
    with pytest.raises(ia.PathError, match="no such folder to write to"):
        ia.recover(f"{base}torn.parquet", f"{base}nowhere/out.parquet", filesystem=filesystem)
    assert (folder / "t.parquet").read_bytes() == before


def test_the_sidecar_of_a_linked_file_remains_valid(tmp_path):
    for name in ("real", "base"):
        (tmp_path / name).mkdir()
    real = tmp_path / "real" / "x.parquet"
    pq.write_table(pa.table({"k": range(500), "s": range(500)}), real)
    ia.add_indexes(real, ["k:lookup"], sidecar=True)
    (tmp_path / "base" / "l.parquet").symlink_to(real)
    disk = pafs.SubTreeFileSystem(str(tmp_path / "base"), pafs.LocalFileSystem())
    ia.add_indexes("l.parquet", ["s:lookup"], filesystem=disk)
    (report,) = ia.list_indexes(real)
    assert [entry.name for entry in report.indexes] == ["s:lookup"]
    assert [entry.name for entry in report.sidecar] == ["k:lookup"]
