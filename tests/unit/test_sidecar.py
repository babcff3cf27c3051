"""Sidecars: indexes beside unchanged files, discovered automatically while they match."""

import os
import pickle
import warnings
from dataclasses import replace

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

import intarsia as ia
from intarsia.index.sidecar import MAGIC
from intarsia.indexing import rewrite, sidecar_writer
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import framed, read_footer
from intarsia.parquet.metadata import AesGcm, EncryptionAlgorithm
from intarsia.parquet.thrift import amended, encode
from intarsia.plan import index_selection

TABLE = pa.table({"k": [f"k{i * 7919 % 5000:05}" for i in range(5000)], "n": range(5000)})
WANTED = pc.field("k") == "k04500"  # row 500


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, row_group_size=2000, write_page_index=True, max_rows_per_page=100)
    return path


def sidecars(folder):
    return sorted((folder / "_intarsia").glob("*"))


def used(source, condition=WANTED):
    return "index k:lookup" in [
        s.source for f in source.plan(filter=condition).files for s in f.steps
    ]


def test_the_file_stays_as_it_is_and_every_reader_uses_the_sidecar(file):
    before, stat = file.read_bytes(), file.stat()
    (report,) = ia.add_indexes(file, [ia.Lookup("k", granule_rows=100)], sidecar=True)
    assert file.read_bytes() == before
    assert file.stat().st_mtime_ns == stat.st_mtime_ns
    assert [entry.name for entry in report.sidecar] == ["k:lookup"]
    assert report.indexes == ()
    (sidecar,) = sidecars(file.parent)
    assert sidecar.read_bytes().startswith(MAGIC)
    assert sidecar.read_bytes().endswith(MAGIC)
    source = ia.dataset(file)
    assert source.to_table(filter=WANTED).equals(TABLE.filter(WANTED))
    assert source.plan(filter=WANTED).figures.rows.selected == 100
    assert "index k:lookup" in str(source.explain(filter=WANTED))
    assert ia.ParquetFile(file).read(filter=WANTED).equals(TABLE.filter(WANTED))
    assert [entry.name for entry in ia.ParquetFile(file).indexes] == ["k:lookup"]
    assert ia.verify(file) == []


def test_sidecar_folders_are_no_data(tmp_path, file):
    ia.add_indexes(tmp_path, ["k:lookup"], sidecar=True)
    assert ia.dataset(tmp_path).count_rows() == 5000
    assert pads.dataset(tmp_path, format="parquet").count_rows() == 5000
    assert [report.path for report in ia.list_indexes(tmp_path)] == [str(file)]


def test_the_answer_stays_if_any_byte_of_a_sidecar_is_flipped(file):
    ia.add_indexes(file, [ia.Lookup("k", granule_rows=500)], sidecar=True)
    (sidecar,) = sidecars(file.parent)
    whole = sidecar.read_bytes()
    for at in [*range(0, len(whole) - 900, 311), *range(len(whole) - 900, len(whole), 7)]:
        sidecar.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ia.IntarsiaWarning)
            assert ia.ParquetFile(file).read(filter=WANTED).equals(TABLE.filter(WANTED)), at
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        sidecar.write_bytes(whole[:length])
        with pytest.warns(ia.IntarsiaWarning, match="its sidecar is ignored"):
            assert ia.ParquetFile(file).read(filter=WANTED).equals(TABLE.filter(WANTED))
        assert any("sidecar is ignored" in finding.message for finding in ia.verify(file))


def touched(file):
    stat = file.stat()
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 5_000_000))


def rewritten(file):
    pq.write_table(TABLE.slice(0, 4000), file)


@pytest.mark.parametrize(
    ("change", "message"),
    [(touched, "the file is newer, or a copy"), (rewritten, "it belongs to another file")],
)
def test_a_stale_sidecar_is_ignored_with_one_warning_and_rebuilt(file, change, message):
    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    change(file)
    expected = pq.read_table(file).filter(WANTED)
    with pytest.warns(ia.IntarsiaWarning, match=f"its sidecar is ignored: {message}"):
        assert ia.ParquetFile(file).read(filter=WANTED).equals(expected)
    source = ia.dataset(file)
    with pytest.warns(ia.IntarsiaWarning, match="of 1 files looked into, 1 have indexes"):
        assert source.to_table(filter=WANTED).equals(expected)
    assert source.count_rows(filter=WANTED) == expected.num_rows  # says no more
    (finding,) = ia.verify(file)
    assert (finding.severity, message in finding.message) == (ia.Severity.WARNING, True)
    (report,) = ia.list_indexes(file)
    assert (report.sidecar, message in report.problems[0]) == ((), True)
    (report,) = ia.add_indexes(file, ["n:lookup"], sidecar=True)
    assert ([entry.name for entry in report.sidecar], report.problems) == (["n:lookup"], ())
    assert len(sidecars(file.parent)) == 1


def test_embedded_indexes_serve_first_and_those_of_the_sidecar_as_well(file, monkeypatch):
    monkeypatch.setattr(
        index_selection, "COSTS", replace(index_selection.COSTS, probe_bytes=0)
    )  # otherwise one index leaves too little work for another
    ia.add_indexes(file, [ia.Lookup("k", granule_rows=100)])
    ia.add_indexes(file, [ia.Lookup("k", granule_rows=1000), ia.MinMax("n")], sidecar=True)
    assert [entry.name for entry in ia.ParquetFile(file).indexes] == ["k:lookup", "n:minmax"]
    source = ia.dataset(file)
    expected = WANTED & (pc.field("n") < 10_000)
    plan = source.plan(filter=expected)
    assert plan.figures.rows.selected == 100
    steps = [step.source for step in plan.files[0].steps]
    assert {"index k:lookup", "index n:minmax"} <= set(steps)
    assert source.to_table(filter=expected).equals(TABLE.filter(expected))
    assert ia.verify(file) == []


def test_a_sidecar_stays_valid_if_its_file_is_given_indexes_or_loses_them(file):
    ia.add_indexes(file, [ia.Lookup("k", granule_rows=100)], sidecar=True)
    for change in (ia.add_indexes, ia.drop_indexes):
        change(file, ["n:minmax"])
        assert ia.verify(file) == []
        assert len(os.listdir(file.parent / "_intarsia")) == 1
        assert ia.dataset(file).plan(filter=WANTED).figures.rows.selected == 100


def test_a_sidecar_is_still_used_if_only_modification_times_identify_files(file):
    on = pafs.SubTreeFileSystem(str(file.parent), pafs.LocalFileSystem())
    ia.add_indexes(file.name, [ia.Lookup("k", granule_rows=100)], sidecar=True, filesystem=on)
    for change in (ia.add_indexes, ia.drop_indexes):
        change(file.name, ["n:minmax"], filesystem=on)
        (report,) = ia.list_indexes(file.name, filesystem=on)
        assert ([entry.name for entry in report.sidecar], report.problems) == (["k:lookup"], ())
        assert ia.dataset(file.name, filesystem=on).plan(filter=WANTED).figures.rows.selected == 100


def test_a_file_stays_as_it_is_if_its_sidecar_cannot_be_rewritten(file, monkeypatch):
    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    before = file.read_bytes()

    def failing(*, dir):  # noqa: A002 # tempfile's name for it
        raise PermissionError(13, "Permission denied", dir)

    monkeypatch.setattr("tempfile.TemporaryFile", failing)
    with pytest.raises(
        ia.PathError,
        match=r"_intarsia: .*the sidecar of .*t\.parquet in it could not be rewritten: .*denied",
    ):
        ia.add_indexes(file, ["n:minmax"])
    assert file.read_bytes() == before
    assert used(ia.dataset(file))


def test_lost_sidecar_indexes_are_named(file, monkeypatch):
    ia.add_indexes(file, ["k:lookup", "n:minmax"], sidecar=True)

    def failing(*args):
        raise ia.PathError("_intarsia: no sidecar can be written: disk full")

    monkeypatch.setattr("intarsia.indexing.sidecar_writer._replace", failing)
    with pytest.raises(ia.PathError, match=r"disk full.* to its sidecar again: k:lookup, n:min"):
        ia.add_indexes(file, ["n:distinct"])


@pytest.mark.parametrize("is_first", [True, False])
def test_the_sidecar_of_this_file_is_used_among_two_of_the_same_time(is_first, file):
    """An older sidecar may be left where it could not be removed."""
    ia.add_indexes(file, ["n:minmax"], sidecar=True)
    (old,) = sidecars(file.parent)
    data = old.read_bytes()
    ia.add_indexes(file, ["n:distinct"])  # which changes the file's identity
    (new,) = sidecars(file.parent)
    name = f"{file.name}.{'0' * 8 if is_first else 'f' * 8}.intarsia"
    (new.parent / name).write_bytes(data)
    for one in sidecars(file.parent):
        os.utime(one, ns=(10**18, 10**18))
    assert len(sidecars(file.parent)) == 2
    (report,) = ia.list_indexes(file)
    assert ([entry.name for entry in report.sidecar], report.problems) == (["n:minmax"], ())
    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    assert len(sidecars(file.parent)) == 1
    assert ia.verify(file) == []


def test_new_indexes_join_a_sidecar_and_replace_those_of_their_name(file):
    ia.add_indexes(file, ["k:lookup", "n:minmax"], sidecar=True)
    (report,) = ia.add_indexes(file, [ia.Lookup("k", granule_rows=50)], sidecar=True)
    assert [(e.name, e.params["granule_rows"]) for e in report.sidecar] == [
        ("n:minmax", 8192),
        ("k:lookup", 50),
    ]
    assert len(sidecars(file.parent)) == 1
    assert ia.ParquetFile(file).read(filter=WANTED).equals(TABLE.filter(WANTED))


def test_dropping_returns_the_space(file):
    ia.add_indexes(file, ["k:lookup", "n:lookup"], sidecar=True)
    with pytest.raises(ia.IndexSpecError, match="dropped with sidecar=True"):
        ia.drop_indexes(file, "k:lookup")
    (report,) = ia.drop_indexes(file, "k:lookup", sidecar=True)
    assert [entry.name for entry in report.sidecar] == ["n:lookup"]
    assert ia.ParquetFile(file).read(filter=pc.field("n") == 7).num_rows == 1
    ia.drop_indexes(file, ["n:lookup"], sidecar=True)
    assert sidecars(file.parent) == []
    with pytest.raises(ia.IndexSpecError, match="no sidecar has an index n:lookup"):
        ia.drop_indexes(file, ["n:lookup"], sidecar=True)


def test_an_open_data_set_uses_new_sidecars(file):
    source = ia.dataset(file)
    assert source.to_table(filter=WANTED).num_rows == 1
    assert not used(source)
    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    assert used(source)
    stream = source.to_batches(filter=WANTED)
    ia.add_indexes(file, [ia.Lookup("k", granule_rows=10)], sidecar=True)
    assert sum(batch.num_rows for batch in stream) == 1
    assert source.plan(filter=WANTED).figures.rows.selected <= 100
    ia.drop_indexes(file, "k:lookup", sidecar=True)
    assert not used(source)


@pytest.mark.parametrize("change", [ia.add_indexes, ia.drop_indexes])
def test_a_file_that_changes_meanwhile_gets_no_sidecar_of_its_old_version(file, change):
    ia.add_indexes(file, ["n:minmax"])

    def other_writer(_, done, most):
        if done == 1:
            change(file, ["n:lookup"] if change is ia.add_indexes else ["n:minmax"])

    with pytest.raises(ia.PathError, match="another writer changed the file"):
        ia.add_indexes(file, ["k:lookup"], sidecar=True, progress=other_writer)
    assert sidecars(file.parent) == []


@pytest.mark.parametrize("had_one", [True, False])
def test_a_sidecar_that_another_writer_makes_meanwhile_stays(file, had_one):
    if had_one:
        ia.add_indexes(file, ["n:minmax"], sidecar=True)

    def other_writer(_, done, most):
        if done == 1:
            ia.add_indexes(file, ["n:lookup"], sidecar=True)

    (report,) = ia.add_indexes(file, ["k:lookup"], sidecar=True, progress=other_writer)
    names = {"k:lookup", "n:lookup"} | ({"n:minmax"} if had_one else set())
    assert {entry.name for entry in report.sidecar} == names
    assert len(sidecars(file.parent)) == 1
    assert used(ia.dataset(file))
    assert ia.verify(file) == []


def test_a_writer_that_is_interrupted_repeatedly_gives_up(file, monkeypatch):
    replace, calls = sidecar_writer._replace, []

    def disturbed(*given, **others):
        if len(calls) < 30:
            calls.append(given)
            for path in sidecars(file.parent):
                path.unlink()
            with monkeypatch.context() as patched:
                patched.setattr(sidecar_writer, "_replace", replace)
                ia.add_indexes(file, ["n:lookup"], sidecar=True)
        return replace(*given, **others)

    monkeypatch.setattr(sidecar_writer, "_replace", disturbed)
    with pytest.raises(ia.PathError, match="another writer changed its sidecar"):
        ia.add_indexes(file, ["k:lookup"], sidecar=True)
    assert len(calls) == sidecar_writer._TRIES
    (report,) = ia.list_indexes(file)
    assert [entry.name for entry in report.sidecar] == ["n:lookup"]


def test_a_sidecar_that_another_writer_makes_meanwhile_serves_the_new_file(file, monkeypatch):
    copy = rewrite.copy_into

    def other_writer(source, out):
        ia.add_indexes(file, ["k:lookup"], sidecar=True)
        copy(source, out)

    monkeypatch.setattr(rewrite, "copy_into", other_writer)
    (report,) = ia.add_indexes(file, ["n:lookup"])
    assert [entry.name for entry in report.indexes] == ["n:lookup"]
    assert [entry.name for entry in report.sidecar] == ["k:lookup"]
    assert report.problems == ()
    assert len(sidecars(file.parent)) == 1
    assert used(ia.dataset(file))
    assert ia.verify(file) == []


def test_another_sidecar_folder_is_used_if_given(tmp_path, file):
    lake = tmp_path / "lake"
    for day in (1, 2):
        (lake / f"day={day}").mkdir(parents=True)
        pq.write_table(TABLE.slice(day * 100, 1000), lake / f"day={day}" / "a.parquet")
    there = tmp_path / "elsewhere"
    before = sorted(lake.rglob("*"))
    ia.add_indexes(lake, ["k:lookup"], sidecar=there)
    assert sorted(lake.rglob("*")) == before
    assert not used(ia.dataset(lake))
    source = ia.dataset(lake, sidecar=there)
    assert used(source)
    assert used(pickle.loads(pickle.dumps(source)))
    assert used(source.filter(pc.field("day") == 1))
    assert used(source.replace_schema(source.schema))
    assert "index k:lookup" in str(source.explain(filter=WANTED))
    expected = pa.concat_tables([TABLE.slice(100, 1000), TABLE.slice(200, 1000)]).filter(WANTED)
    assert source.to_table(["k", "n"], WANTED).sort_by("n").equals(expected.sort_by("n"))
    first = lake / "day=1" / "a.parquet"
    assert len(ia.ParquetFile(first, sidecar=there).indexes) == 1
    assert ia.verify(lake, sidecar=there) == []
    assert all(report.sidecar for report in ia.list_indexes(lake, sidecar=there))
    ia.drop_indexes(lake, "k:lookup", sidecar=there)
    assert not [path for path in there.rglob("*") if path.is_file()]


def test_an_error_says_what_to_do_if_no_sidecar_can_be_written(file):
    (file.parent / "_intarsia").write_text("in the way")
    with pytest.raises(ia.PathError, match=r"no sidecar can be written.*sidecar='another/folder'"):
        ia.add_indexes(file, ["k:lookup"], sidecar=True)
    assert ia.ParquetFile(file).read(filter=WANTED).num_rows == 1


def test_a_signed_file_that_can_be_read_has_a_sidecar(file):
    footer = read_footer(BufferSource(file.read_bytes()))
    signed = amended(footer.metadata, encryption_algorithm=EncryptionAlgorithm(AES_GCM_V1=AesGcm()))
    rows = file.read_bytes()[: footer.offset]
    file.write_bytes(rows + framed(encode(signed) + bytes(28)))
    with pytest.raises(ia.UnsupportedError, match="signed"):
        ia.add_indexes(file, ["k:lookup"])
    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    assert used(ia.dataset(file))
    assert ia.dataset(file).to_table(filter=WANTED).equals(TABLE.filter(WANTED))


def test_parquets_own_indexes_are_refused(file):
    for index in ("page_index", "k:bloom"):
        with pytest.raises(ia.IndexSpecError, match="only the file itself can hold it"):
            ia.add_indexes(file, [index], sidecar=True)


def test_a_failure_while_writing_leaves_the_old_sidecar(file, monkeypatch):
    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    before = sidecars(file.parent)

    def fails(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(ia.PathError, match="the disk is full"):
        ia.add_indexes(file, ["n:lookup"], sidecar=True)
    assert sidecars(file.parent) == before
    assert used(ia.dataset(file))


def test_a_sidecar_that_cannot_be_removed_is_an_error(file):
    class Stubborn(LocalFileSystem):
        def rm(self, *_args, **_options):
            raise PermissionError("not yours")

    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    before = sidecars(file.parent)
    with pytest.raises(ia.PathError, match="cannot be removed: not yours"):
        ia.drop_indexes(file, ["k:lookup"], sidecar=True, filesystem=Stubborn())
    assert sidecars(file.parent) == before


def test_a_missing_folder_is_an_error(tmp_path, file):
    for read in (ia.dataset, ia.ParquetFile, ia.list_indexes, ia.verify):
        with pytest.raises(ia.PathError, match="no such folder of sidecars"):
            read(file, sidecar=tmp_path / "nowhere")


def test_files_on_fsspec_have_sidecars_and_long_names_too(tmp_path, file):
    memory = fsspec.filesystem("memory")
    name = f"/beside/day=1/{'n' * 230}.parquet"
    memory.pipe(name, file.read_bytes())
    ia.add_indexes("/beside", ["k:lookup"], filesystem=memory, sidecar=True)
    assert len(memory.find("/beside")) == 2
    source = ia.dataset("/beside", filesystem=memory)
    assert source.to_table(["k", "n"], WANTED).equals(TABLE.filter(WANTED))
    assert used(source)
    memory.pipe(name, file.read_bytes())
    with pytest.warns(ia.IntarsiaWarning, match="its sidecar is ignored: the file is newer"):
        ia.ParquetFile(name, filesystem=memory).read(filter=WANTED)
    long = tmp_path / f"{'n' * 240}.parquet"
    long.write_bytes(file.read_bytes())
    ia.add_indexes(long, ["k:lookup"], sidecar=True)
    assert used(ia.dataset(long))


@pytest.mark.parametrize("where", ["file", "sidecar"])
def test_nothing_is_written_if_sidecars_cannot_be_listed(where, file, monkeypatch):
    ia.add_indexes(file, ["k:lookup"], sidecar=True)
    before, sidecars_before = file.read_bytes(), sidecars(file.parent)

    def refused(*_):
        raise PermissionError("not today")

    monkeypatch.setattr("intarsia.file.sidecar_discovery._listed", refused)
    for change in (
        lambda: ia.add_indexes(file, ["n:lookup"], sidecar=where == "sidecar"),
        lambda: ia.drop_indexes(file, ["k:lookup"], sidecar=where == "sidecar"),
    ):
        with pytest.raises(ia.IntarsiaError, match="cannot be listed: not today"):
            change()
    assert (file.read_bytes(), sidecars(file.parent)) == (before, sidecars_before)
    assert ia.dataset(file).to_table(filter=WANTED)["n"].to_pylist() == [500]  # as it only saves
    monkeypatch.undo()
    assert used(ia.dataset(file))


@pytest.mark.parametrize("name", ["", "indexes", "a/b"])
def test_sidecars_are_not_put_where_they_would_be_data(name, tmp_path):
    lake = tmp_path / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"k": ["a"]}), lake / "t.parquet")
    with pytest.raises(ia.PathError, match="sidecars there would be read as data"):
        ia.add_indexes(lake, "k:lookup", sidecar=lake / name)
    for folder in (lake / "_idx", tmp_path / "lake2"):
        ia.add_indexes(lake, "k:lookup", sidecar=folder)
        assert ia.dataset(lake, sidecar=folder).count_rows() == 1
